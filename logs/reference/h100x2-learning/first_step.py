"""Why ZeRO's second step in bf16 has a higher loss than DDP's: python first_step.py MODEL_FOLDER TRAIN_JSON, on a CPU.

One step of Adam at 5e-5 on four questions, then the loss of four others; with the weights kept and used in four ways.
"""

import sys

import torch
from transformers import AutoModelForCausalLM

from workshop.data.encoding import PaddingCollator, encode_all, load_tokenizer
from workshop.data.sources import load_splits

folder, train = sys.argv[1:]
tokenizer = load_tokenizer(folder)
rows = encode_all(load_splits(train)["train"].select(range(8)).to_list(), tokenizer, 200)
first, second = (PaddingCollator(tokenizer.pad_token_id, None)(rows[at : at + 4]) for at in (0, 4))
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
model(**first).loss.backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
fp32 = [weight.detach().clone() for weight in model.parameters()]
bf16 = [weight.bfloat16().float() for weight in fp32]
# Adam's first step is the learning rate times the gradient's sign.
change = [5e-5 * weight.grad / (weight.grad.abs() + 1e-8) for weight in model.parameters()]


def loss(master: list[torch.Tensor], used_in_bf16: bool, changed: bool = True) -> float:
    with torch.no_grad():
        for weight, kept, step in zip(model.parameters(), master, change, strict=True):
            value = kept - step if changed else kept
            weight.copy_(value.bfloat16().float() if used_in_bf16 else value)
        return model(**second).loss.item()


print("before the step", loss(fp32, used_in_bf16=False, changed=False))
print("fp32 weights, used in fp32", loss(fp32, used_in_bf16=False))
print("fp32 weights, cast to bf16 where they are used (DDP, FSDP)", loss(fp32, used_in_bf16=True))
print("weights rounded to bf16 at the start, used in fp32", loss(bf16, used_in_bf16=False))
print("weights rounded to bf16 at the start, cast to bf16 (ZeRO)", loss(bf16, used_in_bf16=True))
moved = sum(((kept - step).bfloat16() != kept).sum().item() for kept, step in zip(bf16, change, strict=True))
print("of ZeRO's bf16 weights the step changes", moved / sum(kept.numel() for kept in bf16))
