"""`python -m workshop.measure.doctor_probe [EXERCISE_OR_MODEL ...]`: the checks of `tools doctor` that need PyTorch.

One line of JSON, the last of standard output: for each check its `Finding` (tools/commands/doctor.py).
"""

import json
import os
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from workshop.settings.settings import is_tiny

Finding = tuple[str, str, str]  # status, text, fix


def torch_facts() -> dict[str, Any]:
    """Versions, and names of the GPUs that this process may use; driver: "" without one; warning: of an old driver."""
    import pynvml
    import torch

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        usable = torch.cuda.is_available()
    try:
        pynvml.nvmlInit()
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        driver = ""
    nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    return {
        "version": torch.__version__,
        "CUDA": torch.version.cuda,
        "NCCL": ".".join(map(str, torch.cuda.nccl.version())) if nccl else None,
        "driver": driver,
        "gpus": gpus if usable else [],
        "warning": str(said[0].message).splitlines()[0] if said else "",
    }


def torch(facts: dict[str, Any]) -> Finding:
    """Check that PyTorch sees this machine's GPUs, and has CUDA and NCCL for them."""
    gpus = ", ".join(f"{count} x {name}" for name, count in Counter(facts["gpus"]).items())
    parts = [f"{name} {facts[name] or 'not built in'}" for name in ("CUDA", "NCCL")]
    text = ", ".join([facts["version"], *parts, f"driver: {facts['driver'] or 'none'}", f"GPUs: {gpus or 'none'}"])
    if facts["driver"] and not (facts["CUDA"] and facts["NCCL"]):
        fix = f"{sys.executable} -m pip install --force-reinstall torch=={facts['version'].partition('+')[0]}"
        return "error", f"{text}: expected a build with CUDA and NCCL on a machine with GPUs", fix
    if gpus:
        return "ok", text, ""
    if facts["driver"]:
        why = facts["warning"] or "CUDA_VISIBLE_DEVICES hides them, or the driver is older than this CUDA"
        return "error", f"{text}: {why}", "nvidia-smi; echo $CUDA_VISIBLE_DEVICES"
    if "SLURM_JOB_ID" in os.environ:
        return "error", f"{text}: expected one in a job", "sinfo -o '%P %G'"
    text += ": training runs on the CPU; on a login node that is as it should be"
    return "warning", text, "sbatch --gpus-per-node=1 --wrap='python -m tools doctor'"


def operators() -> Finding:
    """Check DeepSpeed's operators for this device, and the compilers that they need."""
    import deepspeed  # noqa: F401  a broken installation is an error, whatever is compiled
    from torch.utils.cpp_extension import CUDA_HOME

    from workshop.kernels import operators

    missing, name = operators.missing(operators.EXERCISES), operators.folder().name
    lack = ""
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        lack = "C++ compiler (c++) on PATH"
    elif "-sm" in name and CUDA_HOME is None:
        lack = "CUDA toolkit (nvcc); set CUDA_HOME"
    if lack:
        text = f"there is no {lack}: DeepSpeed's operators are compiled with it"
        return "error" if missing else "warning", text, "module load gcc cuda; or: apt-get install g++"
    if not missing:
        return "ok", f"compiled for {name}", ""
    text = f"not compiled for {name}: {', '.join(missing)}; a first job would take minutes longer"
    return "warning", text, "python -m workshop.kernels.operators"


def cache(names: Sequence[str]) -> Finding:
    """Check that the cache has what `python -m workshop.data.prefetch NAMES` would see to."""
    from workshop.data import prefetch
    from workshop.data.hub import NOT_ON_HUB

    name = os.environ.get("MODEL_NAME", "")
    if not names and name and (name in NOT_ON_HUB or is_tiny(name)):
        return "ok", "nothing is needed from the hub", ""
    needed = dict.fromkeys(chain(*prefetch.by_exercise(names, os.environ).values()))
    if missing := [f"{need.kind} {need.name}" for need in needed if not need.cached()]:
        fix = f"{' '.join(['python -m workshop.data.prefetch', *names])}  (or without network: source tiny.env)"
        return "error", f"not in the cache, or not all of it: {', '.join(missing)}", fix
    return "ok", ", ".join(f"{need.kind} {need.name}" for need in needed), ""


def main(names: Sequence[str]) -> None:
    checks = {"torch": lambda: torch(torch_facts()), "operators": operators, "cache": partial(cache, names)}
    findings = {}
    for name, check in checks.items():
        try:
            findings[name] = check()
        except Exception as error:  # a package that cannot be imported must not cost the other checks
            findings[name] = "error", f"{type(error).__name__}: {error}".splitlines()[0], "make install"
    print(json.dumps(findings))


if __name__ == "__main__":
    main(sys.argv[1:])
