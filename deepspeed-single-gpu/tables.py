"""Tables 3 to 4d: what DeepSpeed's stages and offload cost on one GPU."""

from tools.logs.run import NoneOf, Where
from tools.tables.table import Table, config_and_batch, of_rows, runs, strategy

PINNED = {
    "pin_memory true": runs(config="zero2_offload"),
    "pin_memory false": runs(config="zero2_offload_unpinned"),
}
SMALL = runs(model="bloom-560m", train_examples=500)


def model_and_stage(model_and_data: str, config: str) -> Where:
    """Of `BLOOM-3b, 10,000`: the model, and on how many examples."""
    model, examples = model_and_data.split(", ")
    return runs(model=model.lower(), train_examples=int(examples.replace(",", ""))) | strategy(config)


# Tables 3 and 4 are not about the large micro-batches of Tables 4d and 9b; a smaller GPU may ask for another than ours.
TABLES = {
    "3": Table(of_rows(PINNED), SMALL | runs(batch_size=NoneOf([16]))),
    "4": Table(of_rows(model_and_stage), runs(batch_size=NoneOf([16, 24])), label_columns=2),
    "4b": Table(of_rows(config_and_batch), SMALL, label_columns=2),
    "4c": Table(of_rows(config_and_batch), SMALL | runs(timed=True), label_columns=2),
    "4d": Table(of_rows(config_and_batch), SMALL, label_columns=2),
}
ROWS = "Stage 0; Stage 2; Stage 2 + offload | 4 x 4, fp16"
PREDICTIONS = {
    "1": [f"4b | {ROWS} | States (MiB)"],
    "2": [f"4b | {ROWS} | Step time (ms)"],
    "3": [
        "4 | BLOOM-560m, 500 | Stage 2; Stage 2 + offload | Peak GPU Memory (MiB)",
        "4 | BLOOM-560m, 500 | Stage 2; Stage 2 + offload | Peak CPU Memory, RSS (MiB)",
    ],
}
