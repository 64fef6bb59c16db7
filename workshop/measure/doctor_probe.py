"""`python -m workshop.measure.doctor_probe [EXERCISE_OR_MODEL ...]`: what `tools doctor` cannot see without PyTorch.

One line of JSON, the last of standard output: a key per part, each with "problem" instead where that part fails.
"""

import json
import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from workshop.run_folder.settings import is_tiny

Facts = dict[str, Any]


def torch_facts() -> Facts:
    """Versions, and names of the GPUs that this process may use; warning: what CUDA said of an old driver."""
    import torch

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        usable = torch.cuda.is_available()
    nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "gpus": gpus if usable else [],
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if nccl else None,
        "warning": str(said[0].message).splitlines()[0] if said else "",
    }


def operator_facts() -> Facts:
    """Which of DeepSpeed's operators for this device are not compiled, and why they could not be."""
    from torch.utils.cpp_extension import CUDA_HOME

    from workshop.kernels import operators

    missing = operators.missing(operators.EXERCISES)
    no_compiler = ""
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        no_compiler = "there is no C++ compiler (c++) on PATH for DeepSpeed's operators"
    elif "-sm" in operators.build_name() and CUDA_HOME is None:
        no_compiler = "there is no CUDA toolkit (nvcc) for DeepSpeed's operators: set CUDA_HOME, or load it"
    return {"for": operators.build_name(), "missing": missing, "cuda_home": CUDA_HOME, "no_compiler": no_compiler}


def cache_facts(names: Sequence[str]) -> list[Facts]:
    """What `python -m workshop.data.prefetch NAMES` would see to, and whether the cache has it."""
    from workshop.data import prefetch
    from workshop.data.hub import NOT_ON_HUB

    name = os.environ.get("MODEL_NAME", "")
    if not names and name and (name in NOT_ON_HUB or is_tiny(name)):
        return []
    needed = dict.fromkeys(chain(*prefetch.by_exercise(names).values()))
    return [{"kind": one.kind, "name": one.name, "complete": bool(one.cached())} for one in needed]


def main(names: Sequence[str]) -> None:
    looks = {"torch": torch_facts, "operators": operator_facts, "cache": partial(cache_facts, names)}
    facts = {}
    for name, look in looks.items():
        try:
            facts[name] = look()
        except Exception as error:  # a package that cannot be imported must not cost the other parts
            facts[name] = {"problem": f"{type(error).__name__}: {error}".splitlines()[0]}
    print(json.dumps(facts))


if __name__ == "__main__":
    main(sys.argv[1:])
