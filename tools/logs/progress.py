"""A progress bar on standard error, for work that turns out to take long."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
_FEW = 200  # are done before a bar could appear, and importing tqdm alone takes a tenth of a second


def progress(items: Sequence[T], what: str) -> Iterable[T]:
    """The items, with a bar that appears after a second; in a log file it writes a line every half minute at most."""
    if len(items) <= _FEW:
        return items
    from tqdm import tqdm

    return tqdm(items, what, unit="run", delay=1, mininterval=0.2 if sys.stderr.isatty() else 30)
