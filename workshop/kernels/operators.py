"""Compile DeepSpeed's operators, its optimizers in C++ and CUDA, once per Python environment.

    python -m workshop.kernels.operators [CONFIG]   those of a DeepSpeed JSON, or all; launchers do it first

They lie in the environment's folder (`.venv/torch_extensions`), or in the user's cache where that is read-only;
TORCH_EXTENSIONS_DIR names another folder. There each version of Python, PyTorch and DeepSpeed and each kind of
processor and GPU has a subfolder. A file lock prevents compiling twice; unlike PyTorch's it is free when its holder
dies. A finished operator is renamed, so one that is found can be loaded.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from workshop.run_folder import deepspeed_config
from workshop.run_folder.errors import InputError
from workshop.run_folder.json_file import read_json
from workshop.run_folder.settings import has_gpu

EXERCISES = ("fused_adam", "cpu_adam")
BUILDING = f"building-{socket.gethostname()}-"


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
    compiler = ["dc"] * config.get("compile", {}).get("deepcompile", False)
    offloaded = "offload_optimizer" in config.get("zero_optimization", {})
    if "optimizer" not in config:  # accelerate makes the Trainer's AdamW DeepSpeed's where it is offloaded
        return compiler + ["cpu_adam"] * (offloaded and config.get("zero_force_ds_cpu_optimizer", True))
    own = not config["optimizer"].get("params", {}).get("torch_adam")
    return compiler + ["cpu_adam" if offloaded else "fused_adam"] * own


def load(names: Sequence[str]) -> None:
    """Register these operators as loaded, so that DeepSpeed does not compile them."""
    from deepspeed.ops.op_builder.builder import OpBuilder

    compile_missing(names)
    for name in names:
        if name not in OpBuilder._loaded_ops and (path := find(name)):  # DeepSpeed's own list
            spec = importlib.util.spec_from_file_location(name, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            OpBuilder._loaded_ops[name] = module


def missing(names: Sequence[str]) -> list[str]:
    """Return the operators that were compiled neither here nor with DeepSpeed's installation (DS_BUILD_OPS)."""
    absent = [name for name in names if find(name) is None]
    if not absent:
        return []  # without DeepSpeed's import
    from deepspeed.git_version_info import installed_ops
    from deepspeed.ops.op_builder.all_ops import ALL_OPS  # those for this device

    return [name for name in absent if name in ALL_OPS and not installed_ops.get(name)]


def find(name: str) -> Path | None:
    return next((path for folder in folders() if (path := folder / f"{name}.so").exists()), None)


def folders() -> list[Path]:
    """Return folders for this environment's operators for this device; the first writable one gets them."""
    if chosen := os.environ.get("TORCH_EXTENSIONS_DIR"):
        return [Path(chosen).absolute() / build_name()]
    own = sys.prefix != sys.base_prefix or Path(sys.prefix, "conda-meta").exists()  # the system's Python gets none
    roots = [*([Path(sys.prefix).resolve()] if own else []), Path("~/.cache").expanduser()]
    return [root / "torch_extensions" / build_name() for root in roots]


def build_name() -> str:
    """Return a name of all that a compiled operator depends on: versions, device, processor and C library."""
    versions = "-".join(f"{package}{importlib.metadata.version(package)}" for package in ("torch", "deepspeed"))
    architecture = gpu_architecture()
    device = f"sm{architecture.replace('.', '')}" if architecture else "cpu"
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    features = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    digest = hashlib.sha256(f"{platform.machine()} {features} {platform.libc_ver()}".encode()).hexdigest()[:8]
    return f"py{sys.version_info.major}.{sys.version_info.minor}-{versions}-{device}-{digest}"


def gpu_architecture() -> str | None:
    """Return the compute capability of this rank's GPU, such as 9.0; None without a GPU."""
    if not has_gpu():
        return None
    import torch

    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    return "{}.{}".format(*torch.cuda.get_device_capability(local_rank)) if torch.cuda.is_available() else None


