"""The processes of a job: how many on how many nodes, where they meet, which GPUs they have."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping

from workshop.record.errors import InputError
from workshop.record.slurm_job import output_of
from workshop.settings.settings import has_gpu


def world(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which the job's processes find each other, for its launcher and env_vars.sh.

    Raises InputError for a shell that is on no node of its job, for more than one launcher, and for wrong numbers.
    """
    job = environ.get("SLURM_JOB_ID", "")
    if job and not environ.get("SLURMD_NODENAME"):  # salloc's shell is often on the login node
        raise InputError(f"this shell is on no node of job {job}; expected sbatch, or `srun --pty bash` before it")
    if (tasks := environ.get("SLURM_STEP_NUM_TASKS") or "1") != "1":
        raise InputError(f"srun starts {tasks} launchers; expected --ntasks=1")
    for name in ("GPUS_PER_NODE", "EMULATED_NODES"):
        if not re.fullmatch("[1-9][0-9]*", text := environ.get(name) or "1"):
            raise InputError(f"{name}='{text}': expected a whole number of at least 1")
    nodes = environ.get("SLURM_NNODES") or environ.get("EMULATED_NODES") or "1"
    hosts = "localhost"
    if job and nodes != "1":
        hosts = output_of(["scontrol", "show", "hostnames", environ["SLURM_JOB_NODELIST"]]).strip()
    run_id = job or environ["LAUNCHER_PID"]  # keeps two jobs' worlds apart
    return {
        "NNODES": nodes,
        "NPROC_PER_NODE": environ.get("SLURM_GPUS_ON_NODE") or environ.get("GPUS_PER_NODE") or "1",
        "SLURM_NODEID": environ.get("SLURM_NODEID") or "0",
        "DEEPSPEED_HOSTS": hosts,
        "MASTER_ADDR": hosts.split("\n")[0],  # the job's first node is this one
        "MASTER_PORT": str(_free_port(20000 + int(run_id) % 12000)),  # below the ephemeral ports
        "RDZV_ID": run_id,
    }


def _free_port(port: int) -> int:
    """Return this port or the next that nobody listens on, so two jobs on one node cannot meet."""
    while True:
        with socket.socket() as connection:
            if connection.connect_ex(("localhost", port)):
                return port
        port += 1


def share_of_node(environ: Mapping[str, str]) -> dict[str, str]:
    """Return each process's share of this node: its GPUs, and threads for an optimizer on the CPU.

    Raises InputError for more processes than GPUs.
    """
    nodes, per_node = int(environ["NNODES"]), int(environ["NPROC_PER_NODE"])
    job, given = environ.get("SLURM_JOB_ID"), environ.get("CUDA_VISIBLE_DEVICES")
    here = per_node if job and nodes > 1 else nodes * per_node
    most = _gpus(given or "")
    if most and here > most:
        of = f" in CUDA_VISIBLE_DEVICES={given}" if given else ""
        found = f"GPUS_PER_NODE={per_node}: {here} processes on this host, more than its GPUs{of}"
        raise InputError(f"{found}; expected at most {most} in all")
    processors = int(environ.get("SLURM_CPUS_ON_NODE") or len(os.sched_getaffinity(0)))
    # torchrun would give a process one thread, DeepSpeed all.
    found = {"OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS") or str(max(1, processors // here))}
    if not job:  # SLURM limits the job itself
        visible = map(str, range(100)) if given is None else given.split(",")
        found["CUDA_VISIBLE_DEVICES"] = ",".join([*visible][:here])
    return found


def _gpus(visible: str) -> int:
    """Return how many GPUs a job may use on this node; 0 where there is none, or nvidia-smi does not say."""
    if "MIG-" in visible:
        return 1  # CUDA shows a process only one slice
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        listed = ""
    present = len(re.findall("^GPU", listed, re.MULTILINE))
    named = len(re.split(r"[, ]+", visible)) if re.match("[0-9G]", visible) else 0
    if not present and not named and has_gpu({}):
        print("note: nvidia-smi lists no GPU beside NVIDIA's driver: their number is not checked", file=sys.stderr)
    return min(filter(None, (present, named)), default=0)
