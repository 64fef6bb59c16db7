"""The times of a step's parts, from what DeepSpeed printed (train.out)."""

from __future__ import annotations

import re
from pathlib import Path

from workshop.run_folder.safe_open import read_plain

# To the end of the line: a part that another rank's output runs into is not that part.
_TIMERS = re.compile(rb"\[Rank 0\] time \(ms\) ((?:\| \w+: \d{1,9}(?:\.\d+)? ?)+)[\r\n]")
_TIMER = re.compile(rb"(\w+): ([\d.]+)")


def read_timers(path: Path | str) -> dict[str, list[float]]:
    """DeepSpeed's name of each part of a step to its time (ms) in each step, in order; {} if DeepSpeed printed none.

    With "wall_clock_breakdown" (TIMERS=true) rank 0 prints after each step, summed over the step's micro-batches:

        [Rank 0] time (ms) | optimizer_step: 211.64
        [Rank 0] time (ms) | fwd: 141.28 | bwd: 194.50 | bwd_inner: 132.07 | bwd_allreduce: 62.38 | step: 679.87

    A name that ends in `_microstep` is of one micro-batch. To time a part DeepSpeed waits for the GPU, so nothing
    overlaps and the sum is more than a step takes without timers. A line that is garbled or cut off is left out.
    """
    parts_ms: dict[str, list[float]] = {}
    for line in _TIMERS.findall(read_plain(path)):
        for name, time_ms in _TIMER.findall(line):
            if not name.endswith(b"_microstep"):
                parts_ms.setdefault(name.decode(), []).append(float(time_ms))
    return parts_ms
