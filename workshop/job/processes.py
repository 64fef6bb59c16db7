"""How a job starts its processes: on which nodes, and so that they end with the one that started them."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

JOB_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD)
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def wait_for_job_signals() -> None:
    """From here on JOB_SIGNALS wait for `signal.sigwait`, so none is lost and none interrupts anything."""
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # launch.sh ignores it while Python starts
    signal.pthread_sigmask(signal.SIG_BLOCK, JOB_SIGNALS)


def started(command: Sequence[str], dies_by: signal.Signals, **options: Any) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, out of a terminal's reach; this process's death sends it `dies_by`."""

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, dies_by)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, JOB_SIGNALS)

    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=prepare, **options)


def exit_code(process: subprocess.Popen[bytes]) -> int:
    """The exit code as a shell gives it: 143 after SIGTERM."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def one_per_node(node_command: Sequence[str], command: Sequence[str]) -> list[str]:
    """What starts `command` once on every node; `node_command` runs once on every real one, and starts it there."""
    nodes, job = int(os.environ["NNODES"]), "SLURM_JOB_ID" in os.environ
    if nodes == 1:
        return [*node_command, *command]
    if not job:
        return [*node_command, f"{os.environ['REPO']}/workshop/emulated_nodes.sh", *command]
    # srun does not know of the job's --cpus-per-task (since SLURM 22.05), and may bind to one processor.
    tasks = [f"--ntasks={nodes}", "--ntasks-per-node=1", "--cpu-bind=none", "--kill-on-bad-exit=1"]
    return ["srun", *tasks, *node_command, *command]
