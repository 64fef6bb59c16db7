"""The settings of a run: names, types and defaults, read once from the environment into a frozen object.

Participants edit them in `env_vars.sh`; a variable that is set in the shell before the launcher starts wins. Older
material exported BATCH_SIZE and read PER_DEVICE_BATCH_SIZE, so every run there used batch 1 (erratum K1). Here a name
in env_vars.sh that nothing reads is an error, and so is a value that does not fit.

`python -m workshop.settings` prints all settings.
"""

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from difflib import get_close_matches
from os.path import normpath
from pathlib import Path
from typing import Any, Self

from workshop.record.checkpoints import is_of
from workshop.record.errors import InputError
from workshop.record.exercises import Start, readers_only
from workshop.record.printable import one_line
from workshop.record.schema import Schema, declared_types
from workshop.settings.env_file import assignments
from workshop.settings.model_file import check_units, check_weights, model_file, most_positions, shape_path

# Read by launch.sh, not by the training script.
LAUNCHER_NAMES = {"LOG_DIR", "GPU_LOG_INTERVAL_MS", "CONDA_SH_PATH", "CONDA_ENV", "RESTARTS", "RESUME_RUN"}
# Read by the libraries themselves.
LIBRARY_PREFIXES = ("CUDA_", "DS_", "HF_", "NCCL_", "OMP_", "PYTORCH_", "TOKENIZERS_", "TORCH_", "TQDM_", "WANDB_")


def is_tiny(model_name: str) -> bool:
    """Return whether it is tiny.env's model or another family's of that size: `tiny`, `tiny-llama`."""
    return model_name == "tiny" or model_name.startswith("tiny-")


@dataclass(frozen=True)
class Format:
    """What a setting's text may be: `parse` accepts it, and the value `fits`."""

    parse: Callable[[str], Any]
    expected: str = "a text"
    fits: Callable[[Any], Any] = lambda value: True

    def value_of(self, text: str, named: str) -> Any:
        """Return the text's value. Raises InputError with `named`, the variable with its text and place."""
        with suppress(ValueError, KeyError):
            if self.fits(value := self.parse(text)):
                return value
        raise InputError(one_line(f"{named}: expected {self.expected}"))


def choice(*allowed: str) -> Format:
    return Format({text: text for text in allowed}.__getitem__, " or ".join(allowed))


boolean = Format(lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()], "true or false")
positive = Format(int, "a whole number of at least 1", lambda value: value >= 1)
count = Format(int, "a whole number of at least 0", lambda value: value >= 0)
real = Format(float, "a number of at least 0", lambda value: 0 <= value < float("inf"))
step_range = Format(
    str,
    "two step numbers as FIRST:LAST, for example 5:8",
    lambda text: 1 <= int(text.partition(":")[0]) <= int(text.partition(":")[2]),
)
# Not the run folder itself or one above it: they hold other files and runs.
own_folder = Format(
    Path,
    "a folder inside the run folder, or an absolute path",
    lambda path: normpath(path).split("/")[0] not in (".", ".."),
)
# A folder that `runs` finds: not hidden, and on one line.
folder_name = Format(
    str, "a folder's name of letters, digits and . _ + -", lambda text: re.fullmatch(r"\w[\w.+-]*", text)
)


