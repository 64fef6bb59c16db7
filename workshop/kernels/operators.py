"""Compile DeepSpeed's operators, its optimizers in C++ and CUDA, once per Python environment and kind of node.

    python -m workshop.kernels.operators [CONFIG]   those of a DeepSpeed JSON, or all; launchers do it first

DeepSpeed's builder compiles into the environment's folder (`.venv/torch_extensions`), or the user's cache where that is
read-only; TORCH_EXTENSIONS_DIR names another.
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
from typing import Any

from workshop.record.errors import InputError
from workshop.settings import deepspeed_config
from workshop.settings.json_file import read_json
from workshop.settings.settings import has_gpu

EXERCISES = ("fused_adam", "cpu_adam")
BUILD = "import sys; from deepspeed.ops.op_builder.all_ops import ALL_OPS; ALL_OPS[sys.argv[1]].jit_load(verbose=False)"


def prepare_operators(config: dict[str, Any] | None) -> None:
    """Give DeepSpeed the operators that its configuration uses, compiled if necessary. Every rank calls it."""
    if config:
        import deepspeed

        # Without a GPU it would compile collectives to connect the ranks of a node, which gloo connects as well.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        load(needed(config))


def of_file(path: Path) -> dict[str, Any]:
    """Return a DeepSpeed JSON under today's names, without settings; {} for another file."""
    config = read_json(path)
    return deepspeed_config.read(path, config, {}, 1)[0] if "zero_optimization" in config else {}


def needed(config: dict[str, Any]) -> list[str]:
    """Return the operators of this configuration: of its optimizer, if it is not PyTorch's, and of DeepCompile."""
    names = ["dc"] if config.get("compile", {}).get("deepcompile") else []
    offloaded = "offload_optimizer" in config.get("zero_optimization", {})
    if "optimizer" in config:
        if not config["optimizer"].get("params", {}).get("torch_adam"):
            names.append("cpu_adam" if offloaded else "fused_adam")
    elif offloaded and config.get("zero_force_ds_cpu_optimizer", True):
        names.append("cpu_adam")  # accelerate makes the Trainer's AdamW DeepSpeed's
    return names


def load(names: Sequence[str]) -> None:
    """Register these operators as loaded. DeepSpeed's loader waits for PyTorch's lock, which a killed rank leaves."""
    from deepspeed.ops.op_builder.builder import OpBuilder

    compile_missing(names)
    for name in set(names) - OpBuilder._loaded_ops.keys():  # DeepSpeed's own list
        if (path := folder() / name / f"{name}.so").exists():  # else DS_BUILD_OPS has installed it
            spec = importlib.util.spec_from_file_location(name, path)
            OpBuilder._loaded_ops[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)


def missing(names: Sequence[str]) -> list[str]:
    """Return the operators that were compiled neither here nor with DeepSpeed's installation (DS_BUILD_OPS)."""
    # PyTorch's lock stays where the compilation was killed.
    files = {name: folder() / name / f"{name}.so" for name in names}
    absent = [name for name, file in files.items() if not file.exists() or file.with_name("lock").exists()]
    if not absent:
        return []  # without DeepSpeed's import
    from deepspeed.git_version_info import installed_ops
    from deepspeed.ops.op_builder.all_ops import ALL_OPS  # those for this device

    return [name for name in absent if name in ALL_OPS and not installed_ops.get(name)]


def folder() -> Path:
    """Return the folder of this environment's operators for this kind of node."""
    own = Path(sys.prefix, "torch_extensions")
    writable = own.exists() or os.access(sys.prefix, os.W_OK)
    cache = Path("~/.cache/torch_extensions").expanduser()
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or (own if writable else cache)).absolute() / build_name()


def build_name() -> str:
    """Return a name of all that a compiled operator depends on: versions, device, processor and C library."""
    versions = "-".join(f"{package}{importlib.metadata.version(package)}" for package in ("torch", "deepspeed"))
    features = re.search(r"^(?:flags|Features)\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processor = f"{platform.machine()} {features[1] if features else ''} {platform.libc_ver()}"
    digest = hashlib.sha256(processor.encode()).hexdigest()[:8]
    device = "cpu"
    if has_gpu():
        import torch

        if torch.cuda.is_available():
            device = "sm{}{}".format(*torch.cuda.get_device_capability(int(os.environ.get("LOCAL_RANK", "0"))))
    return f"py{sys.version_info.major}.{sys.version_info.minor}-{versions}-{device}-{digest}"


def compile_missing(names: Sequence[str]) -> None:
    """Compile missing operators, or wait until another process has. Raises InputError."""
    if not missing(names):
        return
    nvidia = importlib.util.find_spec("nvidia")  # PyTorch's wheels, one with the nccl.h that dc includes
    headers = [f"{path}/nccl/include" for path in (nvidia.submodule_search_locations if nvidia else [])]
    environment = os.environ | {
        "TORCH_EXTENSIONS_DIR": str(folder()),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # ninja lies beside python
        "CPATH": ":".join([*headers, os.environ.get("CPATH", "")]).strip(":"),
        "TORCH_CUDA_ARCH_LIST": "",  # the builder asks the GPU
    }
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / ".lock").open("a") as lock:
        print(f"DeepSpeed's operators are compiled by one process at a time, in {folder()}", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in missing(names):  # still: another process may have compiled it meanwhile
            print(f"compiling DeepSpeed's {name}: 1 to 5 minutes, once per environment", flush=True)
            (folder() / name / "lock").unlink(missing_ok=True)  # PyTorch's, of a killed process
            # As their stdin the builder and its compilers keep our lock, even if this process is killed.
            if subprocess.run([sys.executable, "-c", BUILD, name], stdin=lock, env=environment).returncode:
                raise InputError(
                    f"cannot compile DeepSpeed's {name}, see above; expected a C++ compiler, for a GPU nvcc (often "
                    '`module load gcc cuda`), or "torch_adam": true in optimizer.params of the JSON: PyTorch\'s AdamW'
                )


def main() -> None:
    if sys.argv[1:]:
        compile_missing(needed(of_file(Path(sys.argv[1]))))
    else:
        compile_missing(EXERCISES)
        print(f"DeepSpeed's operators for this device are compiled: {build_name()}")


if __name__ == "__main__":
    main()
