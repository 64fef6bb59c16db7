"""How many bytes of tensors live while PyTorch computes, part by part, with the operations that were launched."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

# PyTorch's CUDA allocator rounds every tensor up to a multiple: c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize.
ALLOCATION_BYTES = 512
# Per block and micro-batch; a few hundred are usual, a loop over 512 positions launches 7,000 or more.
_MOST_LAUNCHES = 20_000

# A tensor's name: phase and unit of the part that made it, and its place among those that the part made.
Name = tuple[str, str, int]
# Its bytes where it is made, 0 where it is freed, their negative where it becomes a gradient.
Event = tuple[Name, int]
# By part's unit and class of operation: launches, FLOPs and bytes.
Operations = dict[str, dict[str, dict[str, int]]]


def allocated_bytes(tensor: torch.Tensor) -> int:
    """The bytes of the tensor's memory, as the allocator counts them."""
    return -(-tensor.untyped_storage().nbytes() // ALLOCATION_BYTES) * ALLOCATION_BYTES


def tensors_of(values: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts, in their order."""
    return [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]


@dataclass
class Part:
    """A stretch of the step: the forward or backward pass of the embedding, of one block, or of head and loss."""

    phase: str
    unit: str
    events: list[Event] = field(default_factory=list)  # in their order


def memory_of(parts: Sequence[Part]) -> Iterator[dict[str, int]]:
    """Bytes in each part of a micro-batch, beside the parameters.

    peak_bytes: without finished gradients; peak_with_gradients_bytes: with those that are ready by then, from none at
    the step's beginning; end_bytes, gradient_bytes: when it ends, beside the gradients, and of these.
    """
    live: dict[Name, int] = {}
    now = gradients = 0
    for part in parts:
        peak, with_gradients = now, now + gradients
        for name, size in part.events:
            if size < 0:
                gradients -= size
                continue
            now += size or -live.pop(name)
            if size:
                live[name] = size
            peak, with_gradients = max(peak, now), max(with_gradients, now + gradients)
        peaks = {"peak_bytes": peak, "peak_with_gradients_bytes": with_gradients}
        yield peaks | {"end_bytes": now, "gradient_bytes": gradients}


class Tracker(TorchDispatchMode):
    """Counts living bytes as the CUDA allocator would, operations, their FLOPs and the bytes they touch.

    Operations by part's unit and class: matrix, unaligned, expert and fp32 product, attention, dequantize, other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[Part] = []
        self.operations: Operations = {}
        self._names: dict[int, Name | None] = {}  # of living tensors by their memory; None: not counted
        self._made = 0  # in this part

    def begin(self, phase: str, unit: str) -> None:
        self.parts.append(Part(phase, unit))
        self._made = 0

    def ignore(self, tensor: torch.Tensor) -> None:
        """A parameter or a buffer is not counted."""
        self._see(tensor, counted=False)

    def _see(self, tensor: torch.Tensor, counted: bool = True) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, allocated_bytes(tensor)
        if key in self._names or not size:
            return
        self._names[key] = None
        weakref.finalize(storage, self._free, key)
        if counted:
            part = self.parts[-1]
            self._names[key] = part.phase, part.unit, self._made
            self._made += 1
            part.events.append((self._names[key], size))

    def keep(self, gradient: torch.Tensor) -> None:
        """It is a parameter's from now on."""
        self.parts[-1].events.append((self._names[gradient.untyped_storage()._cdata], -gradient.nbytes))

    def _free(self, key: int) -> None:
        if name := self._names.pop(key):
            self.parts[-1].events.append((name, 0))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read = tensors_of((args, kwargs))
        sources = {one.untyped_storage()._cdata for one in read}
        new = [one for one in tensors_of(result) if one.untyped_storage()._cdata not in sources]
        if new or func._schema.is_mutable:
            classes = self.operations.setdefault(self.parts[-1].unit, {})
            count = classes.setdefault(_class(func, read, new), {"launches": 0, "flops": 0, "bytes": 0})
            count["launches"] += 1
            if count["launches"] > _MOST_LAUNCHES:
                most = f"{_MOST_LAUNCHES:,} operations"
                raise RuntimeError(f"a block launches over {most}, as a loop over the positions does")
            count["bytes"] += sum(one.numel() * one.element_size() for one in (*read, *new))
            if func._overloadpacket in flop_registry:
                count["flops"] += flop_registry[func._overloadpacket](*args, **kwargs, out_val=result)
        for one in new:
            self._see(one)
        return result


def _class(func: Any, read: list[torch.Tensor], new: list[torch.Tensor]) -> str:
    name = func._overloadpacket.__name__
    if "attention" in name:
        return "attention"
    if name == "new_empty":  # 4-bit weights made whole (adapters_on_meta.py): not fused in compiled blocks either
        return "dequantize"
    if name.startswith("grouped_mm"):  # of experts; autocast leaves it alone
        return "fp32 product" if read[0].dtype == torch.float32 else "expert product"
    if func._overloadpacket not in flop_registry:
        return "other"
    unaligned = "mm" in name and any(map(_is_unaligned, (*read, *new)))
    return "unaligned product" if unaligned else "matrix product"


def _is_unaligned(tensor: torch.Tensor) -> bool:
    """Whether the rows of a matrix in half precision do not begin at multiples of 16 bytes: matrix units need that."""
    return tensor.element_size() == 2 and tensor.dim() > 1 and max(tensor.stride()[-2:]) % 8 > 0
