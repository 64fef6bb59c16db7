"""When each line of a run's logs was written, from the times that the logs themselves name.

GPU and CPU logs name the time of every sample. A step's time is in steps.csv, and the first step begins when nvidia-smi
first shows a load; evaluation and saving, the rest of the Trainer's runtime, follow the epochs' ends. train.out names
no times, but epochs: a line is written between the steps around it.
"""

from __future__ import annotations

import itertools
import math
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from evidence.plain_files import read_plain
from tools.logs.run import Run

_AT_THE_START = ("nccl.log", "hostfile", "code.diff")
_STAMP = "%Y/%m/%d %H:%M:%S.%f"
_STAMP_LENGTH = len("2026/11/21 09:45:01.000")
_LOAD = re.compile(rb",\s*(\d+) ?%?\s*$")
_EPOCH = re.compile(rb"'epoch': '?([\d.]+)")
_EPOCHS_APART = 0.002  # train.out has four digits of it


@dataclass(frozen=True)
class Piece:
    """A part of a file. Attributes: at_s: seconds from the run's start to when it was written; file: its name; data."""

    at_s: float
    file: str
    data: bytes


@dataclass(frozen=True)
class _Step:
    """A line of steps.csv. Attributes: end_s: seconds from the run's start; epoch: 2 after the second epoch."""

    end_s: float
    epoch: float


def pieces(run: Run, length_s: float, shift: timedelta) -> list[Piece]:
    """All files of the run but run.json, in the order in which they were written.

    Folders are left out (checkpoints), and what begins with a dot: nobody shall resume a replay.

    Args:
        length_s: from the run's start to its end; nothing was written after it.
        shift: what is added to the times in GPU logs.
    """
    files = {
        name: read_plain(run.folder / name)
        for name in run.files
        if name != "run.json" and name[0] != "." and stat.S_ISREG((run.folder / name).lstat().st_mode)
    }
    gpu_logs = [data for name, data in files.items() if name.startswith("gpu_memory")]
    steps = _steps(run, files.get("steps.csv", b""), min(map(_first_load_s, gpu_logs), default=math.inf), length_s)
    last_s = steps[-1].end_s if steps else length_s
    found: list[Piece] = []
    for name, data in files.items():
        parts = data.splitlines(keepends=True)  # of train.out also the states of a progress bar
        if name == "steps.csv":
            times_s = [0.0, *(step.end_s for step in steps)]
        elif name == "train.out":
            times_s = _between(parts, steps, length_s)
        elif name.startswith("gpu_memory"):
            times_s = _gpu_times_s(parts)
            parts = [_shifted(part, shift) for part in parts]
        elif name.startswith(("cpu_memory", "cpu_pss")):
            times_s = _cpu_times_s(parts)
        else:
            parts, times_s = [data], [0.0 if name in _AT_THE_START else last_s]
        found += [Piece(min(at_s, length_s), name, part) for at_s, part in zip(times_s, parts, strict=True)]
    return sorted(found, key=lambda piece: piece.at_s)


def _steps(run: Run, data: bytes, first_load_s: float, length_s: float) -> list[_Step]:
    """One for each line below the header; what is no number counts as 0."""
    header, *lines = data.splitlines() or [b""]
    names = header.decode("utf-8", "replace").split(",")
    rows = [dict(zip(names, line.decode("utf-8", "replace").split(","), strict=False)) for line in lines]
    times_s = [_number(row.get("step_time_s")) for row in rows]
    epochs = [_number(row.get("epoch")) for row in rows]
    runtime_s = max(_number(run.summary.get("train_runtime_s")), sum(times_s))
    begin_s = max(0.0, min(first_load_s, length_s - runtime_s))
    # Epochs that had ended before each step, and the time that an epoch's end takes.
    ended = [max(0, math.ceil(epoch - _EPOCHS_APART) - 1) for epoch in epochs]
    pause_s = (runtime_s - sum(times_s)) / (ended[-1] + 1) if ended else 0.0
    sums_s = itertools.accumulate(times_s)
    ends_s = [begin_s + sum_s + pause_s * count for sum_s, count in zip(sums_s, ended, strict=True)]
    for resumed_step, attempt_s in _attempts(run):  # the steps after it were made by a later attempt
        first = next((place for place, row in enumerate(rows) if _number(row.get("step")) > resumed_step), len(rows))
        later_s = max(0.0, attempt_s + begin_s + times_s[first] - ends_s[first]) if first < len(rows) else 0.0
        ends_s[first:] = [end_s + later_s for end_s in ends_s[first:]]
    return [_Step(min(end_s, length_s), epoch) for end_s, epoch in zip(ends_s, epochs, strict=True)]


