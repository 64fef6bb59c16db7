"""`python -m workshop.job.node COMMAND...`: one node's share of a job, the command with the loggers beside it.

The loggers are commands of the launcher (GPU_LOGGER, CPU_LOGGER, PSS_LOGGER); this adds what differs by node. On
several nodes each file carries the node's name:

    gpu_memory.csv   of this job's GPUs
    cpu_memory.txt   of the command's process and its children
    cpu_pss.txt      the same

Older material stopped the loggers in another shell than the one that started them, so they ran on (erratum K11). Here
they end with the command, and the command with this process, whatever happens to either.

    python -m workshop.job.node --task-per-gpu COMMAND...

srun starts this once per GPU: the command learns its rank. The first task of a node has the loggers, for all its tasks.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import IO

from workshop.job.processes import JOB_SIGNALS, exit_code, started, wait_for_job_signals

KILL_AFTER_S = 10  # what does not end after SIGTERM is killed


def log_name(name: str) -> Path:
    """The file of this node's log `name`."""
    stem, suffix = name.split(".")
    host = f"-{socket.gethostname().split('.')[0]}" if int(os.environ.get("NNODES", "1")) > 1 else ""
    return Path(os.environ["RUN_DIR"]) / f"{stem}{host}.{suffix}"


def logger(variable: str, lacks: str) -> list[str]:
    """The command of a logger; empty, with a warning that says what is missing, where its program is not installed."""
    command = shlex.split(os.environ.get(variable, ""))
    if command and not shutil.which(command[0]):
        print(f"warning: {command[0]} not found: {lacks}", flush=True)
        return []
    return command


def start_loggers(pid: int) -> list[subprocess.Popen[bytes]]:
    """Loggers of process `pid` and of this job's GPUs; each dies with this process."""
    loggers = []
    if command := logger("GPU_LOGGER", "no GPU memory log"):
        log = log_name("gpu_memory.csv")
        if log.exists() and log.stat().st_size:  # the run goes on
            command = [word.replace("--format=csv", "--format=csv,noheader") for word in command]
        if devices := os.environ.get("CUDA_VISIBLE_DEVICES"):
            command += ["-i", devices]
        with log.open("ab") as out:
            loggers.append(started(command, signal.SIGKILL, stdout=out))
    if command := logger("CPU_LOGGER", "no CPU memory log (pip install -r requirements.txt)"):
        loggers.append(_start_psrecord([*command, str(pid)], log_name("cpu_memory.txt")))
    if command := logger("PSS_LOGGER", "no log of the proportional set size"):
        loggers.append(started([*command, str(pid), str(log_name("cpu_pss.txt"))], signal.SIGKILL))
    return loggers


def _start_psrecord(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """psrecord empties the file that it opens: a pipe keeps what an earlier attempt has logged."""
    reading, writing = os.pipe()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "pass_fds": [writing]}
    process = started([*command, "--log", f"/dev/fd/{writing}"], signal.SIGKILL, **quiet)
    os.close(writing)
    Thread(target=_append, args=(reading, log), daemon=True).start()
    Thread(target=_say_why_it_ended, args=(process.stderr,), daemon=True).start()
    return process


def _append(reading: int, log: Path) -> None:
    with open(reading, "rb", buffering=0) as pipe, log.open("ab", buffering=0) as file:
        while piece := pipe.read(1 << 16):
            file.write(piece)


def _say_why_it_ended(errors: IO[bytes]) -> None:
    if lines := errors.read().decode(errors="replace").strip().splitlines():  # one line: a traceback is the training's
        print(f"warning: psrecord ended, CPU memory is not logged: {lines[-1]}", flush=True)


def run(command: list[str], logged_pid: int | None = None) -> int:
    """The exit code of `command`. Args: logged_pid: of the process whose memory is logged; None: the command's."""
    wait_for_job_signals()
    training = started(command, signal.SIGKILL)
    loggers = start_loggers(logged_pid or training.pid)
    told = False
    while training.poll() is None:
        got = signal.sigtimedwait(JOB_SIGNALS, KILL_AFTER_S) if told else signal.sigwaitinfo(JOB_SIGNALS)
        if got is None:
            os.killpg(training.pid, signal.SIGKILL)
        elif got.si_signo in (signal.SIGTERM, signal.SIGINT):
            told = True
            os.killpg(training.pid, signal.SIGTERM)
    for process in loggers:
        process.terminate()
    for process in loggers:
        process.wait()
    return exit_code(training)


def main() -> None:
    words = [os.path.expandvars(word) for word in sys.argv[1:]]
    if words[0] != "--task-per-gpu":
        sys.exit(run(words))
    ranks = {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID", "WORLD_SIZE": "SLURM_NTASKS"}
    os.environ |= {name: os.environ[slurm] for name, slurm in ranks.items()}
    if os.environ["LOCAL_RANK"] == "0":
        sys.exit(run(words[1:], os.getppid()))  # slurmstepd, the parent of all tasks
    os.execvp(words[1], words[1:])


if __name__ == "__main__":
    main()
