"""DeepSpeed's operators, its optimizers in C++ and CUDA: compiled once per Python environment, not in every job anew.

    prepare_operators(config)         in a train.py: what this configuration uses
    python -m workshop.operators      beforehand: what the exercises use on this device; `make test` does it
    python -m workshop.operators --check    only say whether they are there

They lie in the environment's own folder (`.venv/torch_extensions`), or in the user's cache where the environment is
read-only and nobody has compiled them there; TORCH_EXTENSIONS_DIR names another place. Below it, each version of
Python, PyTorch and DeepSpeed and each kind of processor and GPU has a folder: nodes that differ can share a home.
"""

import argparse
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workshop.compilation import compile_operators, library
from workshop.errors import WorkshopError

# DeepSpeed's optimizers that are compiled: where the optimizer computes on the device, and where it is offloaded.
BUILDERS = {
    "adam": ("FusedAdamBuilder", "CPUAdamBuilder"),
    "adamw": ("FusedAdamBuilder", "CPUAdamBuilder"),
    "lion": ("FusedLionBuilder", "CPULionBuilder"),
    "lamb": ("FusedLambBuilder", "FusedLambBuilder"),
    "adagrad": (None, "CPUAdagradBuilder"),
}
EXERCISES = ("FusedAdamBuilder", "CPUAdamBuilder")


def prepare_operators(config: dict[str, Any] | None) -> None:
    """Have what this DeepSpeed configuration uses compiled, and hand it to DeepSpeed. Nothing to do without one.

    Every rank calls it: the first of a node compiles, the others wait.
    """
    if config:
        talk_over_gloo()
        load(needed(config))


def needed(config: dict[str, Any]) -> list[str]:
    """The builder of the optimizer that this configuration uses, if it is one that is compiled."""
    optimizer = config.get("optimizer", {})
    if not optimizer or optimizer.get("params", {}).get("torch_adam"):
        return []
    offload = config.get("zero_optimization", {}).get("offload_optimizer") or {}
    offloaded = offload.get("device", "none") != "none"
    builder = BUILDERS.get(optimizer["type"].lower(), (None, None))[offloaded]
    return [builder] if builder else []


def talk_over_gloo() -> None:
    """Without a GPU DeepSpeed would compile collectives of its own, for ranks of one node, just to connect the ranks.

    They cost as much compilation as an optimizer, and gloo is there anyway: on a CPU the exercises show what happens,
    not how fast.
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def load(names: Sequence[str]) -> None:
    """Compile what is missing and let DeepSpeed take all of them as loaded, so that it does not compile itself."""
    builders = missing(names)
    if builders:
        check_compiler(builders)
        quiet = os.environ.get("LOCAL_RANK", "0") != "0"
        compile_operators(builders, writable_folder(), variables(), quiet=quiet)
    for builder in uninstalled(names):
        if builder.name not in builder._loaded_ops:  # DeepSpeed's own list of what it has loaded
            builder._loaded_ops[builder.name] = load_library(find(builder))


def uninstalled(names: Sequence[str]) -> list[Any]:
    """DeepSpeed's builders, without those whose operators were compiled when DeepSpeed was installed (DS_BUILD_OPS)."""
    from deepspeed.accelerator import get_accelerator
    from deepspeed.git_version_info import installed_ops

    builders = [get_accelerator().create_op_builder(name) for name in names]
    return [builder for builder in builders if not installed_ops.get(builder.name)]


def missing(names: Sequence[str]) -> list[Any]:
    """The builders whose operators are compiled nowhere yet."""
    return [builder for builder in uninstalled(names) if find(builder) is None]


def find(builder: Any) -> Path | None:
    return next((path for folder in folders() if (path := library(folder, builder)).exists()), None)


