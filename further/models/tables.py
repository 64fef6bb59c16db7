"""Tables 23 to 24d: the speed ladder's recipes with other models; runs of further/speed-ladder/."""

import re
from collections.abc import Callable

from tools.logs.run import NoneOf
from tools.tables.table import RUNGS, Asked, Table, figure, runs

RECIPES = RUNGS | {
    "TRL, wrapped": "peer_trl_packed",
    "TRL, bfd by FlexAttention": "peer_trl_exact",
    "TRL, bfd by FlexAttention, Liger": "peer_trl_exact_liger",
    "TRL, bfd by varlen_attn": "peer_trl_varlen",
    "TRL, bfd by flash-attn-4": "peer_trl_fa4",
    "Unsloth, bfd, weights in bf16": "peer_unsloth",
}
PUBLISHED = "Published, per GPU"
ON_TWO_GPUS = {
    "llama-3.1-8b, 11 labelled, 8,192 tokens": (
        "6,667 ([torchtitan][titan], bf16, 8 H100 of 500 W, partly recomputed)"
    ),
    "llama-3.1-8b, variant: float8, 8,192 tokens": (
        "8,532 ([torchtitan][titan], float8, the same 8 H100); "
        "10,938 ([torchtitan][titan_h200], 32 H200 over a network)"
    ),
}
ON_ONE_GPU = {
    "llama-2-7b, variant: float8, 4,096 tokens": "16,891 ([NeMo][nemo], FP8, packed SQuAD, 8 H100)",
    "llama-3.1-8b, variant: float8, 8,192 tokens": (
        "14,451 ([Megatron-Bridge][megatron], FP8, 8 H100 with FSDP; ours: 8-bit moments)"
    ),
}
LLMQ = {
    "qwen-2.5-0.5b, variant: all logits": "149,000 ([llmq][llmq])",
    "qwen-2.5-0.5b, variant: float8": "164,000 ([llmq][llmq], FP8)",
    "qwen-2.5-1.5b, variant: all logits": "58,800 ([llmq][llmq])",
    "qwen-2.5-1.5b, variant: float8": "73,000 ([llmq][llmq], FP8)",
    "qwen-2.5-3b, variant: all logits": "30,900 ([llmq][llmq])",
    "qwen-2.5-3b, variant: float8": "40,000 ([llmq][llmq], FP8)",
    "qwen-2.5-3b, variant: 8bit": "30,900 ([llmq][llmq])",
    "qwen-2.5-7b, variant: 8bit": "13,860 ([llmq][llmq])",
}
LADDER = ["speed-ladder"]
FULL = runs(nodes=1, max_steps=NoneOf([300]))
# DDP's configurations on one GPU are no repeats of a row.
ONE_GPU = FULL | runs(world_size=1, config=NoneOf(["ddp", "ddp_whole_blocks"]))
TWO_GPUS = FULL | runs(method="fsdp2", world_size=2)
GAIN = (
    "Run | Step time (ms) | Examples per step | Real tokens/s | MFU (%) | MFU by the convention (%) | "
    "Peak allocated (MiB) | Gain over the textbook"
)
PER_GPU = (
    f"Run | Step time (ms) | Real tokens/s per GPU | MFU by the convention (%) | Peak allocated (MiB) | {PUBLISHED}"
)
FLOAT8 = "Run | Step time (ms) | Real tokens/s | MFU (%) | Peak allocated (MiB) | Gain over bf16"


def recipe(label: str, column: str) -> Asked | str:
    """`llama-2-7b, variant: float8, 4,096 tokens` or `llama-3.2-1b, 11 labelled, seed 42`."""
    model, name, length, seed = re.fullmatch(r"([^,]+), (.+?)(?:, ([\d,]+) tokens)?(?:, seed (\d+))?", label).groups()
    if column == "Examples apart":
        return "no" if name == "TRL, wrapped" else "yes"
    if column == "Logits computed":
        return "all" if name in ("0 textbook", "variant: all logits") else "labelled"
    where = runs(model=model, rung=RECIPES[name])
    where |= runs(max_length=int(length.replace(",", ""))) if length else {}
    return figure(column), where | (runs(seed=int(seed)) if seed else {})


def beside(published: dict[str, str]) -> Callable[[str, str], Asked | str]:
    return lambda label, column: published[label] if column == PUBLISHED else recipe(label, column)


