"""A million lines that belong in no log, for every reader of logs: figures, a LogError that names the file, or a bug.

    python tools/benchmarks/hostile_lines.py                  # 1,000,000 lines, in files of up to 40
    python tools/benchmarks/hostile_lines.py --lines 10000 --seed 7

A line is put together from pieces of true logs and from what does not belong there, by a seeded generator. Every reader
reads every file. Prints a Markdown table of what became of them; the exit code is 1 if a reader raised anything else.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from evidence import causes, nccl_log
from evidence.errors import LogError
from tools.logs import collectives, deepspeed_timers, nvidia_smi, psrecord, steps, trainer_log

MOST_LINES = 40  # of a file
READERS = (
    *(collectives.read, deepspeed_timers.read, nccl_log.read, nvidia_smi.read, psrecord.read, steps.read),
    *(trainer_log.read, causes.cause),
)
PIECES = [
    "{'loss': '2.5', 'epoch': '0.5'}",
    "{'eval_loss':",
    "'train_runtime': 'x'}",
    " 33%|###| 3/9 [00:01<00:02]",
    "[Rank 0] time (ms) | fwd: 141.28",
    "| bwd: 7",
    "1.2.3",
    "# Collective test starting: all_gather_perf",
    "# nThread",
    "#  Rank  0 Group  0 Pid 1 on node1 device  0 X",
    "  1024 256 float sum -1 75.18 0.01 0.01 0",
    " 78.30 0.01 0.01 0",
    "[1,0]<stdout>:",
    "node1:1:1 [0] NCCL INFO Connected",
    "step,step_time_s,tokens,real_tokens,loss,epoch",
    "1,0.5,8,7,2,1",
    "step,collective,group,dtype,bytes,calls",
    "3,all-gather,0 1,bfloat16,1000,1",
    "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)",
    "       0.000        5.000     1000.500     2000.000",
    "timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]",
    "2026/11/21 05:55:41.717, 0, NVIDIA H200, 8 MiB, 143771 MiB, 20 %",
    "[N/A]",
    "slurmstepd",
    ": error: *** STEP 2.0 ON n CANCELLED AT",
    "DUE TO TIME LIMIT ***",
    "srun: error: n: task 1: Killed",
    "[rank0]:",
    "RuntimeError:",
    "CUDA out of memory",
    "NCCL WARN",
    "No space left on device",
    "error: hang:",
    "  what(): x",
    "nan",
    "1e999",
    "N/A",
    "-",
    ",",
    "|",
    "{",
    "'",
    "٣",
    *("\n", "\r", "\0", "\ufeff", "\x1b[31m", " ", "9" * 5000, "\u202e", "\u2028"),
]
HEADERS = [piece for piece in PIECES if piece.startswith(("step,", "timestamp,", "# Elapsed"))]


def line(random_: random.Random) -> str:
    """A whole line of a log one time in three, else up to eight pieces of some."""
    count = 1 if random_.random() < 1 / 3 else random_.randint(0, 8)
    return random_.choice(["", " "]).join(random_.choices(PIECES, k=count))


def content(random_: random.Random, lines: int) -> str:
    """A file; every second begins as a log with columns does, so that its lines are looked at."""
    first = [random_.choice(HEADERS)] if random_.random() < 1 / 2 else []
    return "\n".join([*first, *(line(random_) for _ in range(lines - len(first)))]) + random_.choice(["\n", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    random_ = random.Random(arguments.seed)
    counts: Counter[tuple[str, str]] = Counter()
    spent_s: Counter[str] = Counter()
    slowest_s, left = 0.0, arguments.lines
    bar = tqdm(total=arguments.lines, unit="line", mininterval=10)
    with bar, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        while left:
            lines = min(left, random_.randint(1, MOST_LINES))
            left -= lines
            bar.update(lines)
            path.write_text(content(random_, lines), encoding="utf-8")
            for read in READERS:
                start_s = time.perf_counter()
                name = read.__module__.rsplit(".", 1)[-1]
                try:
                    read(path)
                    found = "figures"
                except LogError as error:
                    found = "errors" if error.path == path else "others"
                except Exception:  # what this looks for
                    traceback.print_exc()
                    found = "others"
                counts[name, found] += 1
                spent_s[name] += time.perf_counter() - start_s
                slowest_s = max(slowest_s, time.perf_counter() - start_s)
    print("| Reader | files with figures | files refused, by name | anything else | microseconds per line |")
    print("|---|---|---|---|---|")
    for name in spent_s:
        per_line_us = 1e6 * spent_s[name] / arguments.lines
        found = " | ".join(f"{counts[name, kind]:,}" for kind in ("figures", "errors", "others"))
        print(f"| {name} | {found} | {per_line_us:.1f} |")
    print(f"\n{arguments.lines:,} lines, seed {arguments.seed}; the slowest file took {slowest_s:.3f} s")
    return 1 if any(kind == "others" for _, kind in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
