"""Tables 18 to 20: the speed ladder, its peers, its top on several GPUs, two versions of Transformers; Tables 28 to
28e: a model that learns.
"""

import re

from tools.logs.run import NoneOf, Where
from tools.tables.comparisons import RUNGS
from tools.tables.table import Table, batch, of_rows, runs, strategy

LADDER = [label for label in RUNGS if label[0].isdigit()]
PEERS = {"TRL, bfd by FlexAttention": "peer_trl_exact", "TRL, wrapped": "peer_trl_packed"}
METHODS = {
    "One GPU": runs(exercise="speed-ladder", world_size=1),
    **{name: strategy(name) for name in ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")},
    "FSDP2": runs(method="fsdp2"),
}
COMPILED = {
    "ZeRO-3 with hooks": runs(config="zero3"),
    "DeepCompile": runs(config="zero3_deepcompile"),
    "FSDP2": runs(method="fsdp2"),
}
FAULTS = {
    "FULL_SHARD": runs(config="full_shard", exercise="fsdp"),
    "FULL_SHARD, a rank killed": runs(method="fsdp2", fault="rank_killed"),
    "FULL_SHARD, preempted": runs(method="fsdp2", fault="preemption"),
}

VERSIONED = {
    "0 textbook": runs(rung="0_textbook"),
    "12 documents": runs(rung="12_documents"),
    **{name: strategy(name) for name in ("ZeRO-2", "ZeRO-3", "FULL_SHARD")},
    "LoRA": runs(exercise="lora", rung="1_bf16"),
}

MOMENTS = {"": "adamw_torch_fused", "8-bit moments": "adamw_torch_8bit"}  # of a row's optimizer

BLOOM = runs(model="bloom-560m", world_size=1)
SMOLLM = runs(model="smollm2-135m", world_size=1)
TWICE = SMOLLM | runs(train_examples=4000, epochs=2, shared_gpu=NoneOf())
ONCE = SMOLLM | runs(world_size=2, train_examples=4000, epochs=1, learning_rate=5e-5, shared_gpu=NoneOf())
# Variants of a method's communication are no runs of the method's own row.
TOP = runs(rung="11_labelled", nodes=1, config=NoneOf(["ddp_whole_blocks", "ddp_tuned", "zero2_small_buckets"]))
SEVERAL = ["fsdp", "deepspeed-multi-gpu", "speed-ladder"]
LEARNERS = ["baseline", "speed-ladder", "lora"]


def recipe(label: str) -> Where:
    """The runs of a row such as `12 documents, 64 rows, 5e-4`, `baseline, 16 x 11, bf16, 5e-5` or `LoRA 8, 2e-4`."""
    name, rate = re.fullmatch(r"(.+?)(?:, ([\d.]+e-\d))?", label).groups()
    at_rate = runs(learning_rate=float(rate)) if rate else {}
    name, rows = re.fullmatch(r"(.+?)(?:, (\d+) rows)?", name).groups()
    sizes = (runs(batch_size=int(rows)) if rows else {}) | at_rate
    if name.startswith("baseline, "):
        sizes_and_precision, _, pure = name.removeprefix("baseline, ").partition(", weights in ")
        weights = runs(weights="bf16", optimizer=MOMENTS[pure.partition(", ")[2]]) if pure else {}
        return runs(exercise="baseline") | batch(sizes_and_precision) | weights | sizes
    if name.startswith(("LoRA ", "QLoRA ")):
        adapters, rank = name.lower().split()
        return runs(adapters=adapters, rung="1_bf16", lora_rank=int(rank)) | sizes
    if name.endswith(", liger"):
        return runs(loss="liger", loss_chunk=16384, rung=RUNGS[name.removesuffix(", liger")])
    if name in LADDER and not sizes:  # Liger's loss on a rung that has ours is a row of its own
        return runs(loss=NoneOf(["liger"]), rung=RUNGS[name])
    return runs(rung=(RUNGS | PEERS)[name]) | sizes


def of_model(label: str) -> Where:
    """`llama-3.2-1b, 12 documents`."""
    model, rung = label.split(", ")
    return runs(model=model, rung=RUNGS[rung])


def compiled(label: str) -> Where:
    """`2 x DeepCompile`: on two GPUs."""
    gpus, name = label.split(" x ")
    return COMPILED[name] | runs(world_size=int(gpus))


def of_version(label: str) -> Where:
    """`ZeRO-2, 5.17.0`: with this version of Transformers."""
    name, version = label.split(", ")
    return VERSIONED[name] | runs(transformers=version)


def learning(label: str) -> Where:
    return FAULTS.get(label) or strategy(label)


RECIPES = of_rows(recipe, texts=["Document masking", "Logits computed"])
TABLES = {
    "18": Table(RECIPES, BLOOM),
    "18c": Table(RECIPES, BLOOM),
    "18e": Table(RECIPES, BLOOM | runs(batch_size=64)),
    "18f": Table(of_rows(of_model), runs(world_size=1, profiled=False), compares=["model"]),
    "18g": Table(of_rows(of_version), BLOOM, [*LEARNERS, "deepspeed-single-gpu", "fsdp"]),
    "19": Table(of_rows(METHODS), TOP | runs(model="bloom-1b7", world_size=4), SEVERAL),
    "19b": Table(of_rows(METHODS), TOP | runs(model="bloom-1b7", world_size=2), SEVERAL),
    # DeepSpeed's own compilation, whatever the number of GPUs.
    "19c": Table(of_rows(compiled), runs(rung="variant_sdpa", loss="full", model="llama-3.2-1b", batch_size=16)),
    "20": Table(of_rows(METHODS), TOP | runs(model="bloom-7b1", world_size=4), SEVERAL),
    "28": Table(RECIPES, TWICE | runs(learning_rate=5e-5), LEARNERS),
    "28b": Table(RECIPES, TWICE, LEARNERS),
    "28c": Table(RECIPES, TWICE, LEARNERS),
    "28d": Table(of_rows(learning), ONCE, ["fsdp", "deepspeed-multi-gpu", "resilience"]),
    "28e": Table(of_rows(learning), ONCE, ["fsdp", "resilience"]),
}
PREDICTIONS = {"1": ["18 | 4 packing; 12 documents | Gain over the textbook"]} | {
    str(number): [f"18 | {rung} | Gain over the rung below"] for number, rung in enumerate(LADDER[1:13], 2)
}
