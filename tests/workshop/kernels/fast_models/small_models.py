"""Small models whose attention is not nearly uniform, and batches of real examples for them."""

import copy

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.workshop.data.forms import load_squad
from workshop.data.encoding import PaddingCollator, encode_all, load_tokenizer
from workshop.kernels import fast_models
from workshop.settings.model_file import SHAPES, TINY
from workshop.training.models import blocks_of

LENGTH = 512
TOKENIZER = load_tokenizer("sample")
EXAMPLES = encode_all(load_squad("sample", "train")[:8], TOKENIZER, LENGTH)
# Six heads: no power of two, so ALiBi's slopes have two series.
SIZES = {"tiny": {}, "wider": {"hidden_size": 192, "n_head": 6}}
# Of each the shape in workshop/shapes: two query heads for each key's, where the family can have that; Qwen3's and
# Mistral's heads are wider than the model.
FAMILIES = ("gpt2", "llama", "mistral", "qwen2", "qwen3")


def small(name: str, **sizes: int) -> PreTrainedModel:
    """A BLOOM of SIZES or one of FAMILIES, with weights five times the usual.

    At the usual ones every attention is an average, whatever its mask.
    """
    config, sizes = (TINY, SIZES[name]) if name in SIZES else (SHAPES[f"tiny-{name}"], sizes)
    torch.manual_seed(0)
    own = AutoConfig.from_pretrained(config, initializer_range=0.1, **sizes)
    return AutoModelForCausalLM.from_config(own, dtype=torch.float32).train()


def faster(
    model: PreTrainedModel, attention: str = "eager", loss: str = "full", chunk: int = 4096, stream: str = "fp32"
) -> PreTrainedModel:
    """A copy of the model with these steps of the ladder."""
    model = copy.deepcopy(model)
    fast_models.use_fast_forward(model)
    fast_models.use_attention(model, attention)
    fast_models.use_loss(model, loss, chunk)
    fast_models.use_residual_dtype(blocks_of(model), stream)
    return model


def batch(rows: list[dict[str, list[int]]], length: int = LENGTH, labelled: bool = False) -> dict[str, torch.Tensor]:
    """The batch that the Trainer's loader makes of the rows."""
    collator = PaddingCollator(TOKENIZER.pad_token_id, length)
    return fast_models.LabelledOnly(collator)(rows) if labelled else collator(rows)


def gradients(model: PreTrainedModel) -> torch.Tensor:
    """All of them, one after the other."""
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
