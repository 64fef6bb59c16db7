"""The settings of a run, read once from the environment into a frozen object.

Participants edit them in `env_vars.sh`; a variable that is set in the shell before the launcher starts wins. Older
material exported BATCH_SIZE and read PER_DEVICE_BATCH_SIZE, so every run there used batch 1 (erratum K1). Here a name
in env_vars.sh that nothing reads is an error, and so is a value that does not fit.
"""

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from workshop.run_folder.checkpoints import is_of
from workshop.run_folder.configuration import Configuration, read_configuration
from workshop.run_folder.env_file import assignments
from workshop.run_folder.errors import InputError
from workshop.run_folder.model_file import model_file
from workshop.run_folder.printable import one_line
from workshop.run_folder.settings import LADDER_NAMES, LAUNCHER_NAMES, LIBRARY_PREFIXES, DeclaredSettings


@dataclass(frozen=True, kw_only=True)
class Settings(DeclaredSettings):
    """The settings of a run, read from the environment and checked."""

    optimizers = ("adamw_torch_fused", "adamw_torch", "adamw_torch_8bit")  # that the exercise's scripts train with

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, env_file: Path = Path("env_vars.sh")) -> Self:
        """Read all fields from `environ`; `env_file` is checked for names that nothing reads.

        Raises InputError naming the file, line and variable of the first mistake.
        """
        lines = cls.check_env_file(env_file)
        names = {item.name.upper() for item in fields(cls)}
        for name in LADDER_NAMES:
            if environ.get(name) and name not in names:
                raise InputError(
                    f"{name}={environ[name]}: only the speed ladder reads it; expected it to be unset, or one of "
                    "further/speed-ladder/'s launchers, which take DDP, FSDP and ZeRO configurations too"
                )
        values = {}
        for item in fields(cls):
            name = item.name.upper()
            text = environ.get(name, "")
            if not text.strip():
                if item.default is MISSING:
                    hint = f"expected `export {name}=…` in {env_file}"
                    if name == "RUN_DIR":
                        hint = "start the training through its launcher, for example `bash baseline/baseline.slurm`"
                    raise InputError(f"{name} is not set; {hint}")
                continue
            try:
                values[item.name] = item.metadata["kind"](text if name == "EXPERIMENT_NAME" else text.strip())
            except (ValueError, KeyError):
                place = f" ({env_file}:{lines[name]}, or set in your shell)" if name in lines else ""
                expected = item.metadata["kind"].expected
                raise InputError(one_line(f"{name}='{text}'{place}: expected {expected}")) from None
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
        if (self.generate_before or self.generate_steps) and not self.generate_size:
            asked = "GENERATE_BEFORE=true" if self.generate_before else f"GENERATE_STEPS={self.generate_steps}"
            raise InputError(f"{asked} and GENERATE_SIZE=0: expected a GENERATE_SIZE of 1 or more")
        if self.optimizer not in self.optimizers:
            expected = " or ".join(self.optimizers)
            raise InputError(f"OPTIMIZER={self.optimizer}: nothing here trains with it; expected {expected}")
        if "8bit" in self.optimizer and not find_spec("torchao"):
            raise InputError(f"OPTIMIZER={self.optimizer} needs torchao (requirements-gpu.txt); expected adamw_torch")
        if self.timers and not self.config:
            raise InputError("TIMERS=true: the timers are DeepSpeed's; expected TIMERS=false here, or PROFILE=10:12")

    def check_config(self) -> None:
        """Reject mistakes in the configuration file; print notes on keys without effect."""
        if not self.config:
            return
        found = configuration(self)
        if found.needs_gpu and not has_gpu():
            raise InputError(f"{self.config}: there is no NVIDIA GPU, which it needs for {found.needs_gpu}")
        for note in found.notes:
            print(f"note: {Path(self.config).name} {note}", file=sys.stderr)

    @classmethod
    def check_env_file(cls, env_file: Path) -> dict[str, int]:
        """Return the names assigned in `env_file` with their lines. Raises InputError for a name that nothing reads."""
        known = {item.name.upper() for item in fields(cls)} | LAUNCHER_NAMES
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
        del values["run_dir"]  # is where run.json lies
        if self.resumes_own_run:
            values["resume_from"] = ""  # run.json's `attempts` say from where
        for name, value in values.items():
            if isinstance(value, Path) or (isinstance(value, str) and value.startswith("/")):
                values[name] = Path(value).name
        return values


def world_size() -> int:
    """Return the number of training processes; before they start, as the launcher counts them."""
    nodes, per_node = (int(os.environ.get(name, "1")) for name in ("NNODES", "NPROC_PER_NODE"))
    return int(os.environ.get("WORLD_SIZE", nodes * per_node))


def has_gpu() -> bool:
    """Return whether there is an NVIDIA driver, without importing PyTorch, which takes seconds."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1", "NoDevFiles")


def configuration(settings: DeclaredSettings, exercise: str = "", ranks: int = 0) -> Configuration:
    """Return the launcher's configuration, DeepSpeed's or FSDP's, without importing torch.

    Raises InputError naming the file and the key for what is not trained as it is written.
    """
    known, exercise = vars(settings), exercise or Path.cwd().name
    model = model_file(known.get("model_name", ""))
    return read_configuration(Path(settings.config), known, ranks or world_size(), exercise, model)
