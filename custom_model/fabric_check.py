"""Measure the bandwidth between all GPUs of a job before it trains; multi_node.slurm runs it first.

    python -m custom_model.fabric_check torchrun …     nccl.log from all ranks, then the verdict: exit code 0, 44 or 46
    torchrun … -m custom_model.fabric_check            started by this on every rank

torch measures what NVIDIA's nccl-tests measure, and prints it as they do. A network that does not answer must not hold
the nodes for the job's whole time (FABRIC_TIMEOUT_S).

All ranks are one world. Older material starts all_reduce_perf once per GPU without MPI: each process is then a world of
its own, talks to nobody and reports a meaningless bandwidth (erratum K12).
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from custom_model.settings import CustomSettings
from workshop.job.node import one_per_node
from workshop.job.processes import started
from workshop.run_folder import nccl_log
from workshop.run_folder.collectives import bus_factor
from workshop.run_folder.errors import LogError
from workshop.run_folder.plural import counted

CANNOT_MEASURE, TOO_SLOW = 44, 46
REDUCTIONS = {"all_reduce": "sum", "all_gather": "none", "reduce_scatter": "sum"}
HEADING = """\
#                                                                     out of place                             in place
#       size         count   type redop  root       time    algbw    busbw  #wrong       time    algbw    busbw  #wrong
#        (B)    (elements)                          (us)   (GB/s)   (GB/s)               (us)   (GB/s)   (GB/s)"""


def measure(settings: CustomSettings) -> None:
    """Time the collectives over the sizes, on every rank; rank 0 writes nccl.log, line by line."""
    import torch  # here and below: the process that starts the ranks and judges does not wait for it
    import torch.distributed as dist

    local_rank = int(os.environ["LOCAL_RANK"])
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo", device_id=device if gpu else None)

    name = torch.cuda.get_device_name(device) if gpu else "CPU (gloo)"
    rank, process, host = dist.get_rank(), os.getpid(), socket.gethostname()
    here = f"#  Rank {rank:2d} Group  0 Pid {process:6d} on {host} device {local_rank:2d} {name}"
    ranks: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(ranks, here)
    with Path(settings.run_dir / "nccl.log" if rank == 0 else os.devnull).open("w", buffering=1) as log:
        print(f"# torch.distributed {torch.__version__}, {dist.get_backend()}", *ranks, HEADING, sep="\n", file=log)
        for collective in REDUCTIONS:
            print(f"# Collective test starting: {collective}_perf", file=log)
            mib = 1
            while mib <= settings.fabric_max_mib:
                print(measure_size(collective, mib, settings, device), file=log)
                mib *= 4
    dist.destroy_process_group()


def measure_size(collective: str, mib: int, settings: CustomSettings, device: Any) -> str:
    """Return one line of results. An all-gather's size is that of its result, a reduce-scatter's that of its input."""
    import torch
    import torch.distributed as dist

    # A multiple of the ranks, so that all shares are equal. Zeros stay zeros however often they are added.
    world_size = dist.get_world_size()
    count = mib * 2**20 // 4 // world_size
    whole, share = torch.zeros(count * world_size, device=device), torch.zeros(count, device=device)
    call = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, share),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(share, whole),
    }[collective]
    synchronize = torch.get_device_module(device).synchronize
    for _ in range(settings.fabric_warmup):
        call()
    synchronize()
    dist.barrier()
    start_s = time.perf_counter()
    for _ in range(settings.fabric_iterations):
        call()
    synchronize()
    time_s = torch.tensor((time.perf_counter() - start_s) / settings.fabric_iterations, device=device)
    dist.all_reduce(time_s, op=dist.ReduceOp.MAX)  # the slowest rank's
    return row(collective, whole.nbytes, time_s.item(), world_size)


def row(collective: str, size: int, seconds: float, world_size: int) -> str:
    """Return one line of results; the half that was not measured, out of place or in place, is N/A."""
    algbw = size / seconds / 1e9
    busbw = algbw * bus_factor(collective.replace("_", "-"), world_size)
    measured = f"{seconds * 1e6:11.2f}{algbw:9.3f}{busbw:9.3f}     N/A"
    other = "        N/A      N/A      N/A     N/A"
    both = other + measured if collective == "all_reduce" else measured + other
    return f"{size:12}{size // 4:14}  float{REDUCTIONS[collective]:>6}    -1{both}"


def judge(path: Path, world_size: int, least_gb_per_s: float) -> int:
    """Print the verdict on nccl.log; return the exit code."""
    try:
        log = nccl_log.read(path)
    except LogError as error:
        return fail(CANNOT_MEASURE, f"{path.name}: cannot be read ({error})")
    measured = log.allreduce_gb_per_s
    if measured is None:
        found = f"only {', '.join(log.collectives)}" if log.collectives else "no line of results"
        return fail(CANNOT_MEASURE, f"{path.name}: found {found}, expected an all-reduce, so nothing could be judged")
    if log.world_size != world_size:
        found = f"a world of {counted(log.world_size, 'rank')}"
        return fail(CANNOT_MEASURE, f"{path.name}: found {found}, expected {world_size}")
    print(f"Measured AllReduce BW: {measured:.2f} GB/s", flush=True)
    if measured < least_gb_per_s:
        return fail(TOO_SLOW, f"found {measured:.2f} GB/s, expected FABRIC_MIN_GB_PER_S={least_gb_per_s:g} or more")
    return 0


def fail(code: int, text: str) -> int:
    print(f"error: fabric check: {text}", file=sys.stderr)
    return code


def run_limited(command: list[str]) -> None:
    """Run `command` for FABRIC_TIMEOUT_S at most; it ends with this process."""
    process = started(command, signal.SIGTERM)
    try:
        process.wait(float(os.environ.get("FABRIC_TIMEOUT_S") or 600))
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()


def main() -> int:
    settings = CustomSettings.from_environment()
    if "RANK" in os.environ:
        measure(settings)
        return 0
    world_size = int(os.environ["NNODES"]) * int(os.environ["NPROC_PER_NODE"])
    if world_size == 1:
        print("fabric check: one GPU has no fabric to check")
        return 0
    run_limited(one_per_node([], [*sys.argv[1:], "-m", "custom_model.fabric_check"]))
    return judge(settings.run_dir / "nccl.log", world_size, settings.fabric_min_gb_per_s)


if __name__ == "__main__":
    sys.exit(main())
