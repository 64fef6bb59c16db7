"""`python -m workshop.job.node COMMAND...`: run the command on one node, with the loggers beside it.

The launcher gives the loggers' commands (GPU_LOGGER, CPU_LOGGER, PSS_LOGGER): gpu_memory.csv is of this job's GPUs,
cpu_memory.txt and cpu_pss.txt of the command's process and its children. On several nodes the names have the node's.

Older material stopped the loggers in another shell than the one that had started them, so they ran on (erratum K11).
Here they end with the command, and the command with this process. No descendant outlives this process: neither ranks
of a killed launcher nor W&B's process. If this process is killed, its ranks end with the supervisor's next attempt, or
when SLURM ends what it finds of the step.

    python -m workshop.job.node --task-per-gpu COMMAND...

With this option srun starts one process per GPU. The command gets its rank; a node's first task runs the loggers.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO

from workshop.job import processes
from workshop.job.ending import Ending
from workshop.record.control import Control
from workshop.record.exercises import REPO, Start

ENDINGS = (signal.SIGTERM, signal.SIGINT)


def one_per_node(node_command: Sequence[str], command: Sequence[str], start: Start) -> list[str]:
    """Return the command that starts `command` on every node, by `node_command` on every real one."""
    if start.nodes == 1:
        return [*node_command, *command]
    if not start.job:
        return [*node_command, f"{REPO}/workshop/emulated_nodes.sh", *command]
    # srun does not know of the job's --cpus-per-task (since SLURM 22.05), and may bind to one processor.
    tasks = [f"--ntasks={start.nodes}", "--ntasks-per-node=1", "--cpu-bind=none", "--kill-on-bad-exit=1"]
    return ["srun", *tasks, *node_command, *command]


def log_name(name: str, environ: Mapping[str, str]) -> Path:
    """Return this node's file for the log `name`."""
    log = Path(environ["RUN_DIR"], name)
    several = Start.of(environ).nodes > 1
    return log.with_stem(f"{log.stem}-{socket.gethostname().split('.')[0]}") if several else log


def logger(written: str, log: str) -> list[str]:
    """Return a logger's command; [] and a warning where its program is not installed."""
    command = shlex.split(written)
    if command and not shutil.which(command[0]):
        print(f"warning: {command[0]} not found: no {log}", flush=True)
        return []
    return command


def start_loggers(pid: int, environ: Mapping[str, str]) -> list[subprocess.Popen[bytes]]:
    """Start the loggers of process `pid` and of this job's GPUs, which die with this process; a resumed run appends."""
    loggers = []
    if command := logger(environ.get("GPU_LOGGER", ""), "GPU memory log"):
        log = log_name("gpu_memory.csv", environ)
        if devices := environ.get("CUDA_VISIBLE_DEVICES"):
            command += ["-i", devices]
        loggers.append(processes.started(command, signal.SIGKILL, stdout=log.open("ab")))
    if command := logger(environ.get("CPU_LOGGER", ""), "CPU memory log"):
        # psrecord empties the file that it opens.
        log = log_name("cpu_memory.txt", environ)
        append = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log.open("ab"))
        pipe = append.stdin.fileno()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "pass_fds": [pipe]}
        psrecord = processes.started([*command, str(pid), "--log", f"/dev/fd/{pipe}"], signal.SIGKILL, **quiet)
        append.stdin.close()
        loggers += [psrecord, append]
        Thread(target=_say_why_it_ended, args=(psrecord.stderr,)).start()
    if command := logger(environ.get("PSS_LOGGER", ""), "log of the proportional set size"):
        log = log_name("cpu_pss.txt", environ)
        loggers.append(processes.started([*command, str(pid), str(log)], signal.SIGKILL))
    return loggers


def _say_why_it_ended(errors: IO[bytes]) -> None:
    if lines := errors.read().decode(errors="replace").strip().splitlines():  # one line: a traceback is the training's
        print(f"warning: psrecord ended, CPU memory is not logged: {lines[-1]}", flush=True)


