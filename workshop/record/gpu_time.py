"""Fractions of a profile's wall time spent computing, communicating and idle, for job and tools."""

from collections.abc import Iterable

Interval = tuple[float, float]  # start and end


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of the intervals: overlapping kernels become one."""
    union: list[Interval] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def covered(intervals: Iterable[Interval]) -> float:
    """Return the length of the union."""
    return sum(end - start for start, end in merged(intervals))


def shares(kernels: Iterable[tuple[str, Interval]], wall: float) -> dict[str, float]:
    """Return fractions of wall time spent computing, communicating and idle, from all kernels' names and intervals."""
    kernels = list(kernels)
    busy = covered(interval for _, interval in kernels)
    computing = covered(interval for name, interval in kernels if "nccl" not in name.lower())
    communicating = covered(interval for name, interval in kernels if "nccl" in name.lower())
    times = {
        "computing (or copying)": computing,
        "communicating (NCCL)": communicating,
        "  with nothing computed beside it": busy - computing,
        "idle": wall - busy,
    }
    return {name: time / wall for name, time in times.items()}
