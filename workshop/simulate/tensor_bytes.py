"""How many bytes of tensors live while PyTorch computes, part by part, with the operations that were launched."""

import weakref
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
# Its bytes where it is made, 0 where it is freed, KEPT where it becomes a gradient.
Event = tuple[Name, int]
KEPT = -1
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
    """A stretch of the step: the forward or backward pass of the embedding, of one block, or of head and loss.

    Attributes:
        peak_bytes: beside parameters and their finished gradients.
        peak_with_gradients_bytes: the same and the gradients that are ready by then, from none at the step's beginning.
        end_bytes: beside parameters and gradients when it ends.
        gradient_bytes: of the gradients that are ready when it ends.
        events: in their order.
    """

    phase: str
    unit: str
    peak_bytes: int = 0
    peak_with_gradients_bytes: int = 0
    end_bytes: int = 0
    gradient_bytes: int = 0
    events: list[Event] = field(default_factory=list)


class Tracker(TorchDispatchMode):
    """Counts living bytes as the CUDA allocator would, operations, their FLOPs and the bytes they touch.

    Operations by part's unit and class: matrix, unaligned, expert and fp32 product, attention, dequantize, other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}
        self.now_bytes = 0
        self.parts: list[Part] = []
        self.operations: Operations = {}
        self.gradient_bytes = 0
        self._names: dict[int, Name] = {}  # of those in `live`
        self._made = 0  # in this part

    def begin(self, phase: str, unit: str) -> None:
        self.end()
        self.parts.append(Part(phase, unit, self.now_bytes, self.now_bytes + self.gradient_bytes))
        self._made = 0

    def end(self) -> None:
        if self.parts:
            self.parts[-1].end_bytes, self.parts[-1].gradient_bytes = self.now_bytes, self.gradient_bytes

    def ignore(self, tensor: torch.Tensor) -> None:
        """A parameter, a buffer, a gradient: from now on not counted."""
        key = tensor.untyped_storage()._cdata
        self.now_bytes -= self.live.get(key, 0)
        self.live[key] = 0
        weakref.finalize(tensor.untyped_storage(), self.live.pop, key, None)

    def _see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, allocated_bytes(tensor)
        if key in self.live or not size:
            return
        self.live[key] = size
        self.now_bytes += size
        part = self.parts[-1]
        part.peak_bytes = max(part.peak_bytes, self.now_bytes)
        part.peak_with_gradients_bytes = max(part.peak_with_gradients_bytes, self.now_bytes + self.gradient_bytes)
        self._names[key] = part.phase, part.unit, self._made
        self._made += 1
        part.events.append((self._names[key], size))
        weakref.finalize(storage, self._free, key)

    def keep(self, gradient: torch.Tensor) -> None:
        """It is a parameter's from now on, and not counted."""
        self.gradient_bytes += gradient.nbytes
        if name := self._names.get(gradient.untyped_storage()._cdata):
            self.parts[-1].events.append((name, KEPT))

    def _free(self, key: int) -> None:
        self.now_bytes -= self.live.pop(key, 0)
        if name := self._names.pop(key, None):
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
