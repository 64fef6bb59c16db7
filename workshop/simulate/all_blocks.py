"""A block of each kind stands for all of them: the others are left out of a simulated step, and added to its result.

`order` is, for each block of the whole model, the number of the block that stands for it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from workshop.simulate.tensor_bytes import Event, Name, Operations, Part
from workshop.training.models import blocks_of

# Attributes of a block's modules that count it.
_NUMBERS = ("layer_idx", "layer_id", "layer_number", "block_idx")


def cut(model: torch.nn.Module) -> list[int]:
    """Leave the first and the last block, and between them one of each kind. Returns the order."""
    blocks, config = blocks_of(model), model.config
    types = getattr(config, "layer_types", None) or [""] * len(blocks)
    kinds = [_kind(block, own) for block, own in zip(blocks, types, strict=True)]
    last = len(blocks) - 1
    middle = {kind: number for number, kind in reversed([*enumerate(kinds)][1:last])}
    stays = sorted({0, *middle.values(), last})
    for place, number in enumerate(stays):
        blocks[place] = blocks[number]
    del blocks[len(stays) :]
    config.num_hidden_layers = len(stays)
    if types[0]:
        with suppress(AttributeError):  # computed from other numbers, which the blocks have read
            config.layer_types = [types[number] for number in stays]
    return [stays.index(number if number in (0, last) else middle[kinds[number]]) for number in range(last + 1)]


def _kind(block: torch.nn.Module, layer_type: str) -> str:
    """Equal for blocks that compute the same: their modules, sizes and switches."""
    plain = (bool, int, float, str, type(None))
    found: list[Any] = [layer_type, [tuple(one.shape) for one in block.parameters()]]
    for name, module in block.named_modules():
        facts = {key: value for key, value in vars(module).items() if isinstance(value, plain) and key not in _NUMBERS}
        found.append((name, type(module).__name__, sorted(facts.items())))
    return repr(found)


def parts_of_all(parts: Sequence[Part], order: Sequence[int]) -> list[Part]:
    """The parts with all blocks, each with the memory that its stand-in keeps or frees.

    Between the passes autocast frees its copies, so the backward pass begins with what it will free.
    """
    passed = [(before, part) for before, part in pairwise(parts) if part.phase == "backward" and part.unit.isdecimal()]
    freed = {int(part.unit): before.end_bytes - part.end_bytes for before, part in passed}
    found: list[Part] = []
    for number, unit in _sequence(parts, order):
        part, before = parts[number], parts[number - 1] if number else Part("", "")
        now = found[-1] if found else before
        if part.phase == "backward" and now.phase == "forward":
            now.end_bytes = before.end_bytes + sum(freed[one] for one in order) - sum(freed.values())
        more, more_gradients = now.end_bytes - before.end_bytes, now.gradient_bytes - before.gradient_bytes
        found.append(
            replace(
                part,
                unit=unit,
                peak_bytes=part.peak_bytes + more,
                peak_with_gradients_bytes=part.peak_with_gradients_bytes + more + more_gradients,
                end_bytes=part.end_bytes + more,
                gradient_bytes=part.gradient_bytes + more_gradients,
            )
        )
    return found


def _sequence(parts: Sequence[Part], order: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The parts' numbers and units as the whole model has them."""
    place = {(part.phase, part.unit): number for number, part in enumerate(parts)}
    for number, part in enumerate(parts):
        if not part.unit.isdecimal():
            yield number, part.unit
        elif not parts[number - 1].unit.isdecimal():  # the first of a pass
            blocks = [*enumerate(order)][:: 1 if part.phase == "forward" else -1]
            yield from ((place[part.phase, str(stand_in)], str(block)) for block, stand_in in blocks)


def events_of_all(parts: Sequence[Part], order: Sequence[int]) -> Iterator[Event]:
    """What the allocator does in a micro-batch with all blocks."""
    there: set[Name] = set()
    for number, unit in _sequence(parts, order):
        for name, size in parts[number].events:
            names = _names(name, parts[number].unit, unit, order)
            if size > 0:
                there.update(names)
            names = [one for one in names if one in there]
            if size == 0:
                there.difference_update(names)
            yield from ((one, size) for one in names)


def _names(name: Name, stand_in: str, unit: str, order: Sequence[int]) -> list[Name]:
    """The tensors that a stand-in's event means: a block's own, of the one beside it, or, outside, of all blocks."""
    phase, maker, place = name
    if not maker.isdecimal():
        return [name]
    if not unit.isdecimal():
        return [(phase, str(number), place) for number, one in enumerate(order) if one == int(maker)]
    return [(phase, str(int(unit) + int(maker) - int(stand_in)), place)]


def operations_of_all(operations: Operations, order: Sequence[int]) -> dict[str, dict[str, dict[str, int]]]:
    """By place, inside the blocks or outside, and class."""
    found: dict[str, dict[str, Counter[str]]] = {"blocks": {}, "outside": {}}
    for unit, classes in operations.items():
        place, times = ("blocks", order.count(int(unit))) if unit.isdecimal() else ("outside", 1)
        for name, counts in classes.items():
            found[place].setdefault(name, Counter()).update({what: times * count for what, count in counts.items()})
    return found
