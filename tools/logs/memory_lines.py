"""Memory over time, a line for each GPU or node of a run: what the plots and the page draw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools.logs import nvidia_smi
from tools.logs.folder import RunFolder
from tools.logs.memory_log import read_psrecord

Line = tuple[str, list[float], list[float]]  # what it is of, time since the log's start (s), memory (MiB)


def gpu_lines(run: RunFolder) -> Iterator[Line]:
    """A line per GPU of every node, "node1 GPU 0". Raises LogError for a damaged log."""
    for node, path in _of_nodes(run, "gpu_memory", ".csv"):
        log = nvidia_smi.read(path, with_time=True)
        for index in sorted(set(log.gpu)):
            mine = [place for place, gpu in enumerate(log.gpu) if gpu == index]
            yield f"{node}GPU {index:.0f}", [log.time_s[place] for place in mine], [log.mib[place] for place in mine]


def cpu_lines(run: RunFolder, kind: str) -> Iterator[Line]:
    """A line per node, "node1 RSS" or "node1 PSS". Raises LogError for a damaged log."""
    for node, path in _of_nodes(run, {"RSS": "cpu_memory", "PSS": "cpu_pss"}[kind], ".txt"):
        log = read_psrecord(path)
        yield f"{node}{kind}", log.time_s, log.mib


def _of_nodes(run: RunFolder, prefix: str, suffix: str) -> Iterator[tuple[str, str]]:
    """A log's files, each with what stands before a line's name: nothing, or the node."""
    for path in run.paths(prefix, suffix):
        node = Path(path).name.removeprefix(prefix).removesuffix(suffix).lstrip("-")
        yield f"{node} " if node else "", path
