"""DeepSpeed's compiled operators: those that are used, where they belong, and a job waits only for a living one."""

import multiprocessing
import os
import signal
import sysconfig
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
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "fused_adam", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_fused_adam() { return PyModule_Create(&module); }
"""


def load(variables: dict[str, str], output: Path) -> None:
    """In a process of its own, which leads a group."""
    from deepspeed.ops.op_builder.builder import OpBuilder

    os.setpgid(0, 0)
    with output.open("a") as said, redirect_stdout(said), redirect_stderr(said):
        os.environ.update(variables)
        operators.load(["fused_adam"])
        assert OpBuilder._loaded_ops["fused_adam"].answer() == 42


@pytest.mark.parametrize(("killed", "compilations"), [("it and its builder", 2), ("it alone", 1)])
def test_waiting_process_gets_a_whole_operator_when_the_one_that_compiles_is_killed(tmp_path, killed, compilations):
    """PyTorch would wait for ever for the lock file that the killed builder leaves."""
    gate, linked, output, source = (tmp_path / name for name in ("gate", "linked", "output", "small.cpp"))
    source.write_text(SOURCE)
    include, broken = sysconfig.get_paths()["include"], tmp_path / "broken"
    link = f"""echo >> {linked}
if [ -e {gate} ]; then while [ -e {gate} ]; do sleep 0.1; done; [ ! -e {broken} ] || exit 1; fi
exec c++ -shared -fPIC -I{include} {source} -o "${{@: -1}}" """
    program(
        tmp_path / "c++",
        f'case " $* " in *" -c "*) touch "${{@: -1}}"; exit;; *" -shared "*) {link};; esac\nexec c++ "$@"',
    )
    variables = {"CXX": f"{tmp_path}/c++", "TORCH_EXTENSIONS_DIR": f"{tmp_path}/extensions"}

    def times(number: int) -> bool:
        return linked.exists() and linked.read_text().count("\n") == number

    gate.touch()
    try:
        processes = [fork.Process(target=load, args=(variables, output)) for _ in range(2)]
        processes[0].start()
        wait_until(lambda: times(1))
        processes[1].start()
        wait_until(lambda: output.read_text().count("compiled by one process at a time") == 2)
        if compilations == 2:
            broken.touch()
            os.killpg(processes[0].pid, signal.SIGKILL)
        else:
            os.kill(processes[0].pid, signal.SIGKILL)
        processes[0].join()
    finally:
        gate.unlink()  # no compiler is left waiting
    processes[1].join(60)
    assert [process.exitcode for process in processes] == [-signal.SIGKILL, 0], output.read_text()
    assert times(compilations)


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
