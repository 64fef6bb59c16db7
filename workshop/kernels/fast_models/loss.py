"""The head and the cross-entropy in one step, so that the logits of all positions never exist together.

BLOOM's vocabulary has 250,880 entries. Logits of 32 x 512 tokens take 15.3 GiB in fp32, and the usual way keeps several
copies of them: the head's output, its fp32 copy, the probabilities, their gradient. Here a chunk of positions at a time
gets its logits, its loss and its gradients, and only the sums remain. The gradients are computed in the forward pass,
because that is when the logits are there: three matrix products per position, exactly as many as the usual way needs.

Same idea: Liger Kernel's fused linear cross-entropy, arXiv:2410.10989, which sizes its chunks by the hidden size and so
adds up the gradient of BLOOM's head a hundred times per batch; larger chunks add it up a few times.
"""

from functools import cache
from typing import Any

import torch
from torch.nn import functional

from workshop.kernels.fast_models.packing import IGNORE


def loss_sum(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, method: str, chunk: int
) -> torch.Tensor:
    """Sum of the cross-entropies (nats, fp32) over the positions whose target is not IGNORE.

    Args:
        hidden: [positions, hidden size].
        weight: the head, [vocabulary, hidden size]; in mixed precision the products are computed in autocast's type.
        targets: [positions], token ids or IGNORE.
        method: "full", all logits at once as the library does; "chunked"; "liger", Liger Kernel's, on a GPU; "quack",
            QuACK's, on a Hopper GPU.
        chunk: positions per chunk of all but "full"; with "quack" a multiple of 128.
    """
    if method == "chunked":
        return _Chunked.apply(hidden, weight, targets, chunk)
    if method == "liger" and len(targets):  # Liger Kernel cannot split nothing into chunks
        return _liger(hidden, weight, targets, chunk)
    if method == "quack" and len(targets):
        from quack.linear_cross_entropy import chunked_linear_cross_entropy  # casts to autocast's type itself

        return chunked_linear_cross_entropy(hidden, weight, targets, chunk, IGNORE, "sum", tuned=False)
    logits = functional.linear(hidden, weight).float()
    return functional.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum")


def _loss_and_gradient(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The summed loss of [positions, vocabulary] logits in fp32, and its gradient in the logits' type."""
    log_probabilities = logits.log_softmax(dim=1, dtype=torch.float32)
    counts = targets != IGNORE
    of_targets = log_probabilities.gather(1, targets.clamp(min=0).unsqueeze(1)).squeeze(1)
    loss = -(of_targets * counts).sum()
    # A comparison with the column's number, not scatter_: a compiler can fuse it into the one pass over the logits.
    is_target = torch.arange(logits.shape[1], device=logits.device) == targets.unsqueeze(1)
    gradient = (log_probabilities.exp() - is_target.float()) * counts.unsqueeze(1)
    return loss, gradient.to(logits.dtype)


@cache
def _compiled() -> Any:
    return torch.compile(_loss_and_gradient)


def _fused_on_gpu(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`_loss_and_gradient` as one kernel instead of ten operations, each of which would read and write gigabytes."""
    # Any number of rows, or the last chunk of every batch would be compiled anew; but the vocabulary's size is known
    # to the compiler, which makes the kernel 1.4 times as fast (profiles of rung 10, speed-ladder/RESULTS.md).
    for rows in (logits, targets):
        torch._dynamo.maybe_mark_dynamic(rows, 0)
    return _compiled()(logits, targets)


def _liger(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunk: int) -> torch.Tensor:
    """Liger Kernel's own autograd function, because its module has no argument for the chunks.

    Its default chunks are of the size of `hidden`: a few hundred positions with BLOOM's vocabulary, and for each of
    them it adds up the gradient of the whole head.
    """
    from liger_kernel.ops import LigerFusedLinearCrossEntropyFunction

    dtype = product_type(weight)
    vocabulary, hidden_size = weight.shape
    chunks = -(-len(hidden) // chunk)
    budget = -(-vocabulary // (chunks * hidden_size))  # in units of `hidden`'s size
    no_bias, no_class_weights, unused, fp32_sums = None, None, False, torch.float32
    with torch.autocast(hidden.device.type, enabled=False):
        loss, *_ = LigerFusedLinearCrossEntropyFunction.apply(
            *(hidden.to(dtype), weight.to(dtype), targets, no_bias, no_class_weights, IGNORE, 0.0, 0.0, "sum", None),
            *(unused, fp32_sums, unused, unused, unused, None, None, budget),
        )
    return loss


def product_type(factor: torch.Tensor) -> torch.dtype:
    """In which a matrix product of this tensor is computed: autocast's type where that is on, else its own."""
    device = factor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else factor.dtype


class _Chunked(torch.autograd.Function):
    """See loss_sum."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunk: int
    ) -> torch.Tensor:
        dtype = product_type(weight)
        evaluate = _fused_on_gpu if hidden.is_cuda else _loss_and_gradient
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        with torch.autocast(hidden.device.type, enabled=False):
            narrow, head = hidden.to(dtype), weight.to(dtype)
            loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
            hidden_gradient = torch.empty_like(hidden) if need_hidden else None
            weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if need_weight else None
            for start in range(0, len(hidden), chunk):
                part = slice(start, start + chunk)
                chunk_loss, gradient = evaluate(narrow[part] @ head.T, targets[part])
                loss += chunk_loss
                if need_hidden:
                    hidden_gradient[part] = gradient @ head
                if need_weight:
                    weight_gradient += gradient.T @ narrow[part]
                del gradient  # as large as the chunk's logits, and else there until the next chunk has both of its own
        ctx.gradients = (hidden_gradient, weight_gradient.to(weight.dtype) if need_weight else None)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients = [None if gradient is None else gradient.mul_(upstream) for gradient in ctx.gradients]
        ctx.gradients = None  # gigabytes, and of no use any more
        return *gradients, None, None
