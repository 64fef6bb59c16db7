"""DeepSpeed's operators, its optimizers in C++ and CUDA, compiled once per Python environment and kind of node.

`python -m workshop.kernels.operators [NAME ...]` compiles, by default the exercises'; launchers do it first.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from workshop.private_names import loaded_operators, use_gloo_between_ranks
from workshop.record.errors import InputError
from workshop.settings.deepspeed_config import operators_of

EXERCISES = ("fused_adam", "cpu_adam")
BUILD = "import sys; from deepspeed.ops.op_builder.all_ops import ALL_OPS; ALL_OPS[sys.argv[1]].jit_load(verbose=False)"


def prepare_operators(config: dict | None) -> None:
    """Give DeepSpeed the operators that its configuration uses, compiled if necessary. Every rank calls it."""
    if config:
        use_gloo_between_ranks()
        load(operators_of(config))


def load(names: Sequence[str]) -> None:
    """Register these operators as loaded. DeepSpeed's loader waits for PyTorch's lock, which a killed rank leaves."""
    compile_missing(names)
    loaded = loaded_operators()
    for name in set(names) - loaded.keys():
        spec = importlib.util.spec_from_file_location(name, folder() / name / f"{name}.so")
        loaded[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def missing(names: Sequence[str]) -> list[str]:
    """Return those that are not compiled, or not to their end: PyTorch's lock stays where a compilation was killed."""
    base = folder()
    return [name for name in names if not (base / name / f"{name}.so").exists() or (base / name / "lock").exists()]


def folder() -> Path:
    """Return the environment's folder of operators for these versions and this device, processor and C library."""
    base = Path(sys.prefix, "torch_extensions")
    if not base.exists() and not os.access(sys.prefix, os.W_OK):
        base = Path("~/.cache/torch_extensions").expanduser()  # read-only: the user's
    versions = "-".join(f"{package}{importlib.metadata.version(package)}" for package in ("torch", "deepspeed"))
    features = re.search(r"^(?:flags|Features)\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processor = f"{platform.machine()} {features[1] if features else ''} {platform.libc_ver()}".encode()
    gpu = torch.cuda.get_device_capability() if torch.cuda.is_available() else ()
    name = f"py{sys.version_info.major}.{sys.version_info.minor}-{versions}-{'sm{}{}'.format(*gpu) if gpu else 'cpu'}"
    name = f"{name}-{hashlib.sha256(processor).hexdigest()[:8]}"
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or base).absolute() / name


def compile_missing(names: Sequence[str]) -> None:
    """Compile missing operators by DeepSpeed's builder, or wait until another process has. Raises InputError."""
    if not missing(names):
        return
    nvidia = importlib.util.find_spec("nvidia")  # PyTorch's wheels, one with the nccl.h that dc includes
    headers = [f"{path}/nccl/include" for path in (nvidia.submodule_search_locations if nvidia else [])]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # ninja lies beside python
    variables = {"TORCH_EXTENSIONS_DIR": str(folder()), "TORCH_CUDA_ARCH_LIST": ""}  # the builder asks the GPU
    variables |= {"PATH": path, "CPATH": ":".join([*headers, os.environ.get("CPATH", "")]).strip(":")}
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / ".lock").open("a") as lock:
        print(f"DeepSpeed's operators are compiled by one process at a time, for minutes, in {folder()}", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in missing(names):  # still: another process may have compiled it meanwhile
            print(f"compiling DeepSpeed's {name}, once per environment and kind of node", flush=True)
            (folder() / name / "lock").unlink(missing_ok=True)
            # As their stdin the builder and its compilers keep our lock, even if this process is killed.
            if subprocess.run([sys.executable, "-c", BUILD, name], stdin=lock, env=os.environ | variables).returncode:
                expected = 'a C++ compiler, for a GPU nvcc (`module load gcc cuda`), or "torch_adam": true in the JSON'
                raise InputError(f"cannot compile DeepSpeed's {name}, see above; expected {expected}")


if __name__ == "__main__":
    compile_missing(sys.argv[1:] or EXERCISES)
