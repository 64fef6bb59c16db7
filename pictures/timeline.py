"""A rank's memory while a step runs through three layers: what is whole, and what is the rank's own part only."""

from collections.abc import Callable

from pictures.svg import GRADIENTS, GREY, OPTIMIZER, WEIGHTS, Picture

# Forward pass through layers 1 2 3, backward through 3 2 1, update.
TIMES = ("F1", "F2", "F3", "B3", "B2", "B1", "update")
WHOLE, OWN, NONE = "whole", "own", "none"
Holds = Callable[[int, str], str]  # layer 1 to 3 and time -> what the rank holds


def timeline(
    picture: Picture, x: float, title: str, weights: Holds, gradients: Holds, optimizer: Holds, notes: list[str]
) -> None:
    """One rank's states over a step: a full box is a whole layer, a low one the rank's own part.

    The optimizer's states have one row: they are the same for all layers.
    """
    picture.words(x, 34, title, 14, bold=True)
    for column, time in enumerate(TIMES):
        picture.words(x + 76 + column * 29, 56, time, 10, "middle")
    states = (("weights", WEIGHTS, weights, 3), ("gradients", GRADIENTS, gradients, 3))
    for group, (name, fill, holds, rows) in enumerate((*states, ("optimizer", OPTIMIZER, optimizer, 1))):
        for layer in range(1, rows + 1):
            top = 66 + (group * 3 + layer - 1) * 23 + group * 8
            picture.words(x + 58, top + 14, f"{name} {layer}" if rows > 1 else name, 11, "end")
            for column, time in enumerate(TIMES):
                height = {WHOLE: 18, OWN: 7, NONE: 0}[holds(layer, time)]
                left = x + 62 + column * 29
                picture.box(left, top, 27, 18, "none", GREY)
                if height:
                    picture.box(left, top + 18 - height, 27, height, fill)
    for line, note in enumerate(notes):
        picture.words(x, 267 + line * 17, note, 12)


def explain_timeline(picture: Picture) -> None:
    words = (
        "F1: forward pass of layer 1. B1: its backward pass. Full box: the layer is whole. Low box: the GPU's own part."
    )
    picture.words(24, 333, words, 12)


def always(held: str) -> Holds:
    return lambda layer, time: held


def while_computing(layer: int, time: str) -> str:
    return WHOLE if time[1:] == str(layer) else OWN


def from_forward_to_backward(layer: int, time: str) -> str:
    start, end = TIMES.index(f"F{layer}"), TIMES.index(f"B{layer}")
    return WHOLE if start <= TIMES.index(time) <= end else OWN


def gradients_until(held_after: str) -> Holds:
    """Whole while the layer's backward pass computes them; then as `held_after`."""

    def holds(layer: int, time: str) -> str:
        made = TIMES.index(f"B{layer}")
        now = TIMES.index(time)
        return NONE if now < made else WHOLE if now == made else held_after

    return holds
