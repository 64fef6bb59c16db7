"""GPUs that a plan can be made for, by their data sheets: gpus.toml, or a file of one's own with the same keys."""

import shutil
import subprocess
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.logs.mfu import PEAK_TFLOPS
from workshop.settings.json_file import checked

FILE = Path(__file__).with_name("gpus.toml")
DEFAULT = "h100-80gb"  # where no GPU is at hand


@dataclass(frozen=True)
class Gpu:
    """One kind; gpus.toml says what its numbers mean."""

    driver_name: str
    memory_mib: int
    memory_gb_per_s: float
    link_gb_per_s: float
    host_gb_per_s: float
    per_node: int
    tdp_w: int
    node_gib: float
    source: str = "your own file"
    measured: bool = False  # runs of logs/reference are of this kind
    tflops: dict[str, float] = field(default_factory=dict, hash=False)

    @property
    def peaks(self) -> dict[str, float]:
        """10^12 operations per second by precision."""
        return self.tflops or PEAK_TFLOPS[self.driver_name]

    def flops_per_s(self, precision: str) -> float:
        """Raises InputError for a precision that it does not have."""
        if precision not in self.peaks:
            raise InputError(f"{self.driver_name} has no {precision}; expected {', '.join(self.peaks)}")
        return self.peaks[precision] * 1e12


GPUS = {name: Gpu(**values) for name, values in tomllib.loads(FILE.read_text()).items()}


def named(name: str, node_gib: float | None = None) -> Gpu:
    """The kind of that name in any case, the first that begins with it (h100), or of a TOML file.

    Args: node_gib: CPU memory of the nodes; None: the server's. Raises InputError for an unknown name.
    """
    low = name.lower()
    found = next((GPUS[one] for one in GPUS if one == low or one.startswith(f"{low}-")), None)
    if low.endswith(".toml"):
        found = _from_file(Path(name))
    if not found:
        near = get_close_matches(low, GPUS, n=3, cutoff=0)
        raise InputError(f"--gpu {name}: unknown; the nearest are {', '.join(near)}; or give a FILE.toml of your own")
    if node_gib is not None and not 0 < node_gib < inf:
        raise InputError(f"--node-memory {node_gib:g}: expected more than 0 GiB")
    return replace(found, node_gib=found.node_gib if node_gib is None else node_gib)


def _from_file(path: Path) -> Gpu:
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"--gpu {path}: {error}; expected a file as tools/plan/{FILE.name}") from None
    names = [one.name for one in fields(Gpu)]
    kinds = {str: "text", bool: "flag", int: 1, float: 0.1}  # as deepspeed_keys.toml says; else tflops'
    peaks = dict.fromkeys(("fp8", "bf16", "fp16", "tf32", "fp32"), 0.1)
    values = checked(path, values, {one.name: kinds.get(one.type, peaks) for one in fields(Gpu)})
    missing = [name for name in names[: names.index("source")] if name not in values]
    if missing or not (values.get("tflops") or values["driver_name"] in PEAK_TFLOPS):
        raise InputError(f"{path}: expected {', '.join(missing) or 'tflops'}, as in {FILE.name}")
    return Gpu(**values)


def at_hand() -> str | None:
    """The table's name of this machine's GPU, by nvidia-smi; None without one, or of another type."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    names: set[str] = set()
    with suppress(subprocess.TimeoutExpired):  # a driver in trouble: no reason to stop a plan
        names = {*subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.splitlines()}
    return next((name for name, gpu in GPUS.items() if names == {gpu.driver_name}), None)