def end_earlier(environ: Mapping[str, str]) -> None:
    """SIGKILL what a killed node process of this run has left on this node.

    Under srun no process of ours inherits its ranks, and SLURM's proctrack/linuxproc does not find them. They would
    train beside the next attempt's, or keep their GPU's memory.
    """
    mark = {f"RUN_DIR={environ['RUN_DIR']}", f"STARTED_BY_NODE={Start.of(environ).node}"}
    living = True
    while living:
        living = False
        for file in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended, or is another user's
                if mark <= set(os.fsdecode(file.read_bytes()).split("\0")):
                    os.kill(int(file.parent.name), signal.SIGKILL)
                    living = True
        if living:
            time.sleep(0.02)


def run_with_loggers(command: list[str], environ: Mapping[str, str], logged_pid: int | None = None) -> int:
    """Run `command`; return its exit code.

    Args: environ: the command's; logged_pid: process whose memory is logged; None: the command's.
    """
    end_earlier(environ)
    processes.lead_job()
    start = Start.of(environ)
    training = processes.started(command, signal.SIGKILL, env=dict(environ) | {"STARTED_BY_NODE": str(start.node)})
    loggers = start_loggers(logged_pid or training.pid, environ)
    control, saving = Control(Path(environ["RUN_DIR"])), False
    ending = Ending(control, start, [process.pid for process in loggers])
    while processes.is_running(training) and not ending.due():
        if processes.received(processes.JOB_SIGNALS, processes.LOOK_EVERY_S) not in ENDINGS:
            continue
        if "SLURM_STEP_ID" in environ and control.read().saves and not saving:
            saving = True  # SLURM has told every process of the step, and the ranks save (training/saving.py)
        else:
            ending.within(processes.KILL_AFTER_S)
            os.killpg(training.pid, signal.SIGTERM)
    for process in loggers:
        process.kill()  # SIGTERM does not end a logger that is stopped
        process.wait()
    while saving and not control.read().at_end and processes.descendants() and not processes.received(ENDINGS, 0.1):
        pass  # torchrun and deepspeed end their ranks half a minute after their own SIGTERM
    ending.end_all(lambda: processes.received(ENDINGS), processes.KILL_AFTER_S)
    ending.due()  # the other nodes read that this one's ranks have ended
    training.wait()
    return 1 if control.read().refused else processes.exit_code(training)


def on_own_gpus(command: list[str], gpus: str | None) -> list[str]:
    """Let a deepspeed command's ranks keep this node's CUDA_VISIBLE_DEVICES: DeepSpeed counts GPUs from 0.

    DeepSpeed's own options for GPUs take numbers only, not the UUID of a GPU or of a MIG slice.
    """
    if command[0] != "deepspeed" or gpus is None:
        return command
    script = next(index for index, word in enumerate(command) if word.endswith(".py"))
    rank = ["--no_python", "--no_local_rank", "env", f"CUDA_VISIBLE_DEVICES={gpus}", sys.executable, "-u"]
    return [*command[:script], *rank, *command[script:]]


def main() -> None:
    words = [os.path.expandvars(word) for word in sys.argv[1:]]
    if words[0] != "--task-per-gpu":
        command = on_own_gpus(words, os.environ.get("CUDA_VISIBLE_DEVICES"))
        sys.exit(run_with_loggers(command, os.environ))
    ranks = {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID", "WORLD_SIZE": "SLURM_NTASKS"}
    environ = os.environ | {name: os.environ[slurm] for name, slurm in ranks.items()}
    if environ["LOCAL_RANK"] == "0":
        sys.exit(run_with_loggers(words[1:], environ, os.getppid()))  # slurmstepd, the parent of all tasks
    os.execvpe(words[1], words[1:], environ)


if __name__ == "__main__":
    main()
