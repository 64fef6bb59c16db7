"""Work on many items on several cores at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
# A login node has many cores and many users.
_MOST = 8
_function: Callable[[Any], Any]


def in_processes(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """`function` of each item, in order; what the function changes elsewhere stays in the process that ran it.

    Processes and not threads, because most of the work is Python's own. They are forked, so neither the function nor
    the items are copied; the results are pickled.
    """
    # Not on macOS, whose libraries may not survive a fork.
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    processes = min(cores, _MOST, len(items))
    if processes <= 1:
        yield from map(function, items)
        return
    with multiprocessing.get_context("fork").Pool(processes, _remember, (lambda i: function(items[i]),)) as pool:
        yield from pool.imap(_call, range(len(items)))


def _remember(function: Callable[[int], Any]) -> None:
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the first process ends the others


def _call(position: int) -> Any:
    return _function(position)
