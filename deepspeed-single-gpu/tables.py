"""Tables 3 to 4d: what DeepSpeed's stages and offload cost on one GPU."""

from tools.logs.run import NoneOf
from tools.tables.table import Asked, Table, batch, figure, runs, zero

PINNED = {"pin_memory true": "zero2_offload", "pin_memory false": "zero2_offload_unpinned"}
SMALL = runs(model="bloom-560m", train_examples=500)


def pinned(setting: str, column: str) -> Asked:
    return figure(column), runs(config=PINNED[setting])


def model_and_stage(model_and_data: str, config: str, column: str) -> Asked:
    """Of `BLOOM-3b, 10,000`: the model, and on how many examples."""
    model, examples = model_and_data.split(", ")
    where = runs(model=model.lower(), train_examples=int(examples.replace(",", "")))
    return figure(column), where | zero(config)


def config_and_batch(config: str, sizes: str, column: str) -> Asked:
    return figure(column), zero(config) | batch(sizes)


# Tables 3 and 4 are not about the large micro-batches of Tables 4d and 9b; a smaller GPU may ask for another than ours.
TABLES = {
    "3": Table(pinned, SMALL | runs(batch_size=NoneOf([16]))),
    "4": Table(model_and_stage, runs(batch_size=NoneOf([16, 24]))),
    "4b": Table(config_and_batch, SMALL),
    "4c": Table(config_and_batch, SMALL | runs(timed=True)),
    "4d": Table(config_and_batch, SMALL),
}
ROWS = "; ".join(f"{stage} / 4 x 4, fp16" for stage in ("Stage 0", "Stage 2", "Stage 2 + offload"))
PREDICTIONS = {
    "1": [f"4b | {ROWS} | States (MiB)"],
    "2": [f"4b | {ROWS} | Step time (ms)"],
    "3": [
        "4 | BLOOM-560m, 500 / Stage 2; BLOOM-560m, 500 / Stage 2 + offload | Peak GPU Memory (MiB)",
        "4 | BLOOM-560m, 500 / Stage 2; BLOOM-560m, 500 / Stage 2 + offload | Peak CPU Memory, RSS (MiB)",
    ],
}
