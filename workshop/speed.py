"""The switches of the speed ladder: which of them this run turns on, whether they can work here, and BLOOM with them.

    ATTENTION  eager, sdpa or flex         workshop/bloom_attention.py
    PACKING    several examples in a row   workshop/packing.py
    LOSS       full, chunked or liger      workshop/linear_cross_entropy.py
    LOGITS     all or labelled: only where there is a target; the others are multiplied out for nobody
    STREAM     fp32, or bf16 as DeepSpeed and FSDP2 have it: the type in which blocks hand on their result
    COMPILE    torch.compile, block by block

They are settings of every chapter. With none of them turned on the model stays exactly the library's.
"""

from importlib.util import find_spec
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions
from transformers.models.bloom import modeling_bloom

from workshop import bloom_attention
from workshop.encoding import IGNORE, next_targets
from workshop.errors import WorkshopError
from workshop.linear_cross_entropy import loss_sum, product_type
from workshop.settings import Settings


def check_machine(settings: Settings) -> None:
    """Raises WorkshopError for what this machine cannot do; says so where a run goes on another way."""
    gpu = torch.cuda.is_available()
    if settings.attention == "flex" and not gpu:
        print("warning: ATTENTION=flex needs a GPU to train and there is none; using sdpa, which computes the same")
    if settings.stream == "bf16" and not settings.bf16:
        print("warning: STREAM=bf16 needs BF16=true; what blocks hand on stays in the type they compute in")
    if settings.loss == "liger" and not (gpu and find_spec("liger_kernel")):
        missing = "the package liger-kernel (requirements-gpu.txt)" if gpu else "a GPU (it is written in Triton)"
        raise WorkshopError(f"LOSS=liger needs {missing}; expected LOSS=chunked, which does the same in PyTorch")


def check_model(settings: Settings, config: PretrainedConfig) -> None:
    """Raises WorkshopError where a switch is on that this kind of model does not have."""
    if settings.switches and config.model_type != "bloom":
        raise WorkshopError(
            f"{settings.switches}: written for BLOOM, but MODEL_NAME='{settings.model_name}' is a {config.model_type}; "
            "expected a BLOOM, or these switches left out"
        )
    if settings.attention != "eager" and config.attention_dropout:
        raise WorkshopError(
            f"ATTENTION={settings.attention}: the model has attention_dropout={config.attention_dropout}, which fused "
            "attention leaves out; expected 0, as BLOOM has it, or ATTENTION=eager"
        )


def climb(settings: Settings, model: PreTrainedModel) -> PreTrainedModel:
    """The model with the switches that are on; its parameters keep their names, so checkpoints fit both ways."""
    if not settings.switches:
        return model
    # The classes of the living modules change, not the library's: other models in this process stay as they are, and
    # FSDP, DeepSpeed and save_pretrained find the modules they know.
    model.__class__ = BloomForCausalLM
    model.lm_head.__class__ = LossHead
    model.lm_head.method, model.lm_head.chunk = settings.loss, settings.loss_chunk
    model.narrow_stream = settings.stream == "bf16"
    attention = "sdpa" if settings.attention == "flex" and not torch.cuda.is_available() else settings.attention
    model.attention = {"eager": None, "sdpa": bloom_attention.sdpa, "flex": bloom_attention.flex}[attention]
    for block in model.transformer.h:
        if model.attention:
            block.self_attention.__class__ = bloom_attention.FusedBloomAttention
        if settings.compile:
            block.forward = _compiled_for_training(block)
    return model


def _compiled_for_training(block: torch.nn.Module) -> Any:
    """The block's forward, compiled for the shape it is first trained with.

    Others run uncompiled, an epoch's last batch with fewer rows and the evaluation's: to compile them takes longer than
    it saves. Its forward, not the block: hooks around it (FSDP's, which gather its parameters) stay outside. All blocks
    have the same code and shapes, so this compiles once.
    """
    plain = block.forward
    compiled = torch.compile(plain, dynamic=False)
    trained_shape = None

    def forward(hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal trained_shape
        if block.training and trained_shape is None:
            trained_shape = hidden.shape
        fits = block.training and hidden.shape == trained_shape
        return (compiled if fits else plain)(hidden, *args, **kwargs)

    return forward


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
        if self.narrow_stream:
            hidden = hidden.to(dtype)  # and so is every sum of it with a block's result
        if self.attention:
            alibi, mask = None, self.attention(bloom.num_heads, length, documents, hidden.device, dtype)
        else:
            alibi = bloom.build_alibi_tensor(torch.ones_like(input_ids), bloom.num_heads, hidden.dtype)
            mask = bloom_attention.additive_mask(length, documents, hidden)
        for block in bloom.h:
            hidden, _ = block(hidden, alibi=alibi, attention_mask=mask)
        return bloom.ln_f(hidden)
