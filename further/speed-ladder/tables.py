"""Tables 18 to 20: the speed ladder, its peers, its top on several GPUs; Tables 28 to 28d: a model that learns."""

import re

from tools.logs.run import NoneOf, Where
from tools.tables.table import RUNGS, Asked, Table, batch, figure, runs, zero

LADDER = sorted((label for label in RUNGS if label[0].isdigit()), key=lambda label: int(label.split()[0]))
PEERS = {"TRL, bfd by FlexAttention": "peer_trl_exact", "TRL, wrapped": "peer_trl_packed"}
ALL_LOGITS = ("peer: trainer grouped", "peer: trainer compiled", "10 stream")
METHODS = {
    "One GPU": runs(exercise="speed-ladder", world_size=1),
    "DDP": runs(method="ddp"),
    **{name: zero(name) for name in ("ZeRO-1", "ZeRO-2", "ZeRO-3")},
    "FSDP2": runs(method="fsdp2"),
}
COMPILED = {
    "ZeRO-3 with hooks": runs(config="zero3"),
    "DeepCompile": runs(config="zero3_deepcompile"),
    "FSDP2": runs(method="fsdp2"),
}
LEARNING = {
    "DDP": runs(method="ddp"),
    "FULL_SHARD": runs(config="full_shard", exercise="fsdp"),
    "SHARD_GRAD_OP": runs(config="shard_grad_op"),
    "FULL_SHARD + offload": runs(config="full_shard_offload"),
    "FULL_SHARD, a rank killed": runs(method="fsdp2", fault="rank_killed"),
    "FULL_SHARD, preempted": runs(method="fsdp2", fault="preemption"),
    **{name: zero(name) for name in ("ZeRO-0", "ZeRO-1", "ZeRO-2", "ZeRO-3", "ZeRO-3 + offload")},
}

BLOOM = runs(model="bloom-560m", world_size=1)
SMOLLM = runs(model="smollm2-135m", world_size=1)
TWICE = SMOLLM | runs(train_examples=4000, epochs=2, shared_gpu=NoneOf())
# Variants of a method's communication are no runs of the method's own row.
TOP = runs(rung="11_labelled", nodes=1, config=NoneOf(["ddp_whole_blocks", "ddp_tuned", "zero2_small_buckets"]))
SEVERAL = ["fsdp", "deepspeed-multi-gpu", "speed-ladder"]
LEARNERS = ["baseline", "speed-ladder", "lora"]
SPEED = "Samples/s | Real tokens/s | MFU (%) | MFU by the convention (%) | Peak allocated (MiB)"
SCORES = "Held-out, exact match (%) | Exact match, std (%) | Held-out, F1 (%)"


def runs_of(label: str) -> Where:
    """The runs of a row such as `12 documents, 64 rows, 5e-4`, `baseline, 16 x 11, bf16, 5e-5` or `LoRA 8, 2e-4`."""
    name, rate = re.fullmatch(r"(.+?)(?:, ([\d.]+e-\d))?", label).groups()
    at_rate = runs(learning_rate=float(rate)) if rate else {}
    name, rows = re.fullmatch(r"(.+?)(?:, (\d+) rows)?", name).groups()
    sizes = (runs(batch_size=int(rows)) if rows else {}) | at_rate
    if name.startswith("baseline, "):
        return runs(exercise="baseline") | batch(name.removeprefix("baseline, ")) | sizes
    if name.startswith(("LoRA ", "QLoRA ")):
        adapters, rank = name.lower().split()
        return runs(adapters=adapters, rung="1_bf16", lora_rank=int(rank)) | sizes
    if name.endswith(", liger"):
        return runs(loss="liger", loss_chunk=16384, rung=RUNGS[name.removesuffix(", liger")])
    if name in LADDER and not sizes:  # Liger's loss on a rung that has ours is a row of its own
        return runs(loss=NoneOf(["liger"]), rung=RUNGS[name])
    return runs(rung=(RUNGS | PEERS)[name]) | sizes


