"""A job waits for a compilation only as long as somebody compiles."""

import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.launching import PATH
from workshop.compilation import compile_operators
from workshop.errors import WorkshopError
from workshop.operators import load_library

SOURCE = """#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "small", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_small() { return PyModule_Create(&module); }
"""


def small_builder(source: Path) -> object:
    """DeepSpeed's and PyTorch's way to compile, on a source that takes less than a second."""
    from deepspeed.ops.op_builder.cpu.builder import CPUOpBuilder  # seconds, which only these tests shall take

    class SmallBuilder(CPUOpBuilder):
        def absolute_name(self) -> str:
            return self.name

        def sources(self) -> list[str]:
            return [str(source)]

        def include_paths(self) -> list[str]:
            return []

        def cxx_args(self) -> list[str]:
            return ["-O0", "-g"]

    return SmallBuilder("small")


class Compiling:
    """A folder for the operator, and processes that compile it there with a compiler that can be held up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "operators"
        self.folder.mkdir()
        self.source = folder / "small.cpp"
        self.source.write_text(SOURCE)
        self.compilations = folder / "compilations"
        self.gate = folder / "gate"
        self.compiler = folder / "c++"
        wait = (
            f'case " $* " in *" -c "*) echo >> {self.compilations}; while [ -e {self.gate} ]; do sleep 0.1; done;; esac'
        )
        self.write_compiler(wait)
        self.output = folder / "output"
        self.variables = {"PATH": PATH, "CXX": str(self.compiler)}

    def write_compiler(self, first: str) -> None:
        self.compiler.write_text(f'#!/bin/bash\n{first}\nexec c++ "$@"\n')
        self.compiler.chmod(0o755)

    def hold(self) -> None:
        self.gate.touch()

    def go_on(self) -> None:
        self.gate.unlink(missing_ok=True)

    def start(self, silent_s: float = 60) -> BaseProcess:
        """Compile in a process of its own, whose output goes to the output file."""
        builder = small_builder(self.source)

        def run() -> None:
            with self.output.open("a") as output, redirect_stdout(output), redirect_stderr(output):
                try:
                    compile_operators([builder], self.folder, self.variables, silent_s)
                except WorkshopError as error:
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

    def answer(self) -> int:
        return load_library(self.folder / "small.so").answer()


@pytest.fixture
def compiling(tmp_path: Path) -> Iterator[Compiling]:
    compiling = Compiling(tmp_path)
    yield compiling
    compiling.go_on()  # no compiler is left waiting


def wait_until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def ended(process: BaseProcess) -> int | None:
    process.join(60)
    return process.exitcode


def test_operator_is_compiled_once_and_two_that_ask_at_the_same_time_both_get_it(compiling: Compiling) -> None:
    compiling.hold()
    first = compiling.start()
    wait_until(compiling.compiled)
    second = compiling.start()
    wait_until(lambda: f"waiting for process {first.pid} on " in compiling.said())
    compiling.go_on()
    assert (ended(first), ended(second)) == (0, 0)
    assert compiling.answer() == 42
    assert compiling.compiled() == 1
    assert b".debug_info" not in (compiling.folder / "small.so").read_bytes(), "a third of the compiler's time"
    assert ended(compiling.start()) == 0
    assert compiling.compiled() == 1


def test_waiting_process_takes_over_when_the_one_that_compiles_is_killed(compiling: Compiling) -> None:
    compiling.hold()
    first = compiling.start()
    wait_until(compiling.compiled)
    second = compiling.start()
    wait_until(lambda: "waiting for" in compiling.said())
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: compiling.compiled() == 2)
    compiling.go_on()
    assert (ended(first), ended(second)) == (-signal.SIGKILL, 0)
    assert compiling.answer() == 42
    assert not list(compiling.folder.glob("building-*")), "what the killed process left behind"


def test_lock_that_a_dead_node_still_holds_is_not_waited_for(compiling: Compiling) -> None:
    """Seen from another node that is a lock without a sign of life, as of a process that stands still."""
    compiling.hold()
    first = compiling.start()
    wait_until(compiling.compiled)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        second = compiling.start(silent_s=2)
        wait_until(lambda: "has shown no sign of life for 2 s: compiling in its place" in compiling.said())
        compiling.go_on()
        assert ended(second) == 0
        assert compiling.answer() == 42
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert ended(first) == 0, "that its result is there already does not disturb the first"
    assert compiling.answer() == 42


def test_lock_file_that_pytorch_left_behind_is_nobodys_business(compiling: Compiling) -> None:
    (compiling.folder / "small").mkdir()
    (compiling.folder / "small" / "lock").touch()
    assert ended(compiling.start()) == 0
    assert compiling.answer() == 42


def test_failed_compilation_names_the_line_and_leaves_nothing_that_blocks_the_next(compiling: Compiling) -> None:
    compiling.source.write_text(SOURCE.replace("answer, METH_NOARGS", "anwser, METH_NOARGS"))
    assert ended(compiling.start()) == 1
    message = r"error: cannot compile DeepSpeed's small: .*small\.cpp:3:.* error: .*anwser.*; all of it: .*small\.log"
    assert re.search(message, compiling.said())
    assert "anwser" in (compiling.folder / "small.log").read_text()
    compiling.source.write_text(SOURCE)
    assert ended(compiling.start()) == 0
    assert compiling.answer() == 42


def test_compiler_that_is_killed_for_want_of_memory_is_called_so(compiling: Compiling) -> None:
    killed = 'echo "c++: fatal error: Killed signal terminated program cc1plus"; exit 1'
    compiling.write_compiler(f'case " $* " in *" -c "*) {killed};; esac')
    assert ended(compiling.start()) == 1
    assert "(the compiler was killed, usually because memory ran out)" in compiling.said()
