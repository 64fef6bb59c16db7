"""Repositories laid out as the hub's real ones, with a tiny BLOOM and the shipped sample inside."""

import json
import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel

from tests.workshop.data.forms import load_squad, write_hub
from workshop.data.forms import SAMPLE_DIR
from workshop.settings.model_file import TINY

# The real config.json of bigscience/bloom-560m with the tiny model's sizes: older names, and no dtype.
CONFIG = {
    **{"model_type": "bloom", "architectures": ["BloomForCausalLM"], "transformers_version": "4.20.0"},
    **{"n_embed": 64, "n_layer": 2, "num_attention_heads": 4, "vocab_size": 1024, "seq_length": 2048},
    **{"unk_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3},
    **{"masked_softmax_fusion": True, "attention_softmax_in_fp32": True, "offset_alibi": 100, "pretraining_tp": 1},
}
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
TOKENIZER_CONFIG = SPECIAL_TOKENS | {"add_prefix_space": False, "padding_side": "left", "special_tokens_map_file": None}
TOKENIZER_CONFIG |= {"name_or_path": "bigscience/tokenizer", "tokenizer_class": "BloomTokenizerFast"}
CARD = """---
configs:
- config_name: plain_text
  data_files: [{split: train, path: plain_text/train-*}, {split: validation, path: plain_text/validation-*}]
---
"""


def make_bloom(folder: Path, seed: int, largest_file: str = "1GB") -> None:
    """fp16 weights under the names of the published files, which lack the `transformer.` of the model's own.

    Spread wider than a fresh model's, so that its loss is far from that of any other.
    """
    torch.manual_seed(seed)
    model = AutoModel.from_config(AutoConfig.from_pretrained(TINY))
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    model.half().save_pretrained(folder, max_shard_size=largest_file)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    ids = {key: CONFIG[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    (folder / "generation_config.json").write_text(json.dumps({"_from_model_config": True, **ids}))
    (folder / "README.md").write_text("---\nlicense: bigscience-bloom-rail-1.0\n---\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    (folder / "special_tokens_map.json").write_text(json.dumps(SPECIAL_TOKENS))
    shutil.copy(SAMPLE_DIR / "tokenizer/tokenizer.json", folder)
    # The copies for other frameworks, which nobody here needs: a prefetch must leave them.
    (folder / "pytorch_model.bin").write_bytes(b"not fetched")
    (folder / "flax_model.msgpack").write_bytes(b"not fetched")


def make_repositories(root: Path) -> None:
    """Everything the workshop's default path asks the hub for, in small."""
    make_bloom(root / "models/bigscience/bloom-560m", seed=560)
    make_bloom(root / "models/bigscience/bloom-7b1", seed=7100, largest_file="250KB")
    make_bloom(root / "models/gated/bloom", seed=1)
    splits, squad = {}, root / "datasets/rajpurkar/squad"  # the sample in its columns and files
    for split in ("train", "validation"):
        splits[split] = [row | {"answers": {"text": row["answers"]}} for row in load_squad("sample", split)]
    write_hub(squad, splits)
    (squad / "README.md").write_text(CARD)
