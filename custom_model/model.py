"""SimpleGPTModel: a decoder-only transformer in one file, to be read from top to bottom.

It is a Hugging Face model (PreTrainedModel, GenerationMixin), so the Trainer, save_pretrained, from_pretrained and
generate work as for BLOOM. Older material circulates a version without positions, which ignores the attention mask and
the variable VOCAB_SIZE, in six copies (erratum K9); this is the one file of it here.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutput

from custom_model.flops import Shapes
from custom_model.settings import MODEL_NAME, GPTSettings
from workshop.training.models import fit_to_tokenizer, random_weights


class SimpleGPTConfig(PreTrainedConfig):
    """Sizes; `seq_length` is the number of positions the model has an embedding for.

    Its base makes it a dataclass.
    """

    model_type = MODEL_NAME
    attribute_map = {"num_hidden_layers": "num_layers", "num_attention_heads": "num_heads"}  # noqa: RUF012 as the library

    vocab_size: int = 50_000
    hidden_size: int = 2048
    num_layers: int = 3
    num_heads: int = 16
    ff_dim: int = 8192
    seq_length: int = 512
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True


class ResidualLinear(nn.Linear):
    """A linear layer whose output is added to the residual; it only starts with smaller weights."""


class SelfAttention(nn.Module):
    """Every position looks at itself and at the real tokens before it."""

    def __init__(self, config: SimpleGPTConfig) -> None:
        super().__init__()
        self.head_size = config.hidden_size // config.num_heads
        self.qkv_proj = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out_proj = ResidualLinear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """hidden [batch, length, hidden]; visible [batch, 1, length, length], true where a query may see a key.

        Without `visible` a query sees all keys up to its own. The rows of qkv_proj are in the order of the heads, so a
        part of them is whole heads; there are as many heads as it has rows for.
        """
        parts = self.qkv_proj(hidden).unflatten(-1, (-1, 3, self.head_size))
        queries, keys, values = parts.permute(3, 0, 2, 1, 4)  # each [batch, heads, length, size of a head]
        return self.out_proj(self.attend(queries, keys, values, visible).transpose(1, 2).flatten(2))

    @staticmethod
    def attend(
        queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, visible: torch.Tensor | None
    ) -> torch.Tensor:
        """What each query finds, in its shape."""
        return functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=visible, is_causal=visible is None
        )


class SimpleGPTBlock(GradientCheckpointingLayer):
    """Attention, then a feed-forward network; each adds to the residual what it computes from its normalised copy.

    This is the unit that FSDP shards and gathers. (Its base class is nn.Module with gradient checkpointing.)
    """

    def __init__(self, config: SimpleGPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.attention = SelfAttention(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.up_proj = nn.Linear(config.hidden_size, config.ff_dim)
        self.down_proj = ResidualLinear(config.ff_dim, config.hidden_size)

    def forward(self, hidden: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """[batch, length, hidden] to the same shape."""
        hidden = hidden + self.attention(self.attention_norm(hidden), visible)
        return hidden + self.down_proj(functional.gelu(self.up_proj(self.feed_forward_norm(hidden))))


class SimpleGPTModel(PreTrainedModel, GenerationMixin):
    """Token and position embeddings, pre-norm causal blocks, and the token embedding once more as the head."""

    config_class = SimpleGPTConfig
    _no_split_modules = ("SimpleGPTBlock",)
    _input_embed_layer = "token_embedding"
    _tied_weights_keys = {"head.weight": "token_embedding.weight"}  # noqa: RUF012 as the library
    supports_gradient_checkpointing = True

    def __init__(self, config: SimpleGPTConfig) -> None:
        super().__init__(config)
        self.loss_type = "ForCausalLM"  # the library's loss: shifted by one, in fp32, -100 left out
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.seq_length, config.hidden_size)
        self.blocks = nn.ModuleList(SimpleGPTBlock(config) for _ in range(config.num_layers))
        self.final_norm = nn.LayerNorm(config.hidden_size)
        # Tied: the embedding's matrix a second time. FSDP asks for both layers, and keeps them in one unit.
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Normal with a standard deviation of 0.02, smaller where 2L outputs add up in the residual (as GPT-2)."""
        if isinstance(module, ResidualLinear):
            init.normal_(module.weight, std=self.config.initializer_range / math.sqrt(2 * self.config.num_layers))
            init.zeros_(module.bias)
        else:
            super()._init_weights(module)

    def get_output_embeddings(self) -> nn.Linear:
        return self.head

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **options: Any,
    ) -> CausalLMOutput:
        """Logits [batch, length, vocabulary] and, with labels, the loss; all arguments are [batch, length].

        `attention_mask` is 0 at padding, on either side; without it there is none. `position_ids` are counted from the
        first real token if they are not given. `options` is what the Trainer and generate also pass; the
        loss uses `num_items_in_batch` of it.
        """
        if position_ids is None:
            position_ids = positions(torch.ones_like(input_ids) if attention_mask is None else attention_mask)
        hidden = self.token_embedding(input_ids) + self.position_embedding(position_ids)
        visible = None if attention_mask is None else visible_keys(attention_mask)
        for block in self.blocks:
            hidden = block(hidden, visible)
        logits = self.head(self.final_norm(hidden))
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits,
                labels=labels,
                vocab_size=self.config.vocab_size,
                num_items_in_batch=options.get("num_items_in_batch"),
            )
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any
    ) -> dict[str, Any]:
        """The whole text for every new token: without a cache of keys and values: slower, but nothing to explain."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def flops_per_token(self, length: int) -> int:
        """Forward and backward FLOPs per token in sequences of `length` tokens; see flops.py."""
        config = self.config
        shapes = Shapes(config.hidden_size, config.ff_dim, config.vocab_size, length)
        return shapes.flops_per_token(config.num_layers)


def positions(attention_mask: torch.Tensor) -> torch.Tensor:
    """0, 1, 2, … from the first real token on, [batch, length]: padding on the left must not move a text."""
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def visible_keys(attention_mask: torch.Tensor) -> torch.Tensor:
    """[batch, 1, query, key]: true where the key is real and not after the query."""
    length = attention_mask.shape[-1]
    causal = torch.ones(length, length, dtype=torch.bool, device=attention_mask.device).tril()
    # A padding token sees itself: a softmax over nothing would be NaN.
    itself = torch.eye(length, dtype=torch.bool, device=attention_mask.device)
    return ((causal & attention_mask[:, None, :].bool()) | itself)[:, None]


def build_model(settings: GPTSettings, tokenizer: PreTrainedTokenizerBase, sharded: bool) -> SimpleGPTModel:
    """A model with random fp32 weights in the sizes of the settings, made on the GPU where there is one.

    If it is `sharded` part by part, the weights are kept in CPU memory until then.

    Raises InputError if the tokenizer has more entries than VOCAB_SIZE.
    """
    torch.manual_seed(settings.seed)
    config = SimpleGPTConfig(
        vocab_size=settings.vocab_size,
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        num_heads=settings.num_heads,
        ff_dim=settings.ff_dim,
        seq_length=settings.seq_length,
    )
    with random_weights(sharded):
        model = SimpleGPTModel(config)
    fit_to_tokenizer(model, tokenizer, settings)
    return model


# Whoever has imported this file can load a saved model without naming the class.
AutoConfig.register(MODEL_NAME, SimpleGPTConfig)
AutoModelForCausalLM.register(SimpleGPTConfig, SimpleGPTModel)
