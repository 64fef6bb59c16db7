"""A block of each kind stands for all of them: the others are left out of a simulated step, and added to its result.

`order` is, for each block of the whole model, the number of the block that stands for it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch

from workshop.simulate.tensor_bytes import Name, Operations, Part
from workshop.training.models import blocks_of

# Attributes of a block's modules that count it.
_NUMBERS = ("layer_idx", "layer_id", "layer_number", "block_idx")


def cut(model: torch.nn.Module) -> list[int]:
    """Leave the first and the last block, and between them one of each kind. Returns the order."""
    blocks, config, kinds = blocks_of(model), model.config, kinds_of(model)
    types, last = getattr(config, "layer_types", None), len(blocks) - 1
    middle = {kind: number for number, kind in reversed([*enumerate(kinds)][1:last])}
    stays = sorted({0, *middle.values(), last})
    for place, number in enumerate(stays):
        blocks[place] = blocks[number]
    del blocks[len(stays) :]
    config.num_hidden_layers = len(stays)
    if types:
        with suppress(AttributeError):  # computed from other numbers, which the blocks have read
            config.layer_types = [types[number] for number in stays]
    return [stays.index(number if number in (0, last) else middle[kinds[number]]) for number in range(last + 1)]


def kinds_of(model: torch.nn.Module) -> list[str]:
    """Of each block what it computes."""
    blocks = blocks_of(model)
    types = getattr(model.config, "layer_types", None) or [""] * len(blocks)
    return [_kind(block, own) for block, own in zip(blocks, types, strict=True)]


def _kind(block: torch.nn.Module, layer_type: str) -> str:
    """Equal for blocks that compute the same: their modules, sizes and switches."""
    plain = (bool, int, float, str, type(None))
    found: list[Any] = [layer_type, [tuple(one.shape) for one in block.parameters()]]
    for name, module in block.named_modules():
        facts = {key: value for key, value in vars(module).items() if isinstance(value, plain) and key not in _NUMBERS}
        found.append((name, type(module).__name__, sorted(facts.items())))
    return repr(found)


def _sequence(parts: Sequence[Part], order: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The parts' numbers and units as the whole model has them."""
    place = {(part.phase, part.unit): number for number, part in enumerate(parts)}
    for number, part in enumerate(parts):
        if not part.unit.isdecimal():
            yield number, part.unit
        elif not parts[number - 1].unit.isdecimal():  # the first of a pass
            blocks = [*enumerate(order)][:: 1 if part.phase == "forward" else -1]
            yield from ((place[part.phase, str(stand_in)], str(block)) for block, stand_in in blocks)


def parts_of_all(parts: Sequence[Part], order: Sequence[int], kinds: Sequence[str]) -> list[Part]:
    """The parts with all blocks, each with the events of its stand-in. Args: kinds: of all blocks."""
    sizes = {name: size for part in parts for name, size in part.events if size > 0}
    found, there = [], {}
    for number, unit in _sequence(parts, order):
        found.append(Part(parts[number].phase, unit))
        for name, size in parts[number].events:
            for one in _names(name, parts[number].unit, unit, order):
                if size > 0:
                    there[one] = size
                elif one[1].isdecimal() and kinds[int(one[1])] != kinds[order.index(int(name[1]))]:
                    # The block beside it is of another kind: its last tensor of this size.
                    alike = [other for other in there if other[:2] == one[:2] and there[other] == sizes[name]]
                    one = alike[-1] if alike else one
                if one in there:
                    found[-1].events.append((one, size))
                    if size == 0:
                        del there[one]
    return found


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
