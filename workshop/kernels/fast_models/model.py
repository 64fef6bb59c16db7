"""The forward pass for training that the ladder's rungs change step by step, of BLOOM and other decoders.

The classes of this instance's modules change, not the library's. So other models stay as they are, FSDP, DeepSpeed and
save_pretrained find the modules they know, and parameters keep their names: checkpoints fit both ways.
"""

from functools import cache
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions
from transformers.models.bloom import modeling_bloom

from workshop.data.encoding import IGNORE
from workshop.kernels.fast_models import attention as kernels
from workshop.kernels.fast_models.loss import LossHead, product_type
from workshop.kernels.fast_models.packing import next_targets
from workshop.private_names import own_parameter
from workshop.settings.attention import GPU_KERNELS

# Tested; of other decoders exactness.py tests whether the forward pass is their own function.
FAMILIES = ("bloom", "gpt2", "llama", "mistral", "qwen2", "qwen3")


def use_fast_forward(model: PreTrainedModel) -> None:
    """Give a decoder a forward pass with document masking and logits at chosen positions only.

    Attention, loss and residual stay the library's until one of the functions below changes them.
    """
    kind = type(model)
    packed = type(kind.__name__, (PackedDecoder, kind), {"__module__": __name__, "__doc__": kind.__doc__})
    model.__class__ = BloomForCausalLM if model.config.model_type == "bloom" else packed
    model.get_output_embeddings().__class__ = LossHead
    for module in model.modules():
        if type(module).__name__.endswith("Experts"):
            module.__class__ = _narrow_experts(type(module))
    use_loss(model, "full", chunk=0)


def use_attention(model: PreTrainedModel, kernel: str) -> None:
    """Use `eager`, the library's own; `sdpa`; or `flex`, `documents`, `cudnn`, for which the CPU takes sdpa."""
    if kernel in GPU_KERNELS and not torch.cuda.is_available():
        kernel = "sdpa"
    if kernel == "documents":
        from workshop.kernels.fast_models import documents  # noqa: F401  its operator; Triton is there with a GPU only
    model.use_kernel(kernel)


def use_loss(model: PreTrainedModel, implementation: str, chunk: int) -> None:
    """Use `full`, `chunked` or `liger`; see LossHead."""
    head = model.get_output_embeddings()
    head.implementation, head.chunk = implementation, chunk


def use_residual_dtype(blocks: torch.nn.ModuleList, dtype: str) -> None:
    """Use `fp32`; or `bf16`: blocks pass on their results in the type they compute in, with half the traffic."""
    if dtype == "bf16":
        blocks[0].register_forward_pre_hook(_narrow)


def _narrow(block: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Cast the first block's input to the type of matrix products; the sums with the blocks' results follow."""
    return (inputs[0].to(product_type(inputs[0])), *inputs[1:])


class Packed:
    """For training: token ids and labels in, loss out. Without labels, as in generation, the library's forward."""

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
            document_ids: [rows, length], each token's packed example; None: one per row.
            target_positions: flat positions of the tokens followed by a target; None: logits of all positions.
            num_items_in_batch: targets in all micro-batches of all ranks, as the Trainer counts them; None: in these.
        """
        if labels is None:
            return super().forward(input_ids, attention_mask=attention_mask, **options)
        hidden = self._hidden(input_ids, document_ids).flatten(0, 1)
        targets = next_targets(labels).flatten()
        if target_positions is not None:
            # Not hidden[target_positions], whose backward pass sorts the positions first.
            hidden, targets = (of_all.index_select(0, target_positions) for of_all in (hidden, targets))
        items = (targets != IGNORE).sum() if num_items_in_batch is None else num_items_in_batch
        return CausalLMOutputWithCrossAttentions(loss=self.get_output_embeddings()(hidden, targets) / items)


class BloomForCausalLM(Packed, modeling_bloom.BloomForCausalLM):
    """The library has no kernels for BLOOM. The class has the library's name, which config.json records."""

    attention = None

    def use_kernel(self, kernel: str) -> None:
        self.attention = kernels.WITH_ALIBI[kernel]
        if self.attention:
            for block in self.transformer.h:
                block.self_attention.__class__ = kernels.FusedBloomAttention

    def _hidden(self, input_ids: torch.Tensor, documents: torch.Tensor | None) -> torch.Tensor:
        """Last hidden states, [rows, length, hidden size]."""
        bloom, length = self.transformer, input_ids.shape[1]
        hidden = bloom.word_embeddings_layernorm(bloom.word_embeddings(input_ids))
        if self.attention:
            alibi, mask = None, self.attention(bloom.num_heads, length, documents, hidden.device, product_type(hidden))
        else:
            alibi = bloom.build_alibi_tensor(torch.ones_like(input_ids), bloom.num_heads, hidden.dtype)
            mask = kernels.additive_mask(length, documents, hidden)
        for block in bloom.h:
            hidden, _ = block(hidden, alibi=alibi, attention_mask=mask)
        return bloom.ln_f(hidden)


class PackedDecoder(Packed):
    """Another decoder: its own forward pass, which finds packed documents where `position_ids` restart."""

    mask = None

    def use_kernel(self, kernel: str) -> None:
        # Without a mask the library makes it from `position_ids`, and the CPU waits for the GPU in every batch.
        self.mask = kernels.MASKS.get(kernel)
        if kernel != "eager":
            self.set_attn_implementation(f"packed_{kernel}" if kernel in ("flex", "documents") else "sdpa")
        if kernel == "cudnn":  # of the three that torch has for sdpa
            torch.backends.cuda.enable_flash_sdp(False)
            torch.backends.cuda.enable_mem_efficient_sdp(False)

    def _hidden(self, input_ids: torch.Tensor, documents: torch.Tensor | None) -> torch.Tensor:
        """Last hidden states, [rows, length, hidden size]."""
        mask = self.mask(documents, input_ids.shape[1], input_ids.device) if self.mask else None
        output = self.base_model(
            inputs_embeds=self.get_input_embeddings()(input_ids),
            attention_mask=mask,
            position_ids=None if documents is None else kernels.position_ids(documents),
            use_cache=False,
        )
        return output.last_hidden_state


@cache
def _narrow_experts(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """Return a class of experts that multiply in the type of the other products. The library's use their weights' fp32,
    which is slow and, compiled, multiplies one expert after the other. All blocks share a class, as compiled code does.
    """

    def narrow(name: str) -> property:
        # FSDP2 reads weights on the meta device, for which autocast answers no question.
        return property(lambda of: own if (own := own_parameter(of, name)).is_meta else own.to(product_type(own)))

    return type(kind.__name__, (kind,), {name: narrow(name) for name in ("gate_up_proj", "down_proj")})
