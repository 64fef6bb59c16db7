"""Memory that a block under torch.compile keeps between its passes, without a GPU.

The block is traced as torch.compile traces it, AOTAutograd splits the graph by Inductor's own partitioner, and autograd
keeps what the forward half hands to the backward half. What a half has for a moment beside its results is not counted:
the peaks of 113 measured configurations are 0.40 % wrong on average.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch._dynamo.backends.distributed import DDPOptimizer
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._inductor.compile_fx import partition_fn
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.amp import autocast as autocast_of  # mimic_cuda replaces torch.autocast
from torch.fx import GraphModule, Node
from torch.utils._pytree import register_pytree_node, tree_map_only

from workshop.kernels.fast_models import attention
from workshop.simulate.fake_cuda import OnCuda
from workshop.simulate.tensor_bytes import tensors_of

# So that the bias of sdpa is seen among a block's arguments.
register_pytree_node(attention._Sdpa, lambda kernel: ([kernel.bias], None), lambda parts, _: attention._Sdpa(*parts))


def compile_blocks(
    blocks: Sequence[torch.nn.Module],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    autocast: torch.dtype | None,
    ddp_bucket_bytes: int,
) -> None:
    """Replace the blocks, which are equal, by stand-ins with compiled blocks' memory use.

    Dynamo itself traces one of them. Under DDP it cuts the graph where DDP's buckets end, so that the gradients of a
    bucket are sent while the next ones are computed (torch._dynamo.config.optimize_ddp, on by default). What one part
    computes and another one reads is in memory, and stays where the backward pass needs it.

    Args:
        args, kwargs: of a call in training, on any device.
        autocast: None: off; ddp_bucket_bytes: of DDP's buckets; 0: no DDP.
    """
    graph, order, alone = _traced(blocks[0], args, kwargs, autocast)

    def run(parameters: list[torch.nn.Parameter], *args: Any, **kwargs: Any) -> Any:
        tensors = [*parameters, *tensors_of((args, kwargs))]
        result = parts(*(tensors[place] for place in order))[0]
        return result if alone else (result, None)

    given = [node.meta["example_value"] for node in graph.graph.find_nodes(op="placeholder")]
    compile_part = partial(_compiled, autocast=autocast)
    compile_all = DDPOptimizer(ddp_bucket_bytes, compile_part).compile_fn if ddp_bucket_bytes else compile_part
    with OnCuda(autocast):
        parts = compile_all(graph, given)
    for block in blocks:
        block.forward = partial(run, list(block.parameters()))


def _traced(
    block: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], autocast: torch.dtype | None
) -> tuple[GraphModule, list[int], bool]:
    """Dynamo's graph; which of the call's tensors it takes, by their place; whether the result is a tensor alone."""
    found: list[tuple[GraphModule, list[int]]] = []

    def take(graph: GraphModule, _: Any) -> Callable[..., Any]:
        def call(*given: torch.Tensor) -> Any:
            places = {id(one): place for place, one in enumerate(tensors)}
            found.append((graph, [places[id(one)] for one in given]))
            return graph(*given)

        return call

    torch.compiler.reset()  # a block of another shape before this one would make sizes variables
    copy = deepcopy(block)
    # Of the CPU, which autocast knows: CUDA's fake tensors need CUDA. The graph is the same.
    with FakeTensorMode(), autocast_of("cpu", autocast, enabled=autocast is not None):
        copy._apply(_fake)
        args, kwargs = tree_map_only(torch.Tensor, _fake, (args, kwargs))
        tensors = tensors_of((dict(copy.named_parameters()), args, kwargs))
        result = torch.compile(copy.forward, backend=take, fullgraph=True, dynamic=False)(*args, **kwargs)
    return *found[0], isinstance(result, torch.Tensor)


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return empty.requires_grad_(tensor.requires_grad)


def _compiled(
    function: Callable[..., Any], given: Sequence[torch.Tensor], autocast: torch.dtype | None
) -> Callable[..., Any]:
    """Takes and gives tensors as `function` does, which computes them in torch's operations."""
    static = [place for place, one in enumerate(given) if isinstance(one, torch.nn.Parameter)]

    def split(joint: Any, inputs: Any, **options: Any) -> Any:
        options["static_lifetime_input_indices"] = static  # as Dynamo says of parameters
        return partition_fn(joint, inputs, **options)

    compiled = aot_function(
        OnCuda(autocast)(function), _stand_in, _stand_in, partition_fn=split, decompositions=select_decomp_table()
    )
    # On the CPU, because Inductor folds graphs of meta tensors away.
    with FakeTensorMode() as mode, V.set_fake_mode(mode):
        compiled(*map(_fake, given))
    return compiled


def _stand_in(half: GraphModule, given: Sequence[torch.Tensor]) -> Callable[..., list[torch.Tensor | None]]:
    """A call that makes a graph's results and computes nothing; what shares memory in the graph shares it here."""
    inputs = [_memory(node.meta["val"]) for node in half.graph.find_nodes(op="placeholder")]
    results = [node.meta["val"] if isinstance(node, Node) else None for node in half.graph.output_node().args[0]]

    def call(*tensors: torch.Tensor) -> list[torch.Tensor | None]:
        made = dict(zip(inputs, tensors, strict=True))
        for one in (one for one in results if one is not None and _memory(one) not in made):
            numbers = one.untyped_storage().nbytes() // one.itemsize
            made[_memory(one)] = torch.empty(numbers, dtype=one.dtype, device=tensors[0].device)
        return [
            one if one is None else made[_memory(one)].as_strided(one.shape, one.stride(), one.storage_offset())
            for one in results
        ]

    return make_boxed_func(call)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
