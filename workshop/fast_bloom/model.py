"""BLOOM's forward pass for training, as the ladder's rungs change it step by step.

The classes of the living modules change, not the library's: other models in this process stay as they are, FSDP,
DeepSpeed and save_pretrained find the modules they know, and the parameters keep their names, so checkpoints fit both
ways.
"""

from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions
from transformers.models.bloom import modeling_bloom

from workshop.fast_bloom.attention import FusedBloomAttention, additive_mask, flex, sdpa
from workshop.fast_bloom.loss import loss_sum, product_type
from workshop.fast_bloom.targets import IGNORE, next_targets


def use_fast_forward(model: PreTrainedModel) -> None:
    """A BLOOM whose forward pass keeps packed examples apart and computes logits where they are asked for.

    Attention, loss and residual stay the library's until one of the functions below changes them.
    """
    model.__class__ = BloomForCausalLM
    model.attention = None
    model.narrow_residual = False
    model.lm_head.__class__ = LossHead
    use_loss(model, "full", chunk=0)


def use_attention(model: PreTrainedModel, kernel: str) -> None:
    """`eager`, the library's; `sdpa`; or `flex`, which without a GPU cannot train: there sdpa computes the same."""
    if kernel == "flex" and not torch.cuda.is_available():
        kernel = "sdpa"
    model.attention = {"eager": None, "sdpa": sdpa, "flex": flex}[kernel]
    if model.attention:
        for block in model.transformer.h:
            block.self_attention.__class__ = FusedBloomAttention


def use_loss(model: PreTrainedModel, method: str, chunk: int) -> None:
    """`full`, `chunked` or `liger`; see loss_sum."""
    model.lm_head.method, model.lm_head.chunk = method, chunk


def use_residual_dtype(model: PreTrainedModel, dtype: str) -> None:
    """`fp32`; or `bf16`: blocks pass on their results in the type they compute in, half the memory traffic there."""
    model.narrow_residual = dtype == "bf16"


class LossHead(torch.nn.Linear):
    """The head; with targets it gives the loss instead of the logits. A module, so that ZeRO-3 gathers its weight."""

    def forward(self, hidden: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        if targets is None:
            return super().forward(hidden)
        return loss_sum(hidden, self.weight, targets, self.method, self.chunk)


class BloomForCausalLM(modeling_bloom.BloomForCausalLM):
    """BLOOM for training: token ids and labels in, the loss out. Without labels, as in generation, the library's own.

    It has the library's name because config.json of a saved model holds it.
    """

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        document_ids: torch.Tensor | None = None,
        target_positions: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **options: Any,
    ) -> Any:
        """The mean cross-entropy over the targets of the whole batch.

        Args:
            input_ids, labels: [rows, length]; a label is the token of its own position, IGNORE where it is no target.
            attention_mask: [rows, length], padding on the right.
            document_ids: [rows, length], which packed example a token belongs to; None: one per row.
            target_positions: flat positions of the tokens followed by a target; None: logits of all positions.
            num_items_in_batch: targets in all micro-batches of all ranks, as the Trainer counts them; None: in these.
        """
        if labels is None:
            return super().forward(input_ids, attention_mask=attention_mask, **options)
        hidden = self._hidden(input_ids, document_ids).flatten(0, 1)
        targets = next_targets(labels)
        if target_positions is not None:
            # Not hidden[target_positions], whose backward pass sorts the positions first.
            hidden, targets = (of_all.index_select(0, target_positions) for of_all in (hidden, targets))
        items = (targets != IGNORE).sum() if num_items_in_batch is None else num_items_in_batch
        return CausalLMOutputWithCrossAttentions(loss=self.lm_head(hidden, targets) / items)

    def _hidden(self, input_ids: torch.Tensor, documents: torch.Tensor | None) -> torch.Tensor:
        """Last hidden states, [rows, length, hidden size]."""
        bloom, length = self.transformer, input_ids.shape[1]
        hidden = bloom.word_embeddings_layernorm(bloom.word_embeddings(input_ids))
        dtype = product_type(hidden)
        if self.narrow_residual:
            hidden = hidden.to(dtype)  # and so is every sum of it with a block's result
        if self.attention:
            alibi, mask = None, self.attention(bloom.num_heads, length, documents, hidden.device, dtype)
        else:
            alibi = bloom.build_alibi_tensor(torch.ones_like(input_ids), bloom.num_heads, hidden.dtype)
            mask = additive_mask(length, documents, hidden)
        for block in bloom.h:
            hidden, _ = block(hidden, alibi=alibi, attention_mask=mask)
        return bloom.ln_f(hidden)
