"""What PyTorch's CUDA allocator reserves beside the allocated tensors: a step's allocations, replayed in their order.

A tensor takes a part of a larger one's memory, and the next large one no longer finds a place. Such gaps follow from
sizes and order alone. Source: c10/cuda/CUDACachingAllocator.cpp. A few sizes are as in PyTorch 2.13.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence

from workshop.simulate.tensor_bytes import ALLOCATION_BYTES, Event

_MIB = 2**20
# kSmallSize, kSmallBuffer; kMinLargeAlloc, kLargeBuffer; kRoundLarge.
_SMALL, _SMALL_SEGMENT, _LARGE, _SHARED_SEGMENT, _ROUND = _MIB, 2 * _MIB, 10 * _MIB, 20 * _MIB, 2 * _MIB
# cuBLAS's on a Hopper GPU: one for the thread of the forward pass, one for autograd's, from its first product on.
_WORKSPACE = 32 * _MIB + _MIB // 2
_STEPS = 3  # the first one makes the optimizer's states; all later ones are equal


class Allocator:
    """Segments, and in each of them blocks, which are split and merged; bytes."""

    def __init__(self) -> None:
        self.allocated = self.most_allocated = self.reserved = 0
        self.places: dict[Hashable, tuple[int, int, int]] = {}  # segment, start, size
        self._free: dict[bool, list[tuple[int, int, int]]] = {True: [], False: []}  # small or not: size, segment, start
        self._small: list[bool] = []  # by segment
        self._starts: dict[tuple[int, int], int] = {}  # of free blocks: segment and start, to the size
        self._ends: dict[tuple[int, int], int] = {}  # and segment and end

    def take(self, name: Hashable, size: int) -> None:
        size = -(-size // ALLOCATION_BYTES) * ALLOCATION_BYTES
        small = size <= _SMALL
        free = self._free[small]
        if (place := bisect_left(free, (size, -1, -1))) < len(free):
            block, segment, start = free[place]
            self._remove(block, segment, start)
        else:
            shared = _SMALL_SEGMENT if small else _SHARED_SEGMENT
            block, segment, start = shared if size < _LARGE else -(-size // _ROUND) * _ROUND, len(self._small), 0
            self._small.append(small)
            self.reserved += block
        if block - size > (0 if small else _SMALL):
            self._add(block - size, segment, start + size)
            block = size
        self.places[name] = segment, start, block
        self.allocated += block
        self.most_allocated = max(self.most_allocated, self.allocated)

    def give_back(self, name: Hashable) -> None:
        segment, start, size = self.places.pop(name)
        self.allocated -= size
        if after := self._starts.get((segment, start + size)):
            self._remove(after, segment, start + size)
        if before := self._ends.get((segment, start)):
            self._remove(before, segment, start - before)
        self._add((before or 0) + size + (after or 0), segment, start - (before or 0))

    def _add(self, size: int, segment: int, start: int) -> None:
        insort(self._free[self._small[segment]], (size, segment, start))
        self._starts[segment, start] = self._ends[segment, start + size] = size

    def _remove(self, size: int, segment: int, start: int) -> None:
        free = self._free[self._small[segment]]
        del free[bisect_left(free, (size, segment, start))]
        del self._starts[segment, start], self._ends[segment, start + size]


def gaps(events: Sequence[Event], weights: Sequence[tuple[int, bool]], micro_batches: int) -> int:
    """Bytes reserved beside the most allocated ones, where one GPU trains with the Trainer.

    Args: events: of a micro-batch with all blocks; weights: bytes, and whether they are trained, in fp32.
    """
    memory = Allocator()
    for place, (size, _) in enumerate(weights):
        memory.take(("weight", place), size)
    memory.take("forward", _WORKSPACE)
    for step in range(_STEPS):
        gradients: set[Hashable] = set()
        for number in range(micro_batches):
            for name, size in events:
                key = (number, name)
                if size < 0 and "backward" not in memory.places:
                    memory.take("backward", _WORKSPACE)
                if size > 0:
                    memory.take(key, size)
                elif size < 0 and number == 0:
                    gradients.add(key)
                elif key in memory.places and key not in gradients:  # a later gradient is added to the first one
                    memory.give_back(key)
            for key in [key for key in memory.places if key[0] == number and key not in gradients]:
                memory.give_back(key)
        if step == 0:
            for place, (size, trained) in enumerate(weights):
                for moment in ("first", "second") if trained else ():
                    memory.take((moment, place), size)
        for key in gradients:
            memory.give_back(key)
    return memory.reserved - memory.most_allocated
