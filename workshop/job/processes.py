"""Start and end the processes of a job; none outlives the process that started it. One job owns a run folder."""

import ctypes
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from workshop.record.errors import InputError

JOB_SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD]
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it; a blocked signal would come all the same
    JOB_SIGNALS.append(signal.SIGHUP)
LOOK_EVERY_S = 2  # at .control
KILL_AFTER_S = 10  # for processes that end neither by themselves nor after SIGTERM
# For a run folder's owner: ranks outlive a killed supervisor by at most KILL_AFTER_S, and take a moment to die.
WAIT_S = 2 * KILL_AFTER_S
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # of linux/prctl.h


def lead_job() -> None:
    """Let JOB_SIGNALS wait for `signal.sigwait`, so that none is lost and none interrupts.

    A descendant whose parent dies becomes this process's child, where `Ending.end_all` finds it.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # launch.sh ignores it while Python starts
    signal.pthread_sigmask(signal.SIG_BLOCK, JOB_SIGNALS)
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def received(signals: Collection[int], wait_s: float = 0) -> int:
    """Return one of these blocked signals as soon as it has come; 0 if none comes in time.

    It polls: if a wait of `sigtimedwait` is interrupted by SIGSTOP and SIGCONT, Python returns a number at random.
    """
    end_s = time.monotonic() + wait_s
    while not (got := signal.sigtimedwait(signals, 0)) and time.monotonic() < end_s:
        time.sleep(0.05)
    return got.si_signo if got else 0


def started(command: Sequence[str], dies_by: signal.Signals, **options: Any) -> subprocess.Popen[bytes]:
    """Start `command` in a session without terminal; when this process dies, it receives `dies_by`."""

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, dies_by)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, JOB_SIGNALS)

    return subprocess.Popen(command, start_new_session=True, preexec_fn=prepare, **options)


def is_running(process: subprocess.Popen[bytes]) -> bool:
    """Return False once it has ended. A stopped process (SIGSTOP) is continued: it could not report its end.

    Each change sends SIGCHLD, so a caller that asks after each signal misses none.
    """
    with suppress(ChildProcessError):  # it has ended
        if os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG):
            process.send_signal(signal.SIGCONT)
    return process.poll() is None


def exit_code(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code as a shell gives it: 143 after SIGTERM."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def descendants(spared: Collection[int] = ()) -> set[int]:
    """Return the ids of the living descendants, without the `spared` ones and their descendants."""
    parents, dead = {}, set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields, pid = file.read_bytes().rpartition(b")")[2].split(), int(file.parent.name)
            parents[pid] = int(fields[1])
            if fields[0] in (b"Z", b"X") and int(fields[17]) < 2:  # a dying process's threads keep its children
                dead.add(pid)
    descended, new = set(), {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in new and pid not in spared}:
        descended |= new
    return descended - dead


def launchers(spared: Collection[int] = ()) -> set[int]:
    """Return the ids of the descendants that give ranks their RANK, which W&B's process inherits; none without it.

    A launcher that is stopped (SIGSTOP) is continued: it might start no rank.
    """
    living, ranks = descendants(spared), set()
    for pid in living:
        with suppress(OSError):  # it has ended
            if b"\0RANK=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
                ranks.add(pid)
            else:
                os.kill(pid, signal.SIGCONT)
    return living - ranks if ranks else set()


def own_folder(run_dir: Path) -> int:
    """Return the descriptor of RUN_DIR/.owner, locked (flock) by this job until its last process is dead.

    The job's commands have this empty file as their standard input, and launchers pass it on to their ranks. So ranks
    keep the lock when their supervisor is killed. Processes on other nodes do not have it: SLURM ends a job on all its
    nodes before it queues it again. Raises InputError if another job keeps the lock for WAIT_S.
    """
    descriptor = os.open(run_dir / ".owner", os.O_RDWR | os.O_CREAT, 0o666)
    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise InputError(f"{run_dir}: its job still runs; expected a run that has ended") from None
            time.sleep(0.2)
        except OSError as error:
            print(f"warning: {run_dir}: {error.strerror} (flock): two jobs in it would not see each other", flush=True)
            return descriptor
