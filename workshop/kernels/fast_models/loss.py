"""Fused linear cross-entropy in chunks: the logits of all positions never exist together.

BLOOM's vocabulary has 250,880 entries. Logits of 32 x 512 tokens take 15.3 GiB in fp32, and the usual way keeps several
copies: the head's output, its fp32 copy, the probabilities, their gradient. Here a chunk of positions at a time gets
its logits, loss and gradients, and only sums remain. The gradients are computed in the forward pass, while the logits
exist: three matrix products per position, as many as the usual way needs.

Liger Kernel's fused linear cross-entropy, arXiv:2410.10989, sizes its chunks by the hidden size and so adds up the
gradient of BLOOM's head a hundred times per batch; larger chunks add it up a few times.
"""

from functools import cache
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from workshop.data.encoding import IGNORE
from workshop.private_names import allow_any_length


class LossHead(torch.nn.Linear):
    """The model's head; with targets, token ids or IGNORE, it returns the sum of their cross-entropies (nats, fp32).

    As a module of the model it has its sharded weights gathered, and hooks see its input. In mixed precision its
    products are computed in autocast's type.

    Attributes:
        implementation: "full", all logits at once as the library does; "chunked"; "liger", Liger Kernel's, on a GPU;
            and for further/dimensions/ "recomputed", where the backward pass computes the logits again.
        chunk: positions ("recomputed": of each row) whose logits exist at a time; not with "full".
        targets: [rows, positions], where the model does not pass them on.
    """

    implementation = "recomputed"
    chunk: int
    targets: torch.Tensor | None = None

    def forward(self, hidden: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        """[positions, hidden size] in, for "recomputed" [rows, positions, hidden size]; with as many targets."""
        targets = self.targets if targets is None else targets
        if targets is None:
            return super().forward(hidden)
        if self.implementation in ("chunked", "liger"):
            return _Chunked.apply(hidden, self.weight, targets, self.chunk, self.implementation == "liger")
        starts = range(0, hidden.shape[1], self.chunk) if self.implementation == "recomputed" else [0]
        if len(starts) == 1:
            return self.loss_sum(hidden, targets)
        chunks = [(hidden[:, i : i + self.chunk], targets[:, i : i + self.chunk]) for i in starts]
        return sum(checkpoint(self.loss_sum, *chunk, use_reentrant=False) for chunk in chunks)

    def loss_sum(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = super().forward(hidden).flatten(0, -2).float()
        return functional.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE, reduction="sum")


def _loss_and_gradient(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the summed loss of [positions, vocabulary] logits in fp32, and its gradient in the logits' type."""
    log_probabilities = logits.log_softmax(dim=1, dtype=torch.float32)
    counts = targets != IGNORE
    of_targets = log_probabilities.gather(1, targets.clamp(min=0).unsqueeze(1)).squeeze(1)
    loss = -(of_targets * counts).sum()
    # A comparison with the column's number, not scatter_: a compiler can fuse it into the pass over the logits.
    is_target = torch.arange(logits.shape[1], device=logits.device) == targets.unsqueeze(1)
    gradient = (log_probabilities.exp() - is_target.float()) * counts.unsqueeze(1)
    return loss, gradient.to(logits.dtype)


@cache
def _compiled() -> Any:
    return torch.compile(_loss_and_gradient)


def _fused_on_gpu(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Run `_loss_and_gradient` as one kernel; its ten operations would each read and write gigabytes."""
    # Any number of rows, or every batch's last chunk would be compiled anew; a fixed vocabulary, which makes the kernel
    # 1.4 times as fast (seen in profiles of rung 10).
    for rows in (logits, targets):
        allow_any_length(rows)
    return _compiled()(logits, targets)


def _liger(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Run Liger Kernel's kernel, which writes the gradient over the logits; its other options stay off.

    Its autograd function counts the targets: the CPU waits for that in every batch, and Triton compiles the kernel
    again for the first number that 16 divides.
    """
    from liger_kernel.ops.cross_entropy import MAX_FUSED_SIZE, liger_cross_entropy_kernel

    positions, vocabulary = logits.shape
    losses = torch.zeros(positions, dtype=torch.float32, device=logits.device)
    liger_cross_entropy_kernel[(positions,)](
        X_ptr=logits, X_stride=vocabulary, Y_ptr=targets, Y_stride=1, loss_ptr=losses, loss_stride=1,
        n_cols=vocabulary, ignore_index=IGNORE, reduction="sum", HAS_GRADIENTS=True,
        BLOCK_SIZE=min(MAX_FUSED_SIZE, 1 << (vocabulary - 1).bit_length()), num_warps=32,
        weight_ptr=None, HAS_WEIGHT=False, weight_sum=0.0, sum_non_ignore_weight=1, softcap=None, HAS_SOFTCAPPING=False,
        n_non_ignore=1, z_loss_ptr=None, RETURN_Z_LOSS=False, lse_square_scale=0.0, label_smoothing=0.0,
        token_accuracy_ptr=None, token_accuracy_stride=0, RETURN_TOKEN_ACCURACY=False,
        predicted_tokens_ptr=None, predicted_tokens_stride=0, RETURN_PREDICTED_TOKENS=False,
    )  # fmt: skip
    return losses.sum(), logits


def product_type(factor: torch.Tensor) -> torch.dtype:
    """Return the type of a matrix product of this tensor: autocast's if that is on, else the tensor's."""
    device = factor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else factor.dtype


class _Chunked(torch.autograd.Function):
    """The loss of "chunked" and "liger", with the gradients of all its chunks."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunk: int, liger: bool
    ) -> torch.Tensor:
        dtype = product_type(weight)
        evaluate = _liger if liger else _fused_on_gpu if hidden.is_cuda else _loss_and_gradient
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
                del gradient  # as large as the chunk's logits; else it lives until the next chunk has its own
        ctx.gradients = (hidden_gradient, weight_gradient.to(weight.dtype) if need_weight else None)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients = [None if gradient is None else gradient.mul_(upstream) for gradient in ctx.gradients]
        ctx.gradients = None  # gigabytes
        return *gradients, None, None, None
