"""Tables 27 to 27d: what adapters save and what they learn."""

from tools.logs.run import NoneOf
from tools.tables.table import Asked, Table, figure, runs

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
ADAPTERS = ("full", "LoRA 8", "LoRA 64", "QLoRA 8")
BOTH = ["lora", "speed-ladder"]


def method(label: str, column: str) -> Asked | str:
    """Only the rows that TRL packs in its older way mix examples."""
    if column == "Examples apart":
        return "no" if label == "TRL's LoRA 8" else "yes"
    return figure(column), METHODS[label]


def model_and_method(label: str, column: str) -> Asked | str:
    """`bloom-560m, LoRA 8`."""
    model, _, name = label.partition(", ")
    asked = method(name, column)
    return asked if isinstance(asked, str) else (asked[0], runs(model=model) | asked[1])


TABLES = [
    Table(
        "27",
        "What adapters save: one GPU, 16 padded rows of 512 tokens, Llama 3.1 8B 4 rows",
        "Model, method, rank | Trained parameters (M) | Weights (MiB) | Gradients (MiB) | Optimizer states (MiB) | "
        "Peak allocated (MiB) | Step time (ms) | Real tokens/s | MFU (%)",
        [f"{model}, {name}" for model in ("bloom-560m", "llama-3.2-1b", "llama-3.1-8b") for name in ADAPTERS],
        model_and_method,
        runs(world_size=1, rung="1_bf16", max_steps=20, grad_acc=1),
        BOTH,
    ),
    Table(
        "27b",
        "What they learn: another task, equal examples, median and standard deviation of three seeds",
        "Method, rank | Trained parameters (M) | Held-out loss | Exact Match (%) | Exact match, std (%)",
        ["full", "LoRA 8", "QLoRA 8"],
        method,
        runs(world_size=1, model="harbour-base", rung="1_bf16", train_examples=6400),
    ),
    Table(
        "27c",
        "At the top of the speed ladder, beside TRL's trainer: 64 packed rows, Llama 3.1 8B 8",
        "Model, method, rank | Peak allocated (MiB) | Step time (ms) | Real tokens/s | MFU (%) | Examples apart",
        [*(f"llama-3.2-1b, {name}" for name in ("all weights", "LoRA 8", "TRL's LoRA 8")), "llama-3.1-8b, LoRA 8"],
        model_and_method,
        runs(world_size=1, rung=NoneOf(["1_bf16"]), max_length=512, batch_size=NoneOf([16])),
        BOTH,
    ),
    Table(
        "27d",
        "LoRA of Llama 3.2 1B by turns with TRL and Unsloth: one GPU, 64 rows of 512 tokens",
        "Run | Step time (ms) | Real tokens/s | Peak allocated (MiB) | Examples apart",
        ["Rung 12, LoRA 8", "TRL's LoRA 8, bfd by FlexAttention", "Unsloth's LoRA 8"],
        method,
        runs(world_size=1, model="llama-3.2-1b", max_length=512, batch_size=64),
        BOTH,
    ),
]
ROWS = "bloom-560m, full; bloom-560m, LoRA 8; bloom-560m, QLoRA 8"
PREDICTIONS = {
    "1": ["27 | bloom-560m, LoRA 8 | Trained parameters (M)"],
    "2": [f"27 | {ROWS} | Weights (MiB); Gradients (MiB); Optimizer states (MiB)"],
    "3": [f"27 | {ROWS} | Step time (ms)"],
}