TABLES = [
    Table(
        "23",
        "Models people use: the textbook and the top on one GPU, rows of 512 tokens",
        GAIN,
        [
            f"{model}, {rung}"
            for model in ("gpt2", "qwen-3-0.6b", "llama-3.2-1b", "mistral-7b")
            for rung in ("0 textbook", "11 labelled")
        ],
        recipe,
        ONE_GPU | runs(max_length=512),
        LADDER,
    ),
    Table(
        "23d",
        "The larger ones on two GPUs, with FSDP2",
        GAIN,
        [f"{model}, {rung}" for model in ("llama-3.1-8b", "qwen-3-8b") for rung in ("0 textbook", "11 labelled")],
        recipe,
        TWO_GPUS | runs(max_length=512),
        LADDER,
    ),
    Table(
        "23e",
        "At the lengths of published figures: two GPUs, with FSDP2",
        PER_GPU,
        ON_TWO_GPUS,
        beside(ON_TWO_GPUS),
        TWO_GPUS,
        LADDER,
    ),
    Table(
        "23f",
        "At the length of a published figure: one GPU",
        PER_GPU,
        ON_ONE_GPU,
        beside(ON_ONE_GPU),
        ONE_GPU,
        LADDER,
    ),
    Table(
        "23h",
        "llmq's shapes: one H100, rows of 1,024 tokens of plain text, all logits, 524,288 tokens a step",
        f"Run | Step time (ms) | Real tokens/s | MFU (%) | Peak allocated (MiB) | {PUBLISHED}",
        LLMQ,
        beside(LLMQ),
        ONE_GPU | runs(max_length=1024),
        LADDER,
    ),
    Table(
        "23i",
        "Other decoders: one GPU, rows of 512 tokens",
        "Run | Step time (ms) | Real tokens/s | Peak allocated (MiB) | Gain over the textbook | Examples apart | "
        "Logits computed",
        [
            *("gemma-3-1b, 0 textbook", "gemma-3-1b, 12 documents"),
            *(
                f"{model}, {name}"
                for model in ("smollm3-3b", "olmoe-1b-7b")
                for name in ("0 textbook", "12 documents", "TRL, wrapped")
            ),
        ],
        recipe,
        ONE_GPU | runs(max_length=512),
        LADDER,
    ),
    Table(
        "23j",
        "TRL as its users run it, by turns with rung 12: one GPU, 64 rows of 512 tokens",
        "Run | Step time (ms) | Real tokens/s | Peak allocated (MiB) | Compilation (s) | Examples apart | "
        "Logits computed",
        [
            *("llama-3.2-1b, 12 documents", "llama-3.2-1b, TRL, bfd by FlexAttention"),
            *("llama-3.2-1b, TRL, bfd by varlen_attn", "llama-3.2-1b, TRL, bfd by FlexAttention, Liger"),
            *("llama-3.2-1b, TRL, bfd by flash-attn-4", "llama-3.2-1b, Unsloth, bfd, weights in bf16"),
            *("llama-3.2-1b, variant: all logits", "qwen-3-0.6b, 12 documents"),
            *("qwen-3-0.6b, TRL, bfd by FlexAttention", "qwen-3-0.6b, TRL, bfd by varlen_attn"),
        ],
        recipe,
        ONE_GPU | runs(max_length=512, batch_size=64),
        LADDER,
    ),
    Table(
        "24b",
        "FP8 and 8-bit moments: the loss over 300 steps, one GPU",
        "Run | Real tokens/s | Train loss (last tenth) | Held-out loss",
        [
            *("llama-3.2-1b, 11 labelled, seed 42", "llama-3.2-1b, 11 labelled, seed 43"),
            *("llama-3.2-1b, variant: float8, seed 42", "llama-3.2-1b, variant: 8bit, seed 42"),
        ],
        recipe,
        runs(world_size=1, max_steps=300),
        LADDER,
    ),
    Table(
        "24c",
        "FP8: two GPUs, with FSDP2",
        FLOAT8,
        [f"{model}, {rung}" for model in ("bloom-7b1", "llama-3.1-8b") for rung in ("11 labelled", "variant: float8")],
        recipe,
        TWO_GPUS | runs(max_length=512),
        LADDER,
    ),
    Table(
        "24d",
        "FP8: one GPU, two rows of 4,096 tokens",
        FLOAT8,
        ["llama-2-7b, 11 labelled", "llama-2-7b, variant: float8"],
        recipe,
        ONE_GPU | runs(max_length=4096, batch_size=2),
        LADDER,
    ),
]
