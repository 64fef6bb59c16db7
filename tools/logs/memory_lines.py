"""Memory over time, a line for each GPU or node of a run: what the plots and the page draw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tools.logs import nvidia_smi, psrecord
from tools.logs.folder import RunFolder

Line = tuple[str, np.ndarray, np.ndarray]  # what it is of, time since the log's start (s), memory (MiB)


def gpu_lines(run: RunFolder) -> Iterator[Line]:
    """A line per GPU of every node, "node1 GPU 0". Raises LogError for a damaged log."""
    for node, path in _of_nodes(run, "gpu_memory", ".csv"):
        log = nvidia_smi.read(path, with_time=True)
        samples = list(zip(log.gpu, log.time_s, log.mib, strict=True))
        for index in sorted(set(log.gpu)):
            mine = np.array([(time_s, mib) for gpu, time_s, mib in samples if gpu == index])
            yield f"{node}GPU {index:.0f}", mine[:, 0], mine[:, 1]


def cpu_lines(run: RunFolder, kind: str) -> Iterator[Line]:
    """A line per node, "node1 RSS" or "node1 PSS". Raises LogError for a damaged log."""
    for node, path in _of_nodes(run, {"RSS": "cpu_memory", "PSS": "cpu_pss"}[kind], ".txt"):
        log = psrecord.read(path)
        yield f"{node}{kind}", np.array(log.time_s), np.array(log.mib)


def _of_nodes(run: RunFolder, prefix: str, suffix: str) -> Iterator[tuple[str, str]]:
    """A log's files, each with what stands before a line's name: nothing, or the node."""
    for path in run.paths(prefix, suffix):
        node = Path(path).name.removeprefix(prefix).removesuffix(suffix).lstrip("-")
        yield f"{node} " if node else "", path
