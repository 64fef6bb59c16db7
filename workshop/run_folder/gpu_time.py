"""How a GPU's time in a profile divides up, for the job that records it and the tools that read it."""

from collections.abc import Iterable

Interval = tuple[float, float]  # start and end


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of the intervals: kernels that run side by side are one."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def covered(intervals: Iterable[Interval]) -> float:
    """The length of the union."""
    return sum(end - start for start, end in merged(intervals))


def shares(kernels: Iterable[tuple[str, Interval]], wall: float) -> dict[str, float]:
    """Shares of the wall time, by name, given the name and the interval of all that the GPU ran."""
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
