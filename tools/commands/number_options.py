"""Types of options that argparse takes; `float` alone would take nan, inf and negative numbers."""

import argparse
from collections.abc import Callable


def above_0(text: str) -> float:
    return _number(text, "a number above 0", lambda value: value > 0)


def at_least_0(text: str) -> float:
    return _number(text, "a number of at least 0", lambda value: value >= 0)


def _number(text: str, expected: str, fits: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not fits(value) or value == float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return value
