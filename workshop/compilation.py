"""Compiling DeepSpeed's operators: said aloud, by one process at a time, and never waiting for one that is dead.

PyTorch's own lock is a file that stays when the process that compiles is killed: every later job waits for ever without
a word. Here a finished operator is one file, moved to its place as a whole: whoever finds it may load it, without a
lock. The lock only saves compiling twice, so that going on without it costs time and harms nothing.
"""

import errno
import fcntl
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import psutil
from tqdm import tqdm

from evidence.counted import counted
from workshop.errors import WorkshopError

BEAT_S = 1.0  # a process that compiles touches the lock that often
SILENT_S = 120.0  # and counts as dead after this: file systems over a network may show a touch a minute late
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # what file systems without locks answer


def library(folder: Path, builder: Any) -> Path:
    """Where the compiled operator of a DeepSpeed builder lies."""
    return folder / f"{builder.name}.so"


def compile_operators(
    builders: list[Any], folder: Path, variables: dict[str, str], silent_s: float = SILENT_S, quiet: bool = False
) -> None:
    """Compile the operators of `builders` that are not in `folder` yet, or wait until another process has done it.

    Args:
        builders: DeepSpeed's, each of which knows its sources and its compiler's flags.
        folder: of this environment and this device; any number of processes and nodes may share it.
        variables: of the environment, for the time of the compilation.
        silent_s: after this time without a sign of life the process that compiles counts as dead.
        quiet: wait without a word, because another rank of the same node says it.

    Raises WorkshopError with the compiler's last lines.
    """
    with (folder / ".lock").open("a+") as lock:
        take(lock, lambda: not _missing(builders, folder), silent_s, quiet)
        missing = _missing(builders, folder)  # somebody else may have compiled them meanwhile
        if missing:
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}")
            lock.flush()
            _compile(missing, folder, variables, beat=lambda: os.utime(lock.name))


def _missing(builders: list[Any], folder: Path) -> list[Any]:
    return [builder for builder in builders if not library(folder, builder).exists()]


def take(lock: TextIO, done: Callable[[], bool], silent_s: float, quiet: bool = False) -> None:
    """Wait until the lock is ours, or nobody needs it any more, or its holder gives no sign of life.

    The kernel frees the lock when its holder dies, and so does the server of a network file system. What neither sees
    is a node that died with the lock, or a process that stands still: their touches stop.
    """
    last_touch, seen_s, told = -1, time.monotonic(), quiet
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in NO_LOCKS:
                print(f"warning: {lock.name}: {error.strerror}; other nodes may compile the same operators", flush=True)
                return None
            if not isinstance(error, BlockingIOError):
                raise
        if done():
            return None
        touch = Path(lock.name).stat().st_mtime_ns
        if touch != last_touch:
            last_touch, seen_s = touch, time.monotonic()
        holder = Path(lock.name).read_text() or "another process"
        if time.monotonic() - seen_s > silent_s:
            print(f"{holder} has shown no sign of life for {silent_s:.0f} s: compiling in its place", flush=True)
            return None
        if not told:
            print(f"waiting for {holder}, which compiles DeepSpeed's operators in {folder_of(lock)}", flush=True)
            told = True
        time.sleep(BEAT_S / 2)


def folder_of(lock: TextIO) -> Path:
    return Path(lock.name).parent


def _compile(builders: list[Any], folder: Path, variables: dict[str, str], beat: Callable[[], None]) -> None:
    """Compile side by side, as many files at a time as there are processors, and move each result to its place."""
    wanted = os.environ.get("MAX_JOBS", "")  # PyTorch's own variable
    processors = max(1, int(wanted) if wanted.isdigit() else len(os.sched_getaffinity(0)))
    at_a_time = min(processors, len(builders))
    _remove_remains(folder)
    building = folder / f"building-{socket.gethostname()}-{os.getpid()}"
    building.mkdir()
    variables = variables | {"TORCH_EXTENSIONS_DIR": str(building), "MAX_JOBS": str(processors // at_a_time)}
    names = ", ".join(builder.name for builder in builders)
    print(
        f"compiling DeepSpeed's {names} with {counted(processors, 'processor')}: one to several minutes, "
        f"once per environment, into {folder}",
        flush=True,
    )
    for builder in builders:
        _drop_debug_information(builder)
    files = sum(len(builder.sources()) for builder in builders)
    try:
        with (
            _environment(variables),
            ThreadPoolExecutor(at_a_time) as pool,
            tqdm(total=files, desc="compiling", unit="file", mininterval=10) as bar,
        ):
            jobs: dict[Future[Any], Any] = {
                pool.submit(builder.jit_load, verbose=False): builder for builder in builders
            }
            waiting = set(jobs)
            while waiting:
                finished, waiting = wait(waiting, timeout=BEAT_S, return_when=FIRST_COMPLETED)
                beat()
                bar.update(len([*building.glob("*/*.o")]) - bar.n)
                for job in finished:
                    builder = jobs[job]
                    if error := job.exception():
                        pool.shutdown(wait=False, cancel_futures=True)
                        raise _failure(builder, folder, error)
                    (building / builder.name / f"{builder.name}.so").replace(library(folder, builder))
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _drop_debug_information(builder: Any) -> None:
    """It is a third of the compiler's time: 46 s of a processor for DeepSpeed's cpu_adam.cpp with -g, 29 s without."""
    arguments = builder.cxx_args
    builder.cxx_args = lambda: [argument for argument in arguments() if argument != "-g"]


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _remove_remains(folder: Path) -> None:
    """What killed processes of this node were compiling; a compiler that outlived one ends with its files."""
    for building in folder.glob(f"building-{socket.gethostname()}-*"):
        pid = int(building.name.rpartition("-")[2])
        if pid == os.getpid() or not _lives(pid):  # ours now: in containers the same numbers come again
            shutil.rmtree(building, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # killed, and its parent has not asked for it yet
    except psutil.NoSuchProcess:
        return False


def _failure(builder: Any, folder: Path, error: BaseException) -> WorkshopError:
    log = folder / f"{builder.name}.log"
    log.write_text(f"{error}\n")
    lines = [line for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "error: " in line] or lines[-1:]
    why = " (the compiler was killed, usually because memory ran out)" if "Killed" in causes[0] else ""
    return WorkshopError(f"cannot compile DeepSpeed's {builder.name}: {causes[0]}{why}; all of it: {log}")
