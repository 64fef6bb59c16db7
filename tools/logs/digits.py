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
    digits = characters - np.uint8(ord("0"))
    is_digit = digits <= 9
    expected = is_digit.copy()
    expected[: point - 1] |= characters[: point - 1] == ord(" ")
    expected[point : point + 1] = characters[point : point + 1] == ord(".")
    # After the first digit no space follows.
    if not (expected.all() and (is_digit[: point - 1] <= is_digit[1:point]).all()):
        return None
    places = [10.0**place for place in range(width - (decimals > 0) - 1, -1, -1)]
    if decimals:
        places.insert(point, 0.0)
    # Not `@`: the libraries behind it start threads, which a login node and the other processes here do without.
    return np.einsum("i,ij->j", places, digits * is_digit) / 10**decimals
