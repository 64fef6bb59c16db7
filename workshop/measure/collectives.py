"""Count the collectives of one step while it runs.

Every collective of this repository, DDP's C++ reducer, FSDP and DeepSpeed passes through PyTorch's dispatcher as an
operator of the namespaces `c10d` or `_c10d_functional`. A dispatch mode sees its tensors and its group, on the CPU
(gloo) and on GPUs (NCCL). PyTorch's CommDebugMode counts the same way, without sizes.
"""

from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from workshop.private_names import TorchDispatchMode, call_of, process_group, tree_leaves
from workshop.record.collectives import Collective

# The first that an operator's name contains: c10d.allreduce_, c10d._allgather_base_, _c10d_functional.all_reduce, …
_COLLECTIVES = ("reduce-scatter", "all-gather", "all-reduce", "all-to-all", "broadcast", "reduce", "gather", "scatter")
KINDS = {name.replace("-", ""): name for name in _COLLECTIVES} | {"send": "send", "recv": "receive"}
SILENT = ("wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier_")  # carry no data of the model


class CollectiveCounter(TorchDispatchMode):
    """`with CollectiveCounter() as counter:` counts this rank's collectives in `counter.calls`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[Collective] = Counter()

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # the DTensor calls us again, with the tensors of this rank and its collectives
        result = operator(*args, **(kwargs or {}))
        # Ulysses has its all-to-all inside an operator of DeepSpeed, where a dispatch mode does not look.
        if operator.namespace in ("c10d", "_c10d_functional", "deepspeed"):
            name, arguments = call_of(operator, args)
            if name not in SILENT:
                self.calls[_collective(name, arguments | (kwargs or {}), result)] += 1
        return result


def _collective(name: str, arguments: dict[str, Any], result: Any) -> Collective:
    plain = name.replace("_", "")
    kind = next((kind for part, kind in KINDS.items() if part in plain), name)
    messages = (tree_leaves(value) for value in (*arguments.values(), result))
    tensors = ([leaf for leaf in message if isinstance(leaf, torch.Tensor)] for message in messages)
    message = max(tensors, key=lambda tensors: sum(tensor.nbytes for tensor in tensors))
    group = arguments.get("process_group", arguments.get("group_name"))
    if isinstance(group, str):
        group = process_group(group)
    elif isinstance(group, torch.ScriptObject):
        group = dist.ProcessGroup.unbox(group)
    ranks = tuple(dist.get_process_group_ranks(group))
    dtype = str(message[0].dtype).removeprefix("torch.") if message else ""
    peer = arguments.get("dst" if kind == "send" else "src") if kind in ("send", "receive") else None
    peer = None if peer is None else ranks[peer]
    message_bytes = sum(tensor.nbytes for tensor in message)
    if rows := arguments.get("input_split_sizes"):  # an uneven all-to-all: as an even one that sends as much
        sent = arguments["input"].nbytes * (1 - rows[dist.get_group_rank(group, dist.get_rank())] / max(1, sum(rows)))
        message_bytes = round(sent * len(ranks) / max(1, len(ranks) - 1))
    return Collective(kind, ranks, message_bytes, peer=peer, dtype=dtype)
