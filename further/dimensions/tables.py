"""Tables 25 to 26b: what the other dimensions cost."""

import re

from tools.logs.figures import Figure
from tools.tables.table import Asked, Table, figure, of_rows, runs


def tensor(dp_size: int, by_position: bool) -> dict:
    sizes = runs(method="tp", dp_size=dp_size) | (runs(**{"sharding.tp_size": 2}) if dp_size > 1 else {})
    return sizes | runs(sequence_parallel=by_position)


STRATEGIES = {
    "Tensor parallel": tensor(1, False),
    "Tensor parallel, sequence parallel": tensor(1, True),
    "FSDP": runs(method="tp", **{"sharding.tp_size": 1}),
    "FSDP x tensor parallel": tensor(2, False),
    "FSDP x tensor parallel, sequence parallel": tensor(2, True),
    "Context parallel": runs(method="cp", dp_size=1),
    "Context parallel, two rings": runs(method="cp", dp_size=2, **{"sharding.cp_size": 2}),
    "Ulysses": runs(method="sp", dp_size=1),
    "Pipeline, GPipe": runs(method="pp", dp_size=1, schedule="gpipe"),
    "Pipeline, 1F1B": runs(method="pp", dp_size=1, schedule="1f1b"),
    "Pipeline, interleaved": runs(method="pp", dp_size=1, schedule="interleaved"),
    "FSDP (EP_SIZE=1)": runs(method="ep", **{"sharding.ep_size": 1}),
    "Expert parallel": runs(method="ep", **{"sharding.ep_size": 2}),
}
# Rows of one length: Table 26 has longer ones.
SHORT = runs(max_length=512, gradient_checkpointing=False)
LONG = runs(model="llama-3.2-1b", gradient_checkpointing=True)


def padded(title: str) -> Figure:
    """Rows have one length: all their tokens count."""
    return figure("Padded tokens/s" if title == "Tokens/s" else title)


def experts(label: str, column: str) -> Asked:
    """`Expert parallel, 24 rows`."""
    name, rows = label.split(", ")
    return padded(column), STRATEGIES[name] | runs(batch_size=int(rows.split()[0]))


def by_length(label: str, column: str) -> Asked:
    """`Step time, 8,192 tokens (ms)`."""
    title, length, unit = re.fullmatch(r"(.+), ([\d,]+) tokens(.*)", column).groups()
    return padded(f"{title}{unit}"), STRATEGIES[label] | runs(max_length=int(length.replace(",", "")))


TABLES = {
    "25": Table(of_rows(STRATEGIES), SHORT | runs(world_size=2)),
    "25b": Table(of_rows(STRATEGIES), SHORT | runs(world_size=4)),
    "25c": Table(experts, runs(world_size=2)),
    "26": Table(by_length, LONG | runs(world_size=2)),
    "26b": Table(by_length, LONG | runs(world_size=4)),
}
PREDICTIONS = {
    "1": ["25 | Tensor parallel | All-reduce; Sent per rank (MiB)", "25b | Tensor parallel | Sent per rank (MiB)"],
    "2": [
        "25 | Tensor parallel; Tensor parallel, sequence parallel | Sent per rank (MiB)",
        "25 | Tensor parallel; Tensor parallel, sequence parallel | Peak allocated (MiB)",
    ],
    "3": ["25 | Context parallel | Sent per rank (MiB)"],
    "4": ["25 | Pipeline, GPipe; Pipeline, 1F1B; Pipeline, interleaved | Predicted bubble (%)"],
}
