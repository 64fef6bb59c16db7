"""DeepSpeed's compiled operators: those that are used, where they belong, and a job waits only for a living one."""

import multiprocessing
import os
import signal
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.launching import REPO, program, wait_until
from tests.trainings_on_ranks import Ranks, training
from workshop.kernels import operators

CONFIGS = REPO / "deepspeed-single-gpu" / "ds_configs"
fork = multiprocessing.get_context("fork")
SOURCE = """#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "small", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_small() { return PyModule_Create(&module); }
"""


def load(source: Path, variables: dict[str, str], output: Path) -> None:
    """In a process of its own: an operator of DeepSpeed's and PyTorch's kind that compiles in a second."""
    from deepspeed.git_version_info import installed_ops
    from deepspeed.ops.op_builder.all_ops import ALL_OPS
    from deepspeed.ops.op_builder.builder import OpBuilder
    from deepspeed.ops.op_builder.cpu.builder import CPUOpBuilder

    own = {"absolute_name": lambda self: self.name, "sources": lambda self: [str(source)]}
    own |= {"include_paths": lambda self: [], "cxx_args": lambda self: ["-O0", "-g"]}
    with output.open("a") as said, redirect_stdout(said), redirect_stderr(said):
        os.environ.update(variables)
        ALL_OPS["small"], installed_ops["small"] = type("SmallBuilder", (CPUOpBuilder,), own)("small"), False
        operators.load(["small"])
        assert OpBuilder._loaded_ops["small"].answer() == 42


def test_waiting_process_takes_over_when_the_one_that_compiles_is_killed(tmp_path: Path) -> None:
    """PyTorch would wait for ever for the lock file that the killed process leaves."""
    gate, compilations, output, source = (tmp_path / name for name in ("gate", "compilations", "output", "small.cpp"))
    source.write_text(SOURCE)
    held_up = f"echo >> {compilations}; while [ -e {gate} ]; do sleep 0.1; done"
    program(tmp_path / "c++", f'case " $* " in *" -c "*) {held_up};; esac\nexec c++ "$@"')
    variables = {"CXX": f"{tmp_path}/c++", "TORCH_EXTENSIONS_DIR": f"{tmp_path}/extensions"}
    folder = tmp_path / "extensions" / operators.build_name()

    def compiled(times: int) -> bool:
        return compilations.exists() and compilations.read_text().count("\n") == times

    gate.touch()
    try:
        processes = [fork.Process(target=load, args=(source, variables, output)) for _ in range(2)]
        processes[0].start()
        wait_until(lambda: compiled(1))
        assert [*folder.glob("building-*/small/lock")]
        processes[1].start()
        wait_until(lambda: output.read_text().count("compiled by one process at a time") == 2)
        os.kill(processes[0].pid, signal.SIGKILL)
        wait_until(lambda: compiled(2))
    finally:
        gate.unlink()  # no compiler is left waiting
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [-signal.SIGKILL, 0]
    assert not list(folder.glob("building-*")), "what the killed process left behind"


@pytest.mark.usefixtures("optimizers_compiled")
def test_deepspeed_takes_the_prepared_operators_and_compiles_nothing_itself(ranks: Ranks, tmp_path: Path) -> None:
    """Without a compiler, without ninja, and with an empty folder where it would compile."""
    code = f"""import json, os, sys, torch
from pathlib import Path
from workshop.kernels.operators import prepare_operators
prepare_operators(json.loads(Path(sys.argv[1]).read_text()))
prepare_operators({{"optimizer": {{"type": "AdamW"}}}})
os.environ |= {{"PATH": "/nowhere", "CXX": "/nowhere/c++", "TORCH_EXTENSIONS_DIR": "{tmp_path}/extensions"}}
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
for optimizer in (DeepSpeedCPUAdam, FusedAdam):
    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    optimizer([weight], lr=0.5).step()
    assert torch.allclose(weight, torch.full((4,), 0.5), atol=1e-3), weight
import deepspeed
deepspeed.init_distributed(dist_backend="gloo")
"""
    (tmp_path / "code.py").write_text(code)
    command = (tmp_path / "code.py", CONFIGS / "zero2_offload.json")
    ranks.train([training(tmp_path / "run", "deepspeed-single-gpu", command=command)], ranks=1)
    assert not (tmp_path / "extensions").exists()
