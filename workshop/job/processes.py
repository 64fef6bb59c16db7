"""Start and end the processes of a job; none outlives the process that started it."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

JOB_SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD]
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it; a blocked signal would come all the same
    JOB_SIGNALS.append(signal.SIGHUP)
LOOK_EVERY_S = 2  # at .control
KILL_AFTER_S = 10  # for processes that end neither by themselves nor after SIGTERM
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


def runs(process: subprocess.Popen[bytes]) -> bool:
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
    found, new = set(), {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in new and pid not in spared}:
        found |= new
    return found - dead


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
