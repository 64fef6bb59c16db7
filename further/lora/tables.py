"""Tables 27 to 27e: what adapters save and what they learn."""

from tools.logs.run import NoneOf, Where
from tools.tables.table import Table, of_rows, runs, strategy

METHODS = {
    "full": runs(adapters="full"),
    "LoRA 8": runs(adapters="lora", lora_rank=8),
    "LoRA 64": runs(adapters="lora", lora_rank=64),
    "QLoRA 8": runs(adapters="qlora", lora_rank=8),
    "all weights": runs(rung="12_documents", exercise="speed-ladder"),
    "Rung 12, LoRA 8": runs(rung="12_documents", adapters="lora", exercise="lora"),
    "TRL's LoRA 8": runs(rung="peer_trl_lora"),
    "TRL's LoRA 8, bfd by FlexAttention": runs(rung="peer_trl_exact_lora"),
    "Unsloth's LoRA 8": runs(rung="peer_unsloth_lora"),
}
BOTH = ["lora", "speed-ladder"]
TEXTS = ["Document masking"]


def model_and_method(label: str) -> Where:
    """`bloom-560m, LoRA 8`."""
    model, _, name = label.partition(", ")
    return runs(model=model) | METHODS[name]


def model_and_strategy(label: str) -> Where:
    """`llama-3.2-1b, ZeRO-2`."""
    model, name = label.split(", ")
    return runs(model=model) | strategy(name)


TABLES = {
    "27": Table(of_rows(model_and_method, TEXTS), runs(world_size=1, rung="1_bf16", max_steps=20, grad_acc=1), BOTH),
    "27b": Table(of_rows(METHODS, TEXTS), runs(world_size=1, model="harbour-base", rung="1_bf16", train_examples=6400)),
    "27c": Table(
        of_rows(model_and_method, TEXTS),
        runs(world_size=1, rung=NoneOf(["1_bf16"]), max_length=512, batch_size=NoneOf([16])),
        BOTH,
    ),
    "27d": Table(
        of_rows(METHODS, TEXTS), runs(world_size=1, model="llama-3.2-1b", max_length=512, batch_size=64), BOTH
    ),
    "27e": Table(of_rows(model_and_strategy), runs(world_size=2, rung="1_bf16", adapters="lora"), compares=["model"]),
}
ROWS = "bloom-560m, full; bloom-560m, LoRA 8; bloom-560m, QLoRA 8"
PREDICTIONS = {
    "1": ["27 | bloom-560m, LoRA 8 | Trained parameters (M)"],
    "2": [f"27 | {ROWS} | Weights (MiB); Gradients (MiB); Optimizer states (MiB)"],
    "3": [f"27 | {ROWS} | Step time (ms)"],
}
