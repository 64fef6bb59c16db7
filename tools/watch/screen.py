"""The view as text for rich: no word of a log or a name is markup, none can steer the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tools.logs.live_run import LiveRun
from tools.logs.run import duration
from workshop.run_folder.printable import one_line

KEYS = "123456789abcdefghijklmnoprstuvwxyz"  # a row's; q quits
COLUMNS = ("", "state", "owner", "exercise", "configuration", "step", "left", "tokens/s", "loss", "curve")
COLUMNS += ("GPU MiB", "trouble")
RIGHT = ("step", "left", "tokens/s", "loss", "GPU MiB")
COLOURS = ("red", "yellow", "magenta", "green", "default")  # by LiveRun.urgency
CURVE_WIDTH = 16
_SPARED = ("curve", "GPU MiB", "tokens/s", "exercise", "left", "loss")  # in a narrow terminal, in this order
_LEAST = {"configuration": 26, "trouble": 14}  # columns wide; what is longer is cut where there is no more room
_BARS = "▁▂▃▄▅▆▇█"
_QUEUE_LINES = 8


def view(shown: Sequence[LiveRun], waits: Sequence[str], width: int, most_rows: int | None = None) -> Group:
    """Runs, then what waits in the queue, `width` columns wide; with `most_rows` in no more lines than that."""
    most_waits = _QUEUE_LINES if most_rows is None else min(_QUEUE_LINES, max(1, most_rows // 6))
    lines = [*waits[:most_waits], *([f"and {len(waits) - most_waits} more"] if len(waits) > most_waits else [])]
    rows = len(shown) if most_rows is None else max(1, most_rows - 4 - len(lines))
    states = Counter(one.run.state for one in shown)
    count = ", ".join(f"{number} {state}" for state, number in states.items()) or "no run is running or recent"
    hidden = f", {len(shown) - rows} of them not shown" if len(shown) > rows else ""
    parts = [Text(f"{count}{hidden}; {len(waits)} waiting", style="bold", no_wrap=True), _table(shown[:rows], width)]
    if lines:
        parts += [Text("waiting", style="bold"), *(Text(one_line(line), no_wrap=True) for line in lines)]
    return Group(*parts)


def _table(shown: Sequence[LiveRun], width: int) -> Table:
    """In a narrow terminal some columns are left out, and rich cuts configurations and troubles."""
    keys = [KEYS[place] if place < len(KEYS) else "" for place in range(len(shown))]
    cells = [[key, *map(one_line, _cells(one))] for key, one in zip(keys, shown, strict=True)]
    longest = [max(map(len, column)) for column in zip(COLUMNS, *cells, strict=True)]
    least = {name: min(size, _LEAST.get(name, size)) for name, size in zip(COLUMNS, longest, strict=True)}
    for name in _SPARED:
        if sum(least.values()) + 2 * (len(least) - 1) > width:
            del least[name]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in least:
        table.add_column(name, justify="right" if name in RIGHT else "left", no_wrap=name not in _LEAST)
    for row, one in zip(cells, shown, strict=True):
        colour = COLOURS[one.urgency[0]]
        texts = [(text, name) for text, name in zip(row, COLUMNS, strict=True) if name in least]
        styled = [(text, colour if name in ("state", "trouble") else "") for text, name in texts]
        table.add_row(*(Text(text, style, no_wrap=True, overflow="crop") for text, style in styled))
    return table


def _cells(one: LiveRun) -> list[str]:
    run = one.run
    configuration = [run.record.config or run.rung, run.model, f"x {run.world_size or '?'}"]
    loss = f"{one.losses[-1]:.3f}" if one.losses else "-"
    return [
        run.shown_state,
        run.owner,
        run.record.exercise or run.folder.parent.name,
        " ".join(filter(None, configuration)),
        f"{one.step}/{one.steps or '?'}",
        "-" if one.left_s is None else duration(one.left_s),
        "-" if one.tokens_per_s is None else f"{one.tokens_per_s:,.0f}",
        loss,
        sparkline(one.losses),
        "-" if one.gpu_mib is None else f"{one.gpu_mib:,}",
        one.trouble,
    ]


def sparkline(values: Iterable[float], width: int = CURVE_WIDTH) -> str:
    """Means of neighbours as bars between the smallest and the largest; what is no number is left out."""
    numbers = [value for value in values if math.isfinite(value)]
    size = max(1, math.ceil(len(numbers) / width))
    means = [sum(part) / len(part) for start in range(0, len(numbers), size) if (part := numbers[start : start + size])]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)
