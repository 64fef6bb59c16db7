"""Tables 1 to 2b: a run of the baseline; Table 1b: of a model that learns."""

from tools.logs.run import NoneOf
from tools.tables.table import Table, of_row, of_rows, runs

LEARNS = runs(model="smollm2-135m", train_examples=500, shared_gpu=NoneOf())
TABLES = {
    "1": Table(of_row),
    "1b": Table(of_rows({"Value": runs()}), LEARNS, compares=["model"]),
    "2": Table(of_row),
    "2b": Table(of_row),
}
PREDICTIONS = {
    "1": ["1 | Steps per Epoch | Value"],
    "2": ["1 | Peak allocated (MiB) | Value"],
    "3": ["1 | Trainer's samples/s | Value"],
}
