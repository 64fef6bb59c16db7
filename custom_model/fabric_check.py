"""Measure the all-reduce between all GPUs of a job before it trains; multi_node.slurm runs it first.

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
from workshop.record import nccl_log
from workshop.record.collectives import bus_factor
from workshop.record.errors import LogError
from workshop.record.printable import counted

CANNOT_MEASURE, TOO_SLOW = 44, 46
HEADING = """\
#                                                                     out of place                             in place
#       size         count   type redop  root       time    algbw    busbw  #wrong       time    algbw    busbw  #wrong
#        (B)    (elements)                          (us)   (GB/s)   (GB/s)               (us)   (GB/s)   (GB/s)
# Collective test starting: all_reduce_perf"""


def measure(settings: CustomSettings) -> None:
    """Time the all-reduce over the sizes, on every rank; rank 0 writes nccl.log, line by line."""
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
        mib = 1
        while mib <= settings.fabric_max_mib:
            print(measure_size(mib, settings, device), file=log)
            mib *= 4
    dist.destroy_process_group()


def measure_size(mib: int, settings: CustomSettings, device: Any) -> str:
    """Return one line of results: the slowest rank's time."""
    import torch
    import torch.distributed as dist

    message = torch.zeros(mib * 2**20 // 4, device=device)  # zeros stay zeros however often they are added
    synchronize = torch.get_device_module(device).synchronize
    for _ in range(settings.fabric_warmup):
        dist.all_reduce(message)
    synchronize()
    dist.barrier()
    start_s = time.perf_counter()
    for _ in range(settings.fabric_iterations):
        dist.all_reduce(message)
    synchronize()
    time_s = torch.tensor((time.perf_counter() - start_s) / settings.fabric_iterations, device=device)
    dist.all_reduce(time_s, op=dist.ReduceOp.MAX)
    return row(message.nbytes, time_s.item(), dist.get_world_size())


def row(size: int, seconds: float, world_size: int) -> str:
    """Return one line of results for a message of `size` bytes; out of place was not measured."""
    algbw = size / seconds / 1e9
    busbw = algbw * bus_factor("all-reduce", world_size)
    not_measured = "        N/A      N/A      N/A     N/A"
    measured = f"{seconds * 1e6:11.2f}{algbw:9.3f}{busbw:9.3f}     N/A"
    return f"{size:12}{size // 4:14}  float   sum    -1{not_measured}{measured}"


def judge(path: Path, world_size: int, least_gb_per_s: float) -> int:
    """Print the verdict on nccl.log; return the exit code."""
    try:
        log = nccl_log.read(path)
    except LogError as error:
        return fail(CANNOT_MEASURE, f"{path.name}: cannot be read ({error})")
    measured = log.allreduce_gb_per_s
    if measured is None:
        return fail(CANNOT_MEASURE, f"{path.name}: found no line of an all-reduce, expected one")
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


def main() -> int:
    settings = CustomSettings.from_environment()
    if "RANK" in os.environ:
        measure(settings)
        return 0
    world_size = settings.start.processes
    if world_size == 1:
        print("fabric check: one GPU has no fabric to check")
        return 0
    command = [*sys.argv[1:], "-m", "custom_model.fabric_check"]
    process = started(one_per_node([], command, settings.start), signal.SIGTERM)
    try:
        process.wait(float(os.environ.get("FABRIC_TIMEOUT_S") or 600))
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
    return judge(settings.run_dir / "nccl.log", world_size, settings.fabric_min_gb_per_s)


if __name__ == "__main__":
    sys.exit(main())