def _attempts(run: Run) -> Iterator[tuple[int, float]]:
    """Of each attempt but the first: the step that it went on from, and seconds from the run's start to its own."""
    ended = run.record.get("attempts") or []
    starts = [*(one.get("start_time") for one in ended[1:]), run.record.get("attempt_start_time")]
    for one, start in zip(ended, starts, strict=False):
        if start:
            yield one.get("resumed_step") or 0, (datetime.fromisoformat(start) - run.start).total_seconds()


def _first_load_s(data: bytes) -> float:
    """Of a GPU log, the time of its first sample with a load; infinity without one."""
    parts = data.splitlines()
    found = zip(_gpu_times_s(parts), map(_LOAD.search, parts), strict=True)
    return next((at_s for at_s, load in found if load and int(load[1])), math.inf)


def _gpu_times_s(parts: Sequence[bytes]) -> list[float]:
    stamps = [_stamp(part) for part in parts]
    first = next(filter(None, stamps), None)
    return _rising([(stamp - first).total_seconds() if stamp and first else None for stamp in stamps])


def _stamp(part: bytes) -> datetime | None:
    try:
        return datetime.strptime(part[:_STAMP_LENGTH].decode("ascii", "replace"), _STAMP)
    except ValueError:
        return None


def _shifted(part: bytes, shift: timedelta) -> bytes:
    stamp = _stamp(part)
    return part if stamp is None else (stamp + shift).strftime(_STAMP)[:-3].encode() + part[_STAMP_LENGTH:]


def _cpu_times_s(parts: Sequence[bytes]) -> list[float]:
    """A logger that was started anew began again at 0."""
    begin_s, before_s, found = 0.0, 0.0, []
    for part in parts:
        cells = part.split()
        at_s = _number(cells[0].decode("ascii", "replace")) if cells else 0.0
        if 0 < at_s < before_s:
            begin_s += before_s
        before_s = at_s or before_s
        found.append(begin_s + before_s)
    return found


def _between(parts: Sequence[bytes], steps: Sequence[_Step], length_s: float) -> list[float]:
    """Lines that name an epoch at the end of its step, those between them evenly in between."""
    known = [(-1, 0.0)]
    for place, part in enumerate(parts):
        named = _EPOCH.search(part)
        epoch = _number(named[1].decode()) if named else math.inf
        if step := next((one for one in steps if one.epoch >= epoch - _EPOCHS_APART), None):
            known.append((place, max(step.end_s, known[-1][1])))
    known.append((len(parts), length_s))
    found = []
    for (before, before_s), (after, after_s) in itertools.pairwise(known):
        pace_s = (after_s - before_s) / (after - before)
        found += [before_s + pace_s * (place - before) for place in range(before + 1, after + 1)]
    return found[: len(parts)]


def _rising(times_s: Sequence[float | None]) -> list[float]:
    """Each at least the one before; a line without a time is written with the one before it."""
    return list(itertools.accumulate((at_s or 0.0 for at_s in times_s), max))


def _number(text: object) -> float:
    """0 for what is no number of seconds or epochs."""
    try:
        number = float(text or 0)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0
    return number if 0 <= number < math.inf else 0.0
