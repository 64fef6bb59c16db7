"""What a participant wrote into a cell: a figure, a word, or nothing; in the ways in which people write figures."""

import re
from dataclasses import dataclass

from tools.logs.figures import Metric
from tools.tables.definitions import normalised

_ABOUT = re.compile(r"(?:ca\.?|circa|approx\.?|about|~|≈)\s*", re.IGNORECASE)
_NUMBER = re.compile(r"([+-]?\d[\d.,]*(?:[eE][+-]?\d+)?)\s*([A-Za-z%/]*)")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")  # 21,658 and 1,234.5
_POINTS = re.compile(r"[+-]?\d{1,3}(?:\.\d{3})+")  # 21.658, as some countries write it
_DURATION = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
_NOTHING = {"", "-", "\N{EN DASH}", "\N{EM DASH}", "?", "...", "…", "n/a", "na", "n.a.", "none", "tbd", "todo"}
# Other ways to write a metric's unit.
_UNIT_NAMES = {"sec": "s", "seconds": "s", "samples/sec": "samples/s", "steps/sec": "steps/s", "tokens/sec": "tokens/s"}


@dataclass(frozen=True)
class OwnCell:
    """Attributes: values: what the figure may mean, the likelier first; remark: how it was read.

    problem: why it cannot be read; blank: nothing stands there, or that there is nothing.
    """

    values: tuple[float, ...] = ()
    remark: str = ""
    problem: str = ""
    blank: bool = False


def read_cell(text: str, metric: Metric) -> OwnCell:
    """A cell as a participant wrote it; a word gives no value and no problem."""
    plain = normalised(text)
    if plain in _NOTHING:
        return OwnCell(blank=True)
    if not any(character.isdigit() for character in plain):
        return OwnCell()
    plain = _ABOUT.sub("", text.strip("*_` "), count=1)
    remark = f"read as {plain}" if plain != text.strip("*_` ") else ""
    if metric.unit == "s" and (match := _DURATION.fullmatch(plain)):
        return OwnCell((int(match[1] or 0) * 3600 + int(match[2]) * 60 + float(match[3]),), remark)
    match = _NUMBER.fullmatch(plain)
    values = _values(match[1]) if match else ()
    if not match or not values:
        return OwnCell(problem="neither a figure such as 12.5 or 21,658 nor a word such as OOM")
    unit = _UNIT_NAMES.get(match[2], match[2])
    if unit and unit != metric.unit:
        return OwnCell(problem=f"in {match[2]}, but the column is in {metric.unit or 'no unit'}")
    if "," in match[1] and not _GROUPED.fullmatch(match[1]):
        remark = f"read as {values[0]:g}"
    return OwnCell(values, remark)


def _values(digits: str) -> tuple[float, ...]:
    """What digits with points and commas may mean: 0,7039 and 12,5 have decimal commas, 1,297 may have one."""
    readings = []
    if _GROUPED.fullmatch(digits) or "," not in digits:
        readings.append(digits.replace(",", ""))
    if digits.count(",") == 1 and digits.rfind(".") < digits.find(","):
        readings.append(digits.replace(".", "").replace(",", "."))
    if _POINTS.fullmatch(digits):
        readings.append(digits.replace(".", ""))
    values = []
    for reading in readings:
        try:
            values.append(float(reading))
        except ValueError:
            return ()
    return tuple(values)