def recipe(label: str, column: str) -> Asked | str:
    if column == "Examples apart":
        return "no" if label.startswith("TRL, wrapped") else "yes"
    if column == "Logits computed":
        return "all" if label.startswith(ALL_LOGITS) else "labelled"
    return figure(column), runs_of(label)


def method(label: str, column: str) -> Asked:
    return figure(column), METHODS[label]


def compiled(label: str, column: str) -> Asked:
    """`2 x DeepCompile`: on two GPUs."""
    gpus, name = label.split(" x ")
    return figure(column), COMPILED[name] | runs(world_size=int(gpus))


def version(label: str, column: str) -> Asked:
    """`0 textbook, 5.17.0`: with this version of Transformers."""
    name, transformers = label.split(", ")
    return figure(column), runs(transformers=transformers, rung=RUNGS[name])


def learning(label: str, column: str) -> Asked:
    return figure(column), LEARNING[label]


TABLES = [
    Table(
        "18",
        "The ladder: BLOOM-560m, one GPU, 512 tokens",
        "Rung | Step time (ms) | Examples per step | Samples/s | Padded tokens/s | Real tokens/s | MFU (%) | "
        "MFU by the convention (%) | Peak allocated (MiB) | Gain over the rung below | Gain over the textbook | "
        "Mean GPU Power (W) | Energy (J) | Real tokens per joule",
        LADDER,
        recipe,
        BLOOM,
    ),
    Table(
        "18c",
        "Peers: other libraries, the same model, examples and GPU",
        "Library | Step time (ms) | Real tokens/s | Peak allocated (MiB) | Of rung 10 (%) | Of the top (%) | "
        "Examples apart | Logits computed",
        [
            *("peer: trainer grouped, 16 rows", "peer: trainer compiled, 16 rows"),
            *("peer: trl padded, 16 rows", "peer: trl padded, 64 rows"),
            *("TRL, wrapped, 64 rows", "10 stream", "11 labelled"),
        ],
        recipe,
        BLOOM,
    ),
    Table(
        "18d",
        "How long until it answers? SmolLM2-135M, 4,000 questions twice",
        f"Recipe | Optimizer steps | Steps to 48 % exact match | {SCORES}",
        [
            *(f"0 textbook, {rate}" for rate in ("5e-5", "1e-4", "2e-4", "4e-4")),
            *(f"TRL, bfd by FlexAttention, {rate}" for rate in ("2.5e-4", "5e-4", "1e-3", "2e-3")),
            *(f"12 documents, {rate}" for rate in ("2.5e-4", "5e-4", "1e-3", "2e-3")),
        ],
        recipe,
        TWICE,
        LEARNERS,
    ),
    Table(
        "18e",
        "Rung 10 at its limit: all logits computed",
        "Rung | Step time (ms) | Real tokens/s | MFU (%) | Peak allocated (MiB) | Of rung 10 (%)",
        [
            *("10 stream", "10 stream, liger"),
            *("variant: all logits", "variant: all logits, 128 rows", "variant: all logits, 192 rows"),
        ],
        recipe,
        BLOOM | runs(batch_size=64),
    ),
    # How fast the recipes are with the model that learns.
    Table(
        "18g",
        "The recipes with SmolLM2-135M, one GPU",
        "Recipe | Step time (ms) | Examples per step | Real tokens/s | Peak allocated (MiB) | Compilation (s)",
        ["0 textbook", "TRL, bfd by FlexAttention, 64 rows", "12 documents, 64 rows"],
        recipe,
        SMOLLM,
    ),
    Table(
        "18h",
        "Transformers 5.17.0 and 5.23.0, BLOOM-560m",
        "Rung, Transformers | Step time (ms) | Real tokens/s | Peak allocated (MiB) | Loss after one step | "
        "Train Loss (mean)",
        [f"{rung}, {release}" for rung in ("0 textbook", "12 documents") for release in ("5.17.0", "5.23.0")],
        version,
        BLOOM,
    ),
    Table(
        "19",
        "Rung 11 on four GPUs: BLOOM-1b7",
        f"Method | {SPEED} | Of n times one GPU (%)",
        METHODS,
        method,
        TOP | runs(model="bloom-1b7", world_size=4),
        SEVERAL,
    ),
    Table(
        "19b",
        "Rung 11 on two GPUs: BLOOM-1b7",
        f"Method | {SPEED} | Of n times one GPU (%)",
        METHODS,
        method,
        TOP | runs(model="bloom-1b7", world_size=2),
        SEVERAL,
    ),
    # DeepSpeed's own compilation, whatever the number of GPUs.
    Table(
        "19c",
        "ZeRO-3 with DeepCompile: Llama 3.2 1B, 16 packed rows of 512 on each GPU, all logits",
        "GPUs x method | Step time (ms) | Real tokens/s | MFU (%) | Peak allocated (MiB) | Compilation (s)",
        [f"{gpus} x {name}" for gpus in (2, 1) for name in COMPILED],
        compiled,
        runs(rung="variant_sdpa", loss="full", model="llama-3.2-1b", batch_size=16),
    ),
    Table(
        "20",
        "Rung 11 on four GPUs: BLOOM-7b1",
        f"Method | {SPEED}",
        ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "FSDP2"],
        method,
        TOP | runs(model="bloom-7b1", world_size=4),
        SEVERAL,
    ),
    Table(
        "28",
        "A model that learns: SmolLM2-135M, 4,000 questions twice, about 16 examples per step",
        f"Run | Optimizer steps | Held-out loss | {SCORES}",
        [
            *("baseline, 16 x 1, fp32", "baseline, 16 x 1, fp16", "baseline, 16 x 1, bf16", "0 textbook"),
            *("6 loss, 6 rows", "12 documents, 6 rows", "variant: float8, 6 rows", "variant: 8bit, 6 rows"),
        ],
        recipe,
        TWICE | runs(learning_rate=5e-5),
        LEARNERS,
    ),
    Table(
        "28b",
        "Batch size and learning rate, without packing and with it",
        "Run | Optimizer steps | Held-out loss | Held-out, exact match (%) | Held-out, F1 (%)",
        [
            *("baseline, 16 x 11, bf16, 5e-5", "baseline, 16 x 11, bf16, 1.7e-4"),
            *("6 loss, 16 rows, 5e-5", "6 loss, 16 rows, 8.7e-5"),
            *("12 documents, 64 rows, 5e-5", "12 documents, 64 rows, 1.7e-4", "12 documents, 64 rows, 5e-4"),
        ],
        recipe,
        TWICE,
        LEARNERS,
    ),
    Table(
        "28c",
        "Adapters: rank and learning rate",
        f"Run | Held-out loss | {SCORES}",
        [
            *("baseline, 16 x 1, bf16, 5e-5", "LoRA 8, 2e-4", "QLoRA 8, 2e-4", "LoRA 64, 2e-4", "LoRA 8, 1e-3"),
        ],
        recipe,
        TWICE,
        LEARNERS,
    ),
    # The same once, on two GPUs.
    Table(
        "28d",
        "Strategies on two GPUs: 4,000 questions once, bf16, 16 examples per step",
        "Run | Loss after one step | Train Loss (mean) | Held-out loss | Held-out, exact match (%) | Held-out, F1 (%)",
        LEARNING,
        learning,
        runs(
            model="smollm2-135m", world_size=2, train_examples=4000, epochs=1, learning_rate=5e-5, shared_gpu=NoneOf()
        ),
        ["fsdp", "deepspeed-multi-gpu", "resilience"],
    ),
]
PREDICTIONS = {str(number): [f"18 | {rung} | Gain over the rung below"] for number, rung in enumerate(LADDER[1:], 1)}