def load_library(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise WorkshopError(f"{path}: cannot be loaded ({error}); delete it, and it is compiled again") from None
    return module


def folders() -> list[Path]:
    """Where this environment's operators for this device may lie: the first place that can be written gets them."""
    from torch.utils.cpp_extension import get_default_build_root

    if chosen := os.environ.get("TORCH_EXTENSIONS_DIR"):
        return [Path(chosen).absolute() / build_name()]
    environment = Path(sys.prefix).resolve()  # of a venv or conda; the system's Python is no place for it
    own = sys.prefix != sys.base_prefix or (environment / "conda-meta").exists()
    roots = [*([environment / "torch_extensions"] if own else []), Path(get_default_build_root())]
    return [root / build_name() for root in roots]


def writable_folder() -> Path:
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if all(os.access(path, os.W_OK) for path in (folder, folder / ".lock") if path.exists()):
            return folder
    raise WorkshopError(
        f"DeepSpeed's operators have to be compiled, but {' and '.join(map(str, folders()))} cannot be written; "
        "expected TORCH_EXTENSIONS_DIR=a folder that can"
    )


def build_name() -> str:
    """What a compiled operator depends on: versions, the device, and the processor's features (-march=native)."""
    import deepspeed

    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(processor_features().encode()).hexdigest()[:8]
    return f"{python}-torch{torch.__version__}-deepspeed{deepspeed.__version__}-{device()}-{digest}"


def processor_features() -> str:
    """What the compiler may use of this node, and the C library, which differs between a container and its host."""
    information = Path("/proc/cpuinfo")
    text = information.read_text() if information.exists() else ""
    features = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return f"{platform.machine()} {features[1] if features else platform.processor()} {platform.libc_ver()}"


def device() -> str:
    """`cpu`, or the GPU's compute capability, such as `sm90`."""
    architecture = gpu_architecture()
    return f"sm{architecture.replace('.', '')}" if architecture else "cpu"


def gpu_architecture() -> str | None:
    """The compute capability of this rank's GPU, such as 9.0; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(int(os.environ.get("LOCAL_RANK", "0")))
    return f"{major}.{minor}"


def variables() -> dict[str, str]:
    """Of the environment in which the operators are compiled."""
    found = {"PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"}  # ninja lies beside python
    if architecture := gpu_architecture():
        # For the GPU of this node, whatever is preset: DeepSpeed's builder cannot read values such as 9.0a.
        preset = os.environ.get("TORCH_CUDA_ARCH_LIST", architecture)
        if preset != architecture:
            print(f"TORCH_CUDA_ARCH_LIST={preset} does not count here: compiling for this node's GPU, {architecture}")
        found["TORCH_CUDA_ARCH_LIST"] = architecture
    return found


def check_compiler(builders: list[Any]) -> None:
    """Raises WorkshopError where the C++ compiler is missing, or nvcc for an operator on the GPU."""
    from deepspeed.ops.op_builder.builder import CUDAOpBuilder
    from torch.utils.cpp_extension import CUDA_HOME

    names = ", ".join(builder.name for builder in builders)
    way_out = 'or set "torch_adam": true in optimizer.params of the JSON, which uses PyTorch\'s own AdamW'
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        raise WorkshopError(
            f"DeepSpeed's {names} must be compiled and there is no C++ compiler (c++) on PATH; "
            f"install one (Debian: g++; on a cluster often `module load gcc`), {way_out}"
        )
    if CUDA_HOME is None and any(isinstance(builder, CUDAOpBuilder) for builder in builders):
        raise WorkshopError(
            f"DeepSpeed's {names} must be compiled and there is no CUDA toolkit (nvcc); "
            f"load it (often `module load cuda`) or set CUDA_HOME, {way_out}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compile nothing; exit code 1 if something is missing")
    options = parser.parse_args()
    if options.check:
        if absent := ", ".join(builder.name for builder in missing(EXERCISES)):
            raise WorkshopError(f"DeepSpeed's {absent}: not compiled yet; run `python -m workshop.operators` once")
        return
    load(EXERCISES)
    print(f"DeepSpeed's operators for this device are compiled: {build_name()}")


if __name__ == "__main__":
    main()
