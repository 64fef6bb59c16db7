"""Numbers from their digits, all of a column at once: numpy does in nanoseconds each what float() does in a hundred."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_MOST_CHARACTERS = 15  # a float holds every whole number of so many digits


def numbers(characters: np.ndarray, decimals: int) -> np.ndarray | None:
    """Numbers that are all printed as `%12.3f` or `%5d` does, with spaces before them; None if one is not.

    Args:
        characters: of shape (width, numbers), uint8.
        decimals: digits after the point; 0: there is no point.
    """
    import numpy as np

    width = len(characters)
    point = width - decimals - 1 if decimals else width
    if not 0 < point <= width <= _MOST_CHARACTERS:
        return None
    is_space = characters == ord(" ")
    expected = characters - np.uint8(ord("0")) <= 9
    expected |= is_space
    expected[point : point + 1] = characters[point : point + 1] == ord(".")
    # The last digit before the point is there, and after the first digit no space follows.
    if not expected.all() or is_space[point - 1].any() or (is_space[1:] > is_space[:-1]).any():
        return None
    places = [10.0**place for place in range(width - (decimals > 0) - 1, -1, -1)]
    if decimals:
        places.insert(point, 0.0)
    # The lower four bits of a digit are its value, those of a space are 0. Not `@`: the libraries behind it start
    # threads, which a login node and the other processes here do without.
    return np.einsum("i,ij->j", places, characters & 15) / 10**decimals
