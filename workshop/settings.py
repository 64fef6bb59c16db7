"""The settings of a run: read once from the environment into one frozen object that everything else is given.

`env_vars.sh` is the place where participants edit them; a variable set in the shell before the launcher starts wins.
Older material exported BATCH_SIZE and read PER_DEVICE_BATCH_SIZE, so every run there used batch 1 (erratum K1). Here a
name in env_vars.sh that nothing reads is an error, and so is a value that does not fit.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from workshop.errors import WorkshopError

# Read by launch.sh, not by the training script.
LAUNCHER_NAMES = {"LOG_DIR", "GPU_LOG_INTERVAL_MS", "CONDA_SH_PATH", "CONDA_ENV"}
# Read by the libraries themselves.
LIBRARY_PREFIXES = ("CUDA_", "DS_", "HF_", "NCCL_", "OMP_", "PYTORCH_", "TOKENIZERS_", "TORCH_", "TQDM_", "WANDB_")

# Settings that only speed-ladder/ has: another exercise would leave them without effect.
LADDER_NAMES = ("RUNG", "ATTENTION", "PACKING", "LOSS", "LOSS_CHUNK", "LOGITS", "STREAM", "COMPILE", "DATA_WORKERS")

ASSIGNMENT = re.compile(r"^\s*(?P<export>export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=")


def _number(kind: type, least: float, expected: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if not least <= value < float("inf"):
            raise ValueError(text)
        return value

    parse.expected = expected  # type: ignore[attr-defined]
    return parse


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    parse.expected = " or ".join(allowed)  # type: ignore[attr-defined]
    return parse


def _boolean(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


_boolean.expected = "true or false"  # type: ignore[attr-defined]


def _step_range(text: str) -> str:
    first, last = (int(part) for part in text.split(":"))
    if not 1 <= first <= last:
        raise ValueError(text)
    return text


_step_range.expected = "two step numbers as FIRST:LAST, for example 5:8"  # type: ignore[attr-defined]
_positive = _number(int, 1, "a whole number of at least 1")
_count = _number(int, 0, "a whole number of at least 0")
_real = _number(float, 0, "a number of at least 0")


def setting(parse: Callable[[str], Any] = str, default: Any = MISSING) -> Any:
    """A field of Settings: how its text is read, and its value when the environment does not name it."""
    return field(metadata={"parse": parse}, **({} if default is MISSING else {"default": default}))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting of a fine-tuning run. The environment variable of a field is its name in capitals."""

    # Where the evidence goes; launch.sh sets RUN_DIR, a fresh folder for every run.
    run_dir: Path = setting(Path)
    experiment_name: str = setting()
    output_dir: Path = setting(Path)  # relative to run_dir
    repeat: int = setting(_positive, 1)  # tables show the median over runs that differ in this number only
    config: str = setting(default="")  # the launcher's argument: a DeepSpeed or FSDP configuration file

    # The model: pretrained from the hub, or a known shape with random weights, which is as fast and as large.
    model_name: str = setting()
    model_init: str = setting(_choice("pretrained", "random"), "pretrained")
    tokenizer_name: str = setting(default="")  # empty: the model's own

    # The data: `sample`, `harbour`, a SQuAD v1.1 JSON file, or a hub name.
    dataset: str = setting(default="rajpurkar/squad")
    eval_dataset: str = setting(default="")
    train_size: int = setting(_positive)
    eval_size: int = setting(_positive)
    max_length: int = setting(_positive)  # tokens
    padding: str = setting(_choice("max_length", "dynamic"), "max_length")
    labels: str = setting(_choice("answer", "text"), "answer")

    # The training.
    num_epochs: int = setting(_positive)
    max_steps: int = setting(_count, 0)  # 0: as many as the epochs need
    batch_size: int = setting(_positive)  # per GPU and micro-batch
    grad_acc: int = setting(_positive)  # micro-batches per optimizer step
    eval_batch_size: int = setting(_count, 0)  # per GPU; 0: as BATCH_SIZE
    learning_rate: float = setting(_real)  # the highest: it falls to 0 over the training in a straight line
    lr_warmup_steps: int = setting(_count, 0)  # over these it first rises from 0
    weight_decay: float = setting(_real)
    fp16: bool = setting(_boolean)
    bf16: bool = setting(_boolean)
    gradient_checkpointing: bool = setting(_boolean, False)
    optimizer: str = setting(_choice("adamw_torch_fused", "adamw_torch"), "adamw_torch_fused")
    seed: int = setting(_count, 42)
    resume_from: str = setting(default="")  # a checkpoint folder to go on from

    # Looking closer.
    profile: str = setting(_step_range, "")  # FIRST:LAST, the steps that profile.txt is about
    timers: bool = setting(_boolean, False)  # DeepSpeed prints the parts of each step; it waits for each

    # After the training.
    save: str = setting(_choice("epoch", "end", "no"), "epoch")  # a checkpoint per epoch, the final model only, nothing
    save_limit: int = setting(_count, 0)  # checkpoints to keep, the newest ones; 0: all
    generate_size: int = setting(_count, 100)  # evaluation examples to answer for exact match and F1; 0: none
    generate_train_size: int = setting(_count, 0)  # training examples to answer too: are they known by heart?
    generate_before: bool = setting(_boolean, False)  # answer the evaluation examples before the training too
    max_new_tokens: int = setting(_positive, 32)

    # Where the Trainer reports to beside the run folder.
    report_to: str = setting(default="none")
    wandb_mode: str = setting(_choice("offline", "online", "disabled"), "offline")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, env_file: Path = Path("env_vars.sh")) -> Self:
        """Read all fields from `environ`; `env_file` is checked for names that nothing reads.

        Raises WorkshopError naming the file, line and variable of the first mistake.
        """
        lines = cls.check_env_file(env_file) if env_file.exists() else {}
        names = {item.name.upper() for item in fields(cls)}
        for name in LADDER_NAMES:
            if environ.get(name) and name not in names:
                raise WorkshopError(
                    f"{name}={environ[name]}: only the speed ladder reads it; expected it to be unset, or one of "
                    "speed-ladder/'s launchers, which take DDP, FSDP and ZeRO configurations too"
                )
        values = {}
        for item in fields(cls):
            name = item.name.upper()
            text = environ.get(name, "").strip()
            if not text:
                if item.default is MISSING:
                    raise WorkshopError(f"{name} is not set; {cls._missing_hint(name, env_file)}")
                continue
            try:
                values[item.name] = item.metadata["parse"](text)
            except (ValueError, KeyError):
                expected = getattr(item.metadata["parse"], "expected", "text")
                place = f" ({env_file}:{lines[name]}, or set in your shell)" if name in lines else ""
                raise WorkshopError(f"{name}='{text}'{place}: expected {expected}") from None
        settings = cls(**values)
        settings.check()
        return settings

    def check(self) -> None:
        """Reject combinations that no single variable shows."""
        if self.resume_from and not (Path(self.resume_from) / "trainer_state.json").is_file():
            raise WorkshopError(
                f"RESUME_FROM='{self.resume_from}': no trainer_state.json there; expected a checkpoint folder such as "
                "logs/fsdp/<run>/bloom-qa-finetuned/checkpoint-32"
            )
        if self.fp16 and self.bf16:
            raise WorkshopError("FP16=true and BF16=true: expected at most one of them to be true")
        if self.generate_before and not self.generate_size:
            raise WorkshopError("GENERATE_BEFORE=true and GENERATE_SIZE=0: expected a size, or GENERATE_BEFORE=false")
        if self.timers and not self.config:
            raise WorkshopError("TIMERS=true: the timers are DeepSpeed's; expected TIMERS=false here, or PROFILE=10:12")

    @classmethod
    def check_env_file(cls, env_file: Path) -> dict[str, int]:
        """Names assigned in `env_file` and their line numbers. Raises WorkshopError for a name that nothing reads."""
        known = {item.name.upper() for item in fields(cls)} | LAUNCHER_NAMES
        lines: dict[str, int] = {}
        for number, line in enumerate(env_file.read_text().splitlines(), start=1):
            match = ASSIGNMENT.match(line)
            if not match:
                continue
            name = match["name"]
            if not match["export"]:
                raise WorkshopError(
                    f"{env_file}:{number}: {name} is assigned without `export`: the training cannot see it"
                )
            if name not in known and not name.startswith(LIBRARY_PREFIXES):
                close = get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f" (did you mean {close[0]}?)" if close else ""
                raise WorkshopError(
                    f"{env_file}:{number}: nothing in this exercise reads {name}{hint}; "
                    f"expected one of {', '.join(sorted(known - {'RUN_DIR'}))}"
                )
            lines[name] = number
        return lines

    @staticmethod
    def _missing_hint(name: str, env_file: Path) -> str:
        if name == "RUN_DIR":
            return "start the training through its launcher, for example `bash baseline/baseline.slurm`"
        return f"expected `export {name}=…` in {env_file}"

    @property
    def output_path(self) -> Path:
        """Checkpoints and the final model; inside the run's own folder unless OUTPUT_DIR is absolute."""
        return self.run_dir / self.output_dir

    def as_record(self) -> dict[str, Any]:
        """The settings as JSON types, for run.json: names of files without the folders of this machine."""
        values = asdict(self)
        del values["run_dir"]  # is where run.json lies
        for name, value in values.items():
            if isinstance(value, Path) or (isinstance(value, str) and value.startswith("/")):
                values[name] = Path(value).name
        return values
