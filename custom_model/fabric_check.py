"""How fast all GPUs of a job are together, measured before anything trains; multi_node.slurm runs it first.

    python -m custom_model.fabric_check torchrun …     nccl.log from all ranks, then the verdict: exit code 0, 44 or 46
    torchrun … -m custom_model.fabric_check            what this starts on every rank

NVIDIA's nccl-tests measure where they can be started as one world: built with MPI, and srun or mpirun speaks it. Else
torch measures the same, and prints it as they do. A network that does not answer must not hold the nodes for the job's
whole time (FABRIC_TIMEOUT_S).

All ranks are one world. Older material starts all_reduce_perf once per GPU without MPI: each process is then a world of
its own, talks to nobody and reports a meaningless bandwidth (erratum K12).
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from custom_model.settings import CustomSettings
from run_folder import nccl_log
from run_folder.errors import LogError
from run_folder.plural import counted
from workshop.job.node import one_per_node, started

CANNOT_MEASURE, TOO_SLOW = 44, 46
SMALLEST_MIB, FACTOR = 1, 4


def collectives(world_size: int) -> dict[str, tuple[str, float, bool, Callable[[torch.Tensor], Callable[[], object]]]]:
    """Reduction, bus bandwidth / algorithm bandwidth, whether in place, and the call on a buffer of the message's size.

    The size of an all-gather is that of its result, of a reduce-scatter that of its input, as in nccl-tests.
    Source of the factors: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """

    def share(buffer: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(buffer[: buffer.numel() // world_size])

    def all_gather(buffer: torch.Tensor) -> Callable[[], object]:
        mine = share(buffer)
        return lambda: dist.all_gather_into_tensor(buffer, mine)

    def reduce_scatter(buffer: torch.Tensor) -> Callable[[], object]:
        mine = share(buffer)
        return lambda: dist.reduce_scatter_tensor(mine, buffer)

    once = (world_size - 1) / world_size
    return {
        "all_reduce": ("sum", 2 * once, True, lambda buffer: lambda: dist.all_reduce(buffer)),
        "all_gather": ("none", once, False, all_gather),
        "reduce_scatter": ("sum", once, False, reduce_scatter),
    }


def mean_time_s(call: Callable[[], object], iterations: int, warmup: int, device: torch.device) -> float:
    """Seconds per call on the slowest rank, between two points at which every rank has done everything before."""

    def meet() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()
        return time.perf_counter()

    for _ in range(warmup):
        call()
    start_s = meet()
    for _ in range(iterations):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    elapsed = torch.tensor((time.perf_counter() - start_s) / iterations, device=device)
    dist.all_reduce(elapsed, op=dist.ReduceOp.MAX)
    return elapsed.item()


def measure(settings: CustomSettings) -> None:
    """Every rank: time the collectives over the sizes; rank 0 writes nccl.log, line by line."""
    local_rank = int(os.environ["LOCAL_RANK"])
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo", device_id=device if gpu else None)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    name = torch.cuda.get_device_name(device) if gpu else "CPU (gloo)"
    here = f"#  Rank {rank:2d} Group  0 Pid {os.getpid():6d} on {socket.gethostname()} device {local_rank:2d} {name}"
    ranks: list[str] = [""] * world_size
    dist.all_gather_object(ranks, here)
    with Path(settings.run_dir / "nccl.log" if rank == 0 else os.devnull).open("w", buffering=1) as log:
        print(header(settings, ranks), file=log)
        for collective, (operation, factor, in_place, prepare) in collectives(world_size).items():
            print(f"# Collective test starting: {collective}_perf", file=log)
            mib = SMALLEST_MIB
            while mib <= settings.fabric_max_mib:
                # A multiple of the ranks, so that all shares are equal. Zeros stay zeros however often they are added.
                count = mib * 2**20 // 4 // world_size * world_size
                call = prepare(torch.zeros(count, device=device))
                seconds = mean_time_s(call, settings.fabric_iterations, settings.fabric_warmup, device)
                print(row(4 * count, operation, seconds, factor, in_place), file=log)
                del call
                mib *= FACTOR
    dist.destroy_process_group()


def header(settings: CustomSettings, ranks: list[str]) -> str:
    """What nccl-tests print first."""
    sizes = f"minBytes {SMALLEST_MIB * 2**20} maxBytes {settings.fabric_max_mib * 2**20} step: {FACTOR}(factor)"
    runs = f"warmup iters: {settings.fabric_warmup} iters: {settings.fabric_iterations} validation: 0"
    columns = ["size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]
    units = ["(B)", "(elements)", "", "", "", *["(us)", "(GB/s)", "(GB/s)", ""] * 2]
    backend = f"# torch.distributed {torch.__version__}, {dist.get_backend()}"
    lines = [f"# nThread 1 nGpus 1 {sizes} {runs}", backend, "#", "# Using devices", *ranks, "#"]
    return "\n".join([*lines, "#" + aligned(columns)[1:], "#" + aligned(units)[1:]])


def row(size: int, operation: str, seconds: float, factor: float, in_place: bool) -> str:
    """One line of results; the half of it that was not measured, out of place or in place, is N/A."""
    algbw = size / seconds / 1e9
    measured = [f"{seconds * 1e6:.2f}", f"{algbw:.3f}", f"{algbw * factor:.3f}", "N/A"]
    halves = [["N/A"] * 4, measured] if in_place else [measured, ["N/A"] * 4]
    return aligned([str(size), str(size // 4), "float", operation, "-1", *halves[0], *halves[1]])


def aligned(cells: list[str]) -> str:
    widths = (12, 14, 10, 8, 8) + (12, 9, 9, 8) * 2
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def judge(path: Path, world_size: int, least_gb_per_s: float) -> int:
    """Print the verdict on nccl.log; the exit code."""
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


def nccl_tests() -> list[str]:
    """What starts one of nccl-tests as a single world; empty where that cannot be done."""
    nodes, per_node = os.environ["NNODES"], os.environ["NPROC_PER_NODE"]
    for name in collectives(1):
        linked = subprocess.run(["ldd", shutil.which(f"{name}_perf") or ""], capture_output=True, text=True).stdout
        if "libmpi" not in linked:
            return []
    if "SLURM_JOB_ID" in os.environ and nodes != "1":
        speaks = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True)
        if "pmix" in speaks.stdout + speaks.stderr:
            return ["srun", "--mpi=pmix", f"--nodes={nodes}", f"--ntasks-per-node={per_node}", "--kill-on-bad-exit=1"]
    elif nodes == "1" and shutil.which("mpirun"):
        return ["mpirun", "-np", per_node]
    return []


def measure_together(settings: CustomSettings, torchrun: list[str]) -> None:
    """Have nccl.log written."""
    if not (world := nccl_tests()):
        succeeds(one_per_node([], [*torchrun, "-m", "custom_model.fabric_check"]))
        return
    sizes = ["-b", "1M", "-e", f"{settings.fabric_max_mib}M", "-f", "4", "-g", "1"]
    runs = ["-n", str(settings.fabric_iterations), "-w", str(settings.fabric_warmup)]
    with (settings.run_dir / "nccl.log").open("ab", buffering=0) as log:
        for name in collectives(1):
            log.write(f"# Collective test starting: {name}_perf\n".encode())
            if not succeeds([*world, f"{name}_perf", *sizes, *runs], stdout=log):
                return


def succeeds(command: list[str], **options: Any) -> bool:
    """Whether `command` does; it ends after FABRIC_TIMEOUT_S at the latest, and with this process."""
    process = started(command, signal.SIGTERM, **options)
    try:
        return process.wait(float(os.environ.get("FABRIC_TIMEOUT_S") or 600)) == 0
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
        return False


def main() -> int:
    settings = CustomSettings.from_environment()
    if "RANK" in os.environ:
        measure(settings)
        return 0
    world_size = int(os.environ["NNODES"]) * int(os.environ["NPROC_PER_NODE"])
    if world_size == 1:
        print("fabric check: one GPU has no fabric to check")
        return 0
    measure_together(settings, sys.argv[1:])
    return judge(settings.run_dir / "nccl.log", world_size, settings.fabric_min_gb_per_s)


if __name__ == "__main__":
    sys.exit(main())