def compile_missing(names: Sequence[str]) -> None:
    """Compile missing operators, or wait until another process has. Raises InputError with the cause."""
    if not missing(names):
        return
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / ".lock").open("a")
            break
        except OSError:
            continue
    else:
        raise InputError(f"cannot write {folder}; expected TORCH_EXTENSIONS_DIR=a folder for DeepSpeed's operators")
    with lock:
        try:
            print(f"DeepSpeed's operators are compiled by one process at a time, in {folder}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
            for remains in folder.glob(f"{BUILDING}*"):  # of killed processes, with PyTorch's lock file
                shutil.rmtree(remains, ignore_errors=True)
        except OSError as error:
            print(f"warning: {folder}: {error.strerror}; others may compile the same operators", flush=True)
        if absent := missing(names):  # still: another process may have compiled them meanwhile
            check_compiler(absent)
            compile_into(folder, absent)


def check_compiler(names: Sequence[str]) -> None:
    """Raises InputError where the C++ compiler is missing, or nvcc beside a GPU."""
    from torch.utils.cpp_extension import CUDA_HOME

    if shutil.which(os.environ.get("CXX", "c++")) is None:
        lack = "C++ compiler (c++) on PATH; install one (Debian: g++; on a cluster often `module load gcc`)"
    elif gpu_architecture() and CUDA_HOME is None:
        lack = "CUDA toolkit (nvcc); load it (often `module load cuda`) or set CUDA_HOME"
    else:
        return
    raise InputError(
        f"DeepSpeed's {', '.join(names)} must be compiled and there is no {lack}, "
        'or set "torch_adam": true in optimizer.params of the JSON, which uses PyTorch\'s own AdamW'
    )


def compile_into(folder: Path, names: Sequence[str]) -> None:
    """Compile in a temporary folder, and move each result to `folder`."""
    from deepspeed.ops.op_builder.all_ops import ALL_OPS

    before = dict(os.environ)
    with TemporaryDirectory(prefix=BUILDING, dir=folder, ignore_cleanup_errors=True) as building:
        os.environ["TORCH_EXTENSIONS_DIR"] = building
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"  # ninja lies beside python
        if nvidia := importlib.util.find_spec("nvidia"):  # PyTorch's wheels, one with the nccl.h that dc includes
            headers = [f"{folder}/nccl/include" for folder in nvidia.submodule_search_locations]
            os.environ["CPATH"] = ":".join(headers + [path for path in [os.environ.get("CPATH")] if path])
        if architecture := gpu_architecture():
            # For the GPU of this node, whatever is preset: DeepSpeed's builder cannot read values such as 9.0a.
            if (preset := os.environ.get("TORCH_CUDA_ARCH_LIST", architecture)) != architecture:
                print(f"TORCH_CUDA_ARCH_LIST={preset} does not count: compiling for this node's GPU, {architecture}")
            os.environ["TORCH_CUDA_ARCH_LIST"] = architecture
        try:
            for number, name in enumerate(names, start=1):
                start_s, builder = time.monotonic(), ALL_OPS[name]
                label = f"compiling DeepSpeed's {name} ({number} of {len(names)})"
                print(f"{label}: 1 to 5 minutes, once per environment, into {folder}", flush=True)
                # -g is a third of the compiler's time: 46 s of a processor for cpu_adam.cpp with it, 29 s without.
                builder.cxx_args = lambda flags=builder.cxx_args: [flag for flag in flags() if flag != "-g"]
                builder.jit_load(verbose=False)
                Path(building, name, f"{name}.so").replace(folder / f"{name}.so")
                print(f"compiled {name} in {time.monotonic() - start_s:.0f} s, once per environment", flush=True)
        except Exception as error:
            (log := folder / f"{name}.log").write_text(f"{error}\n")
            lines = str(error).strip().splitlines() or [repr(error)]
            cause = next((line for line in lines if "error: " in line), lines[-1])
            raise InputError(f"cannot compile DeepSpeed's {name}: {cause}; all of it: {log}") from None
        finally:
            os.environ.clear()
            os.environ.update(before)


def main() -> None:
    if sys.argv[1:]:
        compile_missing(needed(of_file(Path(sys.argv[1]))))
    else:
        compile_missing(EXERCISES)
        print(f"DeepSpeed's operators for this device are compiled: {build_name()}")


if __name__ == "__main__":
    main()
