"""Tables 23 to 24d: the speed ladder's recipes with other models; runs of further/speed-ladder/."""

import re

from tools.logs.run import NoneOf, Where
from tools.tables.comparisons import RUNGS
from tools.tables.table import Table, of_rows, runs, strategy

RECIPES = RUNGS | {
    "TRL, wrapped": "peer_trl_packed",
    "TRL, bfd by FlexAttention": "peer_trl_exact",
    "TRL, bfd by FlexAttention, Liger": "peer_trl_exact_liger",
    "TRL, bfd by varlen_attn": "peer_trl_varlen",
    "TRL, bfd by flash-attn-4": "peer_trl_fa4",
    "Unsloth, bfd, weights in bf16": "peer_unsloth",
}
TEXTS = ("Published, per GPU", "Document masking", "Logits computed")
LADDER = ["speed-ladder"]
FULL = runs(nodes=1, max_steps=NoneOf([300]))
# DDP's configurations on one GPU are no repeats of a row.
ONE_GPU = FULL | runs(world_size=1, config=NoneOf(["ddp", "ddp_whole_blocks"]))
TWO_GPUS = FULL | runs(method="fsdp2", world_size=2)


def recipe(label: str) -> Where:
    """`llama-2-7b, variant: float8, 4,096 tokens` or `llama-3.2-1b, 11 labelled, seed 42`."""
    model, name, length, seed = re.fullmatch(r"([^,]+), (.+?)(?:, ([\d,]+) tokens)?(?:, seed (\d+))?", label).groups()
    where = runs(model=model, rung=RECIPES[name])
    where |= runs(max_length=int(length.replace(",", ""))) if length else {}
    where |= runs(seed=int(seed)) if seed else {}
    return where


def of_strategy(label: str) -> Where:
    """`llama-3.2-1b, DDP: 12 documents`."""
    model, method, name = re.fullmatch(r"(.+), (.+): (.+)", label).groups()
    return recipe(f"{model}, {name}") | strategy(method)


TABLES = {
    "23": Table(of_rows(recipe, TEXTS), ONE_GPU | runs(max_length=512), LADDER),
    "23d": Table(of_rows(recipe, TEXTS), TWO_GPUS | runs(max_length=512), LADDER),
    "23e": Table(of_rows(recipe, TEXTS), TWO_GPUS, LADDER),
    "23f": Table(of_rows(recipe, TEXTS), ONE_GPU, LADDER),
    "23h": Table(of_rows(recipe, TEXTS), ONE_GPU | runs(max_length=1024), LADDER),
    "23i": Table(of_rows(recipe, TEXTS), ONE_GPU | runs(max_length=512), LADDER),
    "23j": Table(of_rows(recipe, TEXTS), ONE_GPU | runs(max_length=512, batch_size=64), LADDER),
    "23k": Table(
        of_rows(of_strategy), FULL | runs(world_size=2, max_length=512, batch_size=64), LADDER, compares=["model"]
    ),
    "24b": Table(of_rows(recipe, TEXTS), runs(world_size=1, max_steps=300), LADDER),
    "24c": Table(of_rows(recipe, TEXTS), TWO_GPUS | runs(max_length=512), LADDER),
    "24d": Table(of_rows(recipe, TEXTS), ONE_GPU | runs(max_length=4096, batch_size=2), LADDER),
}
