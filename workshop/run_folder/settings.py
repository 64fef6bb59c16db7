"""Names, types and defaults of a run's settings, for the training, run.json and the tools.

`workshop/settings.py` reads them from the environment; nothing else declares them.
`python -m workshop.run_folder.settings` prints them.
"""

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from os.path import normpath
from pathlib import Path
from typing import Any

# Read by launch.sh, not by the training script.
LAUNCHER_NAMES = {"LOG_DIR", "GPU_LOG_INTERVAL_MS", "CONDA_SH_PATH", "CONDA_ENV", "RESTARTS", "RESUME_RUN"}
# Read by the libraries themselves.
LIBRARY_PREFIXES = ("CUDA_", "DS_", "HF_", "NCCL_", "OMP_", "PYTORCH_", "TOKENIZERS_", "TORCH_", "TQDM_", "WANDB_")

# Settings that only further/speed-ladder/ has: another exercise would leave them without effect.
LADDER_NAMES = (
    *("RUNG", "ATTENTION", "PACKING", "LOSS", "LOSS_CHUNK", "LOGITS", "STREAM", "COMPILE", "DATA_WORKERS"),
    "FLOAT8",
)


def is_tiny(model_name: str) -> bool:
    """Return whether it is tiny.env's model or another family's of that size: `tiny`, `tiny-llama`."""
    return model_name == "tiny" or model_name.startswith("tiny-")


@dataclass(frozen=True)
class Kind:
    """What a setting's text may be. `parse` raises ValueError or KeyError for a text that is not as `expected`."""

    parse: Callable[[str], Any]
    expected: str = "a text"

    def __call__(self, text: str) -> Any:
        return self.parse(text)


def choice(*allowed: str) -> Kind:
    return Kind({text: text for text in allowed}.__getitem__, " or ".join(allowed))


def number(kind: type, least: float, expected: str) -> Kind:
    def parse(text: str) -> Any:
        value = kind(text)
        if not least <= value < float("inf"):
            raise ValueError(text)
        return value

    return Kind(parse, expected)


def _own_folder(text: str) -> Path:
    """Refuse the run folder itself and folders above it, which hold other files and runs."""
    if normpath(text).split("/")[0] in (".", ".."):
        raise ValueError(text)
    return Path(text)


def _folder_name(text: str) -> str:
    """Accept one folder's name that `runs` finds: not hidden, and on one line."""
    if not re.fullmatch(r"\w[\w.+-]*", text):
        raise ValueError(text)
    return text


def _step_range(text: str) -> str:
    first, last = (int(part) for part in text.split(":"))
    if not 1 <= first <= last:
        raise ValueError(text)
    return text


boolean = Kind(lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()], "true or false")
own_folder = Kind(_own_folder, "a folder inside the run folder, or an absolute path")
folder_name = Kind(_folder_name, "a folder's name of letters, digits and . _ + -")
step_range = Kind(_step_range, "two step numbers as FIRST:LAST, for example 5:8")
positive = number(int, 1, "a whole number of at least 1")
count = number(int, 0, "a whole number of at least 0")
real = number(float, 0, "a number of at least 0")


def setting(kind: Kind = Kind(str), default: Any = MISSING, by: str = "") -> Any:
    """Declare a setting: its kind, its default, and who reads it: a folder of workshop/, "the Trainer", or "tools"."""
    return field(default=default, metadata={"kind": kind, "by": by})


