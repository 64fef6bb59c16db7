"""DeepSpeed's compiled operators: those that are used, where they belong, and a job waits only for a living one."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.launching import REPO, program, wait_until
from workshop.kernels import operators
from workshop.run_folder.errors import InputError

CONFIGS = REPO / "deepspeed-single-gpu" / "ds_configs"
SOURCE = """#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "small", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_small() { return PyModule_Create(&module); }
"""


class Small:
    """An operator of DeepSpeed's and PyTorch's kind that compiles in a second, with a compiler that can be held up."""

    def __init__(self, folder: Path) -> None:
        self.extensions = folder / "extensions"
        self.folder = self.extensions / operators.build_name()
        self.source = folder / "small.cpp"
        self.source.write_text(SOURCE)
        self.compilations = folder / "compilations"
        self.gate = folder / "gate"
        self.output = folder / "output"
        self.compiler = folder / "c++"
        first = f"echo >> {self.compilations}; while [ -e {self.gate} ]; do sleep 0.1; done"
        program(self.compiler, f'case " $* " in *" -c "*) {first};; esac\nexec c++ "$@"')

    def register(self) -> None:
        """In this process DeepSpeed knows the operator."""
        from deepspeed.git_version_info import installed_ops
        from deepspeed.ops.op_builder.all_ops import ALL_OPS
        from deepspeed.ops.op_builder.cpu.builder import CPUOpBuilder

        small = self

        class SmallBuilder(CPUOpBuilder):
            def absolute_name(self) -> str:
                return self.name

            def sources(self) -> list[str]:
                return [str(small.source)]

            def include_paths(self) -> list[str]:
                return []

            def cxx_args(self) -> list[str]:
                return ["-O0", "-g"]

        ALL_OPS["small"], installed_ops["small"] = SmallBuilder("small"), False

    def start(self, **variables: str) -> BaseProcess:
        """Load it in a process of its own, whose output goes to the output file."""

        from deepspeed.ops.op_builder.builder import OpBuilder

        def run() -> None:
            with self.output.open("a") as output, redirect_stdout(output), redirect_stderr(output):
                os.environ.update({"CXX": str(self.compiler), "TORCH_EXTENSIONS_DIR": str(self.extensions)} | variables)
                self.register()
                try:
                    operators.load(["small"])
                    assert OpBuilder._loaded_ops["small"].answer() == 42
                except InputError as error:
                    print(f"error: {error}")
                    sys.exit(1)

        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        return process

    def compiled(self) -> int:
        """How often the compiler was started."""
        return len(self.compilations.read_text().splitlines()) if self.compilations.exists() else 0

    def said(self) -> str:
        return self.output.read_text() if self.output.exists() else ""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    small = Small(tmp_path)
    yield small
    small.gate.unlink(missing_ok=True)  # no compiler is left waiting


def ended(process: BaseProcess) -> int | None:
    process.join(60)
    return process.exitcode


def test_waiting_process_takes_over_when_the_one_that_compiles_is_killed(small: Small) -> None:
    """PyTorch would wait for ever for the lock file that the killed process leaves."""
    small.gate.touch()
    first = small.start()
    wait_until(small.compiled)
    assert [*small.folder.glob("building-*/small/lock")]
    second = small.start()
    wait_until(lambda: small.said().count("compiled by one process at a time") == 2)
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: small.compiled() == 2)
    small.gate.unlink()
    assert (ended(first), ended(second)) == (-signal.SIGKILL, 0)
    assert not list(small.folder.glob("building-*")), "what the killed process left behind"


@pytest.mark.usefixtures("optimizers_compiled")
def test_deepspeed_takes_the_prepared_operators_and_compiles_nothing_itself(tmp_path: Path) -> None:
    """Without a compiler, without ninja, and with an empty folder where it would compile."""
    code = f"""import json, os, sys, torch
from pathlib import Path
from workshop.kernels.operators import prepare_operators
prepare_operators(json.loads(Path(sys.argv[1]).read_text()))
prepare_operators({{"optimizer": {{"type": "AdamW"}}}})
os.environ |= {{"PATH": "/nowhere", "CXX": "/nowhere/c++", "TORCH_EXTENSIONS_DIR": {str(tmp_path)!r}}}
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
for optimizer in (DeepSpeedCPUAdam, FusedAdam):
    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    optimizer([weight], lr=0.5).step()
    assert torch.allclose(weight, torch.full((4,), 0.5), atol=1e-3), weight
import deepspeed
deepspeed.init_distributed(dist_backend="gloo")
"""
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    training = subprocess.run(
        [sys.executable, "-c", code, str(CONFIGS / "zero2_offload.json")],
        cwd=REPO,
        env=os.environ | one_rank,
        capture_output=True,
        text=True,
    )
    assert training.returncode == 0, training.stdout + training.stderr
    assert list(tmp_path.iterdir()) == []
