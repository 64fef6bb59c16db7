"""Merge adapters into their model, for inference without peft and as fast as before.

    python lora/merge.py logs/lora/<run>/bloom-qa-finetuned merged

The model is the one of bf16 weights, also of adapters trained beside 4-bit ones (QLoRA): it is a little nearer to the
weights before rounding than what was trained. Only of a pretrained model: random weights are in no checkpoint.
"""

import argparse
import json
from pathlib import Path

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapters", type=Path, help="the folder with adapter_model.safetensors")
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    config = given.adapters / "adapter_config.json"
    if not config.is_file() or not json.loads(config.read_text())["base_model_name_or_path"]:
        parser.error(f"{config}: expected adapters of a pretrained model (MODEL_INIT=pretrained)")
    # In fp32, and rounded once: added to bf16 weights, small changes would be lost.
    model = AutoPeftModelForCausalLM.from_pretrained(given.adapters, dtype=torch.float32).merge_and_unload()
    model.to(torch.bfloat16).save_pretrained(given.output)
    AutoTokenizer.from_pretrained(given.adapters).save_pretrained(given.output)


if __name__ == "__main__":
    main()