@dataclass(frozen=True, kw_only=True)
class DeclaredSettings:
    """Every setting of a fine-tuning run; a field's environment variable is its name in capitals.

    An exercise with settings of its own adds them in a subclass of workshop.settings.Settings.
    """

    # Where the evidence goes; launch.sh sets RUN_DIR, a fresh folder for every run.
    run_dir: Path = setting(Kind(Path))
    experiment_name: str = setting(folder_name, by="job")
    output_dir: Path = setting(own_folder, by="the Trainer")  # relative to run_dir
    repeat: int = setting(positive, 1, by="tools")  # tables show the median over runs differing in it only
    config: str = setting(default="")  # the launcher's argument: a DeepSpeed or FSDP configuration file

    # The model: pretrained from the hub, or a known shape with random weights, which is as fast and as large.
    model_name: str = setting(by="training")
    model_init: str = setting(choice("pretrained", "random"), "pretrained", by="training")
    tokenizer_name: str = setting(default="", by="data")  # empty: the model's own

    # The data: `sample`, `harbour`, a hub name or files, whole or a slice: see workshop/data/sources.py.
    dataset: str = setting(default="rajpurkar/squad", by="data")
    eval_dataset: str = setting(default="", by="data")
    train_size: int = setting(positive, by="data")  # within the slice; a file with fewer rows than both is shared
    eval_size: int = setting(positive, by="data")
    max_length: int = setting(positive, by="data")  # tokens
    padding: str = setting(choice("max_length", "dynamic"), "max_length", by="data")
    labels: str = setting(choice("answer", "text"), "answer", by="data")

    # The training.
    num_epochs: int = setting(positive, by="the Trainer")
    max_steps: int = setting(count, 0, by="the Trainer")  # 0: as many as the epochs need
    batch_size: int = setting(positive, by="the Trainer")  # per GPU and micro-batch
    grad_acc: int = setting(positive, by="the Trainer")  # micro-batches per optimizer step
    eval_batch_size: int = setting(count, 0, by="the Trainer")  # per GPU; 0: as BATCH_SIZE
    learning_rate: float = setting(real, by="the Trainer")  # the highest: it falls to 0 in a straight line
    lr_warmup_steps: int = setting(count, 0, by="the Trainer")  # over these it first rises from 0
    weight_decay: float = setting(real, by="the Trainer")
    fp16: bool = setting(boolean, by="the Trainer")
    bf16: bool = setting(boolean, by="the Trainer")
    gradient_checkpointing: bool = setting(boolean, False, by="the Trainer")
    # 8bit: torchao's, whose states have 2 bytes per parameter instead of 8; not exact. muon: in further/by-hand/ only
    optimizer: str = setting(
        choice("adamw_torch_fused", "adamw_torch", "adamw_torch_8bit", "muon"), "adamw_torch_fused", by="the Trainer"
    )
    seed: int = setting(count, 42, by="the Trainer")
    resume_from: str = setting(default="", by="the Trainer")  # a checkpoint folder
    hang_timeout_s: int = setting(count, 1800, by="job")  # a rank without progress for so long hangs; 0: no limit

    # Looking closer.
    nan_filter: bool = setting(boolean, True, by="measure")  # each loss is waited for, to keep NaN out of the log
    profile: str = setting(step_range, "", by="measure")  # FIRST:LAST, the steps that profile.txt is about
    timers: bool = setting(boolean, False, by="training")  # DeepSpeed prints the parts of each step; it waits for each

    # After the training.
    # Checkpoints as SAVE_STEPS says, or one per epoch, and the final model; the final model only; nothing.
    save: str = setting(choice("steps", "epoch", "end", "no"), "steps", by="training")
    save_steps: int = setting(count, 0, by="training")  # SAVE=steps; 0: so that saving takes 1 % of the time at most
    save_limit: int = setting(count, 2, by="the Trainer")  # checkpoints to keep, the newest ones; 0: all
    generate_size: int = setting(count, 100, by="measure")  # examples to answer for exact match and F1; 0: none
    generate_train_size: int = setting(count, 0, by="measure")  # training examples too: known by heart?
    generate_before: bool = setting(boolean, False, by="measure")  # answer them before the training too
    generate_steps: int = setting(count, 0, by="measure")  # and after every so many steps; 0: not
    max_new_tokens: int = setting(positive, 32, by="training")

    # Where the Trainer reports to beside the run folder.
    report_to: str = setting(default="none", by="training")
    wandb_mode: str = setting(choice("offline", "online", "disabled"), "offline", by="training")


def defaults(declared: type = DeclaredSettings) -> dict[str, Any]:
    """Return the default of each setting by its environment variable; None: it has to be set."""
    return {item.name.upper(): None if item.default is MISSING else item.default for item in fields(declared)}


if __name__ == "__main__":
    print(f"{'setting':24} {'read by':12} value")
    for item in fields(DeclaredSettings):
        expected = item.metadata["kind"].expected
        default = "in env_vars.sh" if item.default is MISSING else item.default
        if item.name not in ("run_dir", "config"):  # which the launcher sets
            print(f"{item.name.upper():24} {item.metadata['by']:12} {expected}; default: {str(default) or 'none'}")
