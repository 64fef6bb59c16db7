"""A progress bar on standard error, for work that turns out to take long."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
# Fewer are done before a bar could appear, and importing tqdm alone takes a tenth of a second.
_FEW = 200
_DELAY_S = 1.0


def progress(items: Iterable[T], what: str, total: int) -> Iterable[T]:
    """The items, with a bar that appears after a second; in a log file it writes a line every half minute at most."""
    return _with_bar(items, what, total) if total > _FEW else items


def _with_bar(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    from tqdm import tqdm

    every_s = 0.2 if sys.stderr.isatty() else 30
    yield from tqdm(items, what, total, unit="run", delay=_DELAY_S, mininterval=every_s)
