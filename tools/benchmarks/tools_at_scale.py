"""How long the tools need for a thousand runs, against reading the same bytes once.

    python tools/benchmarks/tools_at_scale.py                      # 1,000 runs, about 100 MB in a temporary folder
    python tools/benchmarks/tools_at_scale.py --runs 100 --repeats 3

The yardstick is one Python process that opens and reads every file of every run once, one after the other, and does
nothing with them; finding the files is not counted. The command measured is

    python -m tools runs --figures NAME,... --logs FOLDER

as a user would start it: start of Python, finding the runs, every figure below of every run, the table on standard
output. Reading and commands take turns, so both see the same machine; the page cache is warm, because the files were
just written or read. Prints a Markdown table of medians over the repeats, with the smallest and the largest, and of
the CPU time, which depends less on what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import psutil
from synthetic_runs import write_runs
from tqdm import tqdm

REPO = Path(__file__).resolve().parents[2]
# At least one figure of each kind of log: nvidia-smi, psrecord, memory_logger, and train.out where no summary has it.
FIGURES = (
    "peak_gpu,mean_gpu,min_gpu,gpu_utilization,peak_cpu,mean_cpu,peak_cpu_pss,train_loss,eval_loss_final,"
    "samples_per_second,train_runtime,total_runtime"
)
CHANGED_SHARE = 0.01


def files_of(logs: Path) -> list[str]:
    return [f"{folder}/{name}" for folder, _, names in os.walk(logs) for name in names if name[0] != "."]


def read_all(files: list[str]) -> None:
    for path in files:
        with open(path, "rb") as file:  # noqa: PTH123  (the yardstick must not pay for Path)
            file.read()


def tools(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "tools", *words], cwd=REPO, check=True, stdout=subprocess.DEVNULL)


def peak_memory_mib(*words: str) -> float:
    """Largest proportional set size of the command (MiB), sampled."""
    peak_bytes = 0
    command = subprocess.Popen([sys.executable, "-m", "tools", *words], cwd=REPO, stdout=subprocess.DEVNULL)
    process = psutil.Process(command.pid)
    while command.poll() is None:
        with contextlib.suppress(psutil.Error):  # it has just ended
            peak_bytes = max(peak_bytes, process.memory_full_info().pss)
        time.sleep(0.05)
    return peak_bytes / 2**20


def timed_s(work: Callable[[], None]) -> tuple[float, float]:
    """Wall time and CPU time, this process's and its children's (s)."""
    start, before = time.perf_counter(), os.times()
    work()
    after = os.times()
    return time.perf_counter() - start, sum(after[:4]) - sum(before[:4])


def change_some(logs: Path) -> None:
    """One more sample in every hundredth run, as a job that is still running writes it."""
    grown = sorted(logs.glob("*/*/gpu_memory.csv"))
    for path in grown[:: round(1 / CHANGED_SHARE)]:
        with path.open("a", encoding="utf-8") as file:
            file.write("2026/01/05 09:00:00.000, 0, NVIDIA H200, 100 MiB, 143771 MiB, 5 %\n")


def measure(logs: Path, repeats: int) -> dict[str, list[tuple[float, float]]]:
    """Wall and CPU time by what was measured, one pair per repeat."""
    files = files_of(logs)
    listing = ("runs", "--figures", FIGURES, "--logs", str(logs))
    times_s: dict[str, list[tuple[float, float]]] = {}

    def note(what: str, work: Callable[[], None]) -> None:
        times_s.setdefault(what, []).append(timed_s(work))

    def forget() -> None:
        (logs / ".figures.json").unlink(missing_ok=True)

    read_all(files)  # not counted: it fills the page cache
    for _ in tqdm(range(repeats), unit="repeat"):
        note("every file read once", lambda: read_all(files))
        forget()
        note("every run parsed", lambda: tools(*listing))
        note("the same again, nothing changed", lambda: tools(*listing))
        change_some(logs)
        note(f"the same again, {CHANGED_SHARE:.0%} of the runs changed", lambda: tools(*listing))
        forget()
        note("`fill baseline`: the newest runs' tables", lambda: tools("fill", "baseline", "--logs", str(logs)))
    return times_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--logs", type=Path, help="runs that synthetic_runs.py wrote; default: written anew")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tools-at-scale-") as folder:
        logs = options.logs or Path(folder)
        if not options.logs:
            for _ in tqdm(write_runs(logs, options.runs), total=options.runs, unit="run", mininterval=5):
                pass
        files = files_of(logs)
        size_mb = sum(Path(path).stat().st_size for path in files) / 1e6
        runs = sum(path.endswith("run.json") for path in files)
        load = os.getloadavg()[0]
        times_s = measure(logs, options.repeats)
        (logs / ".figures.json").unlink(missing_ok=True)
        peak_mib = peak_memory_mib("runs", "--figures", FIGURES, "--logs", str(logs))
    read_s = statistics.median(wall_s for wall_s, _ in times_s["every file read once"])
    print(f"{runs:,} runs, {len(files):,} files, {size_mb:,.0f} MB; {options.repeats} repeats")
    print(
        f"Python {platform.python_version()}, pyarrow {version('pyarrow')}, {os.cpu_count()} cores, "
        f"load before {load:.1f}"
    )
    print("\n| | median (s) | range (s) | times reading | CPU time, median (s) |\n|---|---|---|---|---|")
    for what, pairs in times_s.items():
        wall_s, cpu_s = zip(*pairs, strict=True)
        median_s = statistics.median(wall_s)
        figures = f"{median_s:.2f} | {min(wall_s):.2f} to {max(wall_s):.2f} | {median_s / read_s:.2f}"
        print(f"| {what} | {figures} | {statistics.median(cpu_s):.2f} |")
    print(f"\nPeak memory while every run is parsed: {peak_mib:,.0f} MiB")


if __name__ == "__main__":
    main()