def setting(form: Format = Format(str), default: Any = MISSING, by: str = "") -> Any:
    """Declare a setting: its format, default, and who reads it: a folder of workshop/, "the Trainer", or "tools"."""
    return field(default=default, metadata={"format": form, "by": by})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting of a fine-tuning run; a field's environment variable is its name in capitals.

    An exercise with settings of its own adds them in a subclass.
    """

    # Where the evidence goes; launch.sh sets RUN_DIR, a fresh folder for every run.
    run_dir: Path = setting(Format(Path))
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
    ignore_keys: str = setting(default="", by="data")  # of rows and turns, although they may say what is learnt
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
    # What the optimizer updates; bf16: gradients and moments, too, so that small updates are lost.
    weights: str = setting(choice("fp32", "bf16"), "fp32", by="training")
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
    save_limit: int = setting(count, 2, by="training")  # checkpoints to keep, the newest ones; 0: all
    generate_size: int = setting(count, 100, by="measure")  # examples to answer for exact match and F1; 0: none
    generate_train_size: int = setting(count, 0, by="measure")  # training examples too: known by heart?
    generate_before: bool = setting(boolean, False, by="measure")  # answer them before the training too
    generate_steps: int = setting(count, 0, by="measure")  # and after every so many steps; 0: not
    max_new_tokens: int = setting(positive, 32, by="training")

    # Where the Trainer reports to beside the run folder.
    report_to: str = setting(default="none", by="training")
    wandb_mode: str = setting(choice("offline", "disabled"), "offline", by="training")

    start: Start = field(default_factory=Start)  # no setting: how the training was started
    optimizers = ("adamw_torch_fused", "adamw_torch", "adamw_torch_8bit")  # that the exercise's scripts train with
    own_model = ""  # the name of a model of the exercise's own

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] = os.environ, env_file: Path = Path("env_vars.sh"), start: Start | None = None
    ) -> Self:
        """Read all fields from `environ`; `env_file` is checked for names that nothing reads.

        Args: start: None: as `environ` says. Raises InputError naming the file, line and variable of the first mistake.
        """
        lines = cls.check_env_file(env_file)
        names = {item.name.upper() for item in settings_of(cls)}
        for name, readers in readers_only().items():
            if environ.get(name) and name not in names:
                raise InputError(f"{name}={environ[name]}: only {readers} reads it; expected it to be unset")
        values: dict[str, Any] = {"start": start or Start.of(environ)}
        for item in settings_of(cls):
            name = item.name.upper()
            text = environ.get(name, "")
            if not text.strip():
                if item.default is MISSING:
                    hint = f"expected `export {name}=…` in {env_file}"
                    if name == "RUN_DIR":
                        hint = "start the training through its launcher, for example `bash baseline/baseline.slurm`"
                    raise InputError(f"{name} is not set; {hint}")
                continue
            place = f" ({env_file}:{lines[name]}, or set in your shell)" if name in lines else ""
            stripped = text if name == "EXPERIMENT_NAME" else text.strip()
            values[item.name] = item.metadata["format"].value_of(stripped, f"{name}='{text}'{place}")
        settings = cls(**values)
        settings.check()
        return settings

    def check(self) -> None:
        """Reject combinations that no single variable shows."""
        if self.resume_from and not (Path(self.resume_from) / "trainer_state.json").is_file():
            raise InputError(
                f"RESUME_FROM='{self.resume_from}': no trainer_state.json there; expected a checkpoint folder such as "
                "logs/fsdp/<run>/bloom-qa-finetuned/checkpoint-32"
            )
        if self.fp16 and self.bf16:
            raise InputError("FP16=true and BF16=true: expected at most one of them to be true")
        if self.weights == "bf16" and not self.bf16:
            raise InputError("WEIGHTS=bf16: they are computed with in bf16; expected BF16=true FP16=false")
        if (self.generate_before or self.generate_steps) and not self.generate_size:
            asked = "GENERATE_BEFORE=true" if self.generate_before else f"GENERATE_STEPS={self.generate_steps}"
            raise InputError(f"{asked} and GENERATE_SIZE=0: expected a GENERATE_SIZE of 1 or more")
        if self.optimizer not in self.optimizers:
            expected = " or ".join(self.optimizers)
            raise InputError(f"OPTIMIZER={self.optimizer}: nothing here trains with it; expected {expected}")
        if self.model_init == "random" and self.model_name != self.own_model:
            shape_path(self.model_name)
        if self.model_init == "pretrained":
            check_weights(self.model_name)
        if self.max_length > (most := most_positions(model_file(self.model_name)) or self.max_length):
            problem = f"MAX_LENGTH={self.max_length}: {self.model_name} has {most} positions"
            raise InputError(f"{problem}; expected at most that")

    def check_start(self) -> None:
        """Reject settings that the start's launcher, this script or so many processes cannot train with."""

    def check_with(self, configuration: Any) -> None:
        """Reject settings that a Configuration (configuration.py) cannot be trained with."""
        check_units(self.config, configuration.content, self.model_name)

    @classmethod
    def check_env_file(cls, env_file: Path) -> dict[str, int]:
        """Return the names assigned in `env_file` with their lines. Raises InputError for a name that nothing reads."""
        known = {item.name.upper() for item in settings_of(cls)} | LAUNCHER_NAMES
        lines: dict[str, int] = {}
        for name, number, exported in assignments(env_file):
            if not exported:
                raise InputError(
                    f"{env_file}:{number}: {name} is assigned without `export`: the training cannot see it"
                )
            if name not in known and not name.startswith(LIBRARY_PREFIXES):
                close = get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f" (did you mean {close[0]}?)" if close else ""
                raise InputError(
                    f"{env_file}:{number}: nothing in this exercise reads {name}{hint}; "
                    f"expected one of {', '.join(sorted(known - {'RUN_DIR'}))}"
                )
            lines[name] = number
        return lines

    def note(self, text: str) -> None:
        """Print a line once for all ranks."""
        if self.start.rank == 0:
            print(text, flush=True)

    @property
    def resumes_own_run(self) -> bool:
        """Whether this is a resumed run: it continues from a checkpoint of its own folder."""
        return is_of(self.resume_from, self.output_path)

    @property
    def saves_often(self) -> bool:
        """Whether the training saves checkpoints, also when it is told to end, and not only the final model."""
        return self.save in ("epoch", "steps")

    @property
    def output_path(self) -> Path:
        """Folder of checkpoints and final model; in the run folder unless OUTPUT_DIR is absolute."""
        return self.run_dir / self.output_dir

    def as_record(self) -> dict[str, Any]:
        """Return the settings for run.json: file names without this machine's folders."""
        values = asdict(self)
        del values["run_dir"], values["start"]  # the first is where run.json lies
        if self.resumes_own_run:
            values["resume_from"] = ""  # run.json's `attempts` say from where
        for name, value in values.items():
            if isinstance(value, Path) or (isinstance(value, str) and value.startswith("/")):
                values[name] = Path(value).name
        return values


def settings_of(cls: type[Settings]) -> list[Field]:
    """Return the fields of an exercise's class that are settings."""
    return [item for item in fields(cls) if "format" in item.metadata]


def recorded_types() -> Schema:
    """Return the types of run.json's settings: those of every exercise, and those that exercises declare."""
    types = {item.name: str if item.type is Path else item.type for item in settings_of(Settings)}
    return types | declared_types("settings")


def defaults() -> dict[str, Any]:
    """Return the default of each setting by its environment variable; None: it has to be set."""
    return {item.name.upper(): None if item.default is MISSING else item.default for item in settings_of(Settings)}


def has_gpu(environ: Mapping[str, str]) -> bool:
    """Return whether there is an NVIDIA driver, without importing PyTorch, which takes seconds."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1", "NoDevFiles")
