"""What a compiled block keeps under DDP: Dynamo cuts its graph where DDP's buckets end.

So the gradients of a bucket are sent while the next ones are computed (torch._dynamo.config.optimize_ddp, on by
default). What one part computes and another one reads is in memory, and stays where the backward pass needs it. Here
Dynamo itself traces the block, and its own DDPOptimizer cuts the graph.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch._dynamo.backends.distributed import DDPOptimizer
from torch._subclasses import FakeTensorMode
from torch.amp import autocast as autocast_of  # answers_of_cuda replaces torch.autocast
from torch.fx import GraphModule
from torch.utils._pytree import tree_map_only

from workshop.compiled_on_meta import CompiledBlock, Computing, StandIn, compile_graph, tensors_of


def compile_block_under_ddp(
    block: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    computing: Computing,
    autocast: torch.dtype | None,
    bucket_bytes: int,
) -> CompiledBlock:
    """Args: args, kwargs, computing: as for compile_block; autocast: None: off; bucket_bytes: of DDP's buckets."""
    graph, order, alone = _traced(block, args, kwargs, autocast)
    graphs: list[StandIn] = []

    def compile_part(part: GraphModule, given: list[torch.Tensor], **_: Any) -> StandIn:
        graphs.append(StandIn(compile_graph(part, given, computing)))
        return graphs[-1]

    given = [node.meta["example_value"] for node in graph.graph.find_nodes(op="placeholder")]
    with computing():
        cut = DDPOptimizer(bucket_bytes, compile_part).compile_fn(graph, given)
    return CompiledBlock(lambda *tensors: cut(*(tensors[place] for place in order))[0], tuple(graphs), alone)


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
