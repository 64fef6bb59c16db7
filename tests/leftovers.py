"""What a run that is over leaves beside its evidence: processes, locks, shared memory, requests. It should be nothing.

Other tests run at the same time, so a run's shared memory is told from theirs by a /dev/shm of its own.
"""

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path

import psutil

# What a run has in its folder only while an attempt runs; the stacks of a rank that was killed are evidence.
WHILE_IT_RUNS = (".reserve", "*.tmp", "*.lock", "*/unfinished")

CLONE_NEWNS = 0x20000  # of linux/sched.h: os.unshare comes with Python 3.12


@cache
def own_namespaces_allowed() -> bool:
    """True if a process can have its own hostname, mounts and process ids here."""
    probe = ["unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    return shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True).returncode == 0


def with_own_shm(shm: Path) -> list[str]:
    """What begins a command that shall have the folder `shm` as its /dev/shm; nothing where that is not allowed."""
    shm.mkdir(parents=True, exist_ok=True)
    if not own_namespaces_allowed():
        return []
    return ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /dev/shm && exec "$@"', str(shm)]


def take_own_shm(shm: Path) -> None:
    """Gives this process, and those that it starts from here on, shared memory of their own."""
    if own_namespaces_allowed():
        ctypes.CDLL(None).unshare(CLONE_NEWNS)
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "--bind", shm, "/dev/shm"], check=True)


def processes_of(run: Path) -> list[str]:
    """Command lines of the living processes that have the run's folder in their environment."""
    return list(commands_with("RUN_DIR", run).values())


def commands_with(variable: str, value: Path) -> dict[int, str]:
    """Command lines of the living processes with this variable in their environment, by process id."""
    found = psutil.process_iter(["environ", "cmdline"])  # None of one that has ended meanwhile
    mine = (process for process in found if (process.info["environ"] or {}).get(variable) == str(value))
    return {process.pid: " ".join([*process.info["cmdline"], ""]) for process in mine if process.info["cmdline"]}


def leftovers(run: Path, shm: Path) -> list[str]:
    """All of it, of a run whose /dev/shm is the folder `shm`."""
    files = [path for pattern in WHILE_IT_RUNS for path in run.glob(pattern)]
    files += [path for path in shm.rglob("*") if not path.is_dir()]
    inodes = {path.stat().st_ino for path in run.rglob("*") if path.is_file()}
    locks = Path("/proc/locks").read_text().splitlines()
    own = [lock for lock in locks if int(lock.split()[-3].split(":")[-1]) in inodes]
    return [*processes_of(run), *own, *map(str, files)]
