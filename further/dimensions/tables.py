"""Tables 25 to 26b: what the other dimensions cost."""

import re

from tools.tables.table import Asked, Table, figure, runs


def tensor(dp_size: int, by_position: bool) -> dict:
    sizes = runs(method="tp", dp_size=dp_size) | (runs(**{"sharding.tp_size": 2}) if dp_size > 1 else {})
    return sizes | runs(sequence_parallel=by_position)


STRATEGIES = {
    "Tensor parallel": tensor(1, False),
    "Tensor parallel, by position": tensor(1, True),
    "FSDP": runs(method="tp", **{"sharding.tp_size": 1}),
    "FSDP x tensor parallel": tensor(2, False),
    "FSDP x tensor parallel, by position": tensor(2, True),
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
ON_TWO = ("Tensor parallel", "Tensor parallel, by position", "Context parallel", "Ulysses")
PIPELINES = ("Pipeline, GPipe", "Pipeline, 1F1B", "Pipeline, interleaved")
LONG_ROWS = ["FSDP", *ON_TWO, "Pipeline, interleaved"]
HEADER = (
    "Strategy | All-reduce | All-gather | Reduce-scatter | Sends | Other collectives | Sent per rank (MiB) | "
    "Predicted (MiB) | Peak allocated (MiB) | Step time (ms) | Predicted bubble (%) | Largest stage (x mean)"
)


def strategy(label: str, column: str) -> Asked:
    return figure(column), STRATEGIES[label]


def experts(label: str, column: str) -> Asked:
    """`Expert parallel, 24 rows`."""
    name, rows = label.split(", ")
    column = {"Tokens/s": "Padded tokens/s"}.get(column, column)
    return figure(column), STRATEGIES[name] | runs(batch_size=int(rows.split()[0]))


def by_length(label: str, column: str) -> Asked:
    """`Step time, 8,192 tokens (ms)`."""
    title, length, unit = re.fullmatch(r"(.+), ([\d,]+) tokens(.*)", column).groups()
    title = {"Tokens/s": "Padded tokens/s"}.get(title, title)
    return figure(f"{title}{unit}"), STRATEGIES[label] | runs(max_length=int(length.replace(",", "")))


TABLES = [
    Table(
        "25",
        "What the other dimensions cost, 2 GPUs",
        HEADER,
        [*ON_TWO, *PIPELINES],
        strategy,
        SHORT | runs(world_size=2),
    ),
    Table(
        "25b",
        "The same on 4 GPUs",
        HEADER,
        [name for name in STRATEGIES if name not in ("FSDP (EP_SIZE=1)", "Expert parallel")],
        strategy,
        SHORT | runs(world_size=4),
    ),
    Table(
        "25c",
        "A mixture of experts, 2 GPUs: OLMoE's shape with 4 of its 16 layers, rows of 128 tokens",
        "Strategy | Other collectives | Sent per rank (MiB) | Predicted (MiB) | Peak allocated (MiB) | "
        "Step time (ms) | Tokens/s | Fullest expert (x mean) | Fullest rank (x mean)",
        [f"{name}, {rows} rows" for rows in (24, 96) for name in ("FSDP (EP_SIZE=1)", "Expert parallel")],
        experts,
        runs(world_size=2),
    ),
    Table(
        "26",
        "Long rows: 2 GPUs, Llama 3.2 1B, blocks recomputed, loss in chunks",
        "Strategy | Peak allocated, 8,192 tokens (MiB) | Peak allocated, 32,768 tokens (MiB) | "
        "Peak allocated, 131,072 tokens (MiB) | Step time, 8,192 tokens (ms) | Step time, 32,768 tokens (ms) | "
        "Step time, 131,072 tokens (ms) | Tokens/s, 8,192 tokens | Tokens/s, 32,768 tokens | Tokens/s, 131,072 tokens",
        LONG_ROWS,
        by_length,
        LONG | runs(world_size=2),
    ),
    Table(
        "26b",
        "The same on 4 GPUs",
        "Strategy | Peak allocated, 131,072 tokens (MiB) | Step time, 131,072 tokens (ms) | Tokens/s, 131,072 tokens",
        LONG_ROWS,
        by_length,
        LONG | runs(world_size=4),
    ),
]
PREDICTIONS = {
    "1": ["25 | Tensor parallel | All-reduce; Sent per rank (MiB)", "25b | Tensor parallel | Sent per rank (MiB)"],
    "2": [
        "25 | Tensor parallel; Tensor parallel, by position | Sent per rank (MiB)",
        "25 | Tensor parallel; Tensor parallel, by position | Peak allocated (MiB)",
    ],
    "3": ["25 | Context parallel | Sent per rank (MiB)"],
    "4": ["25 | Pipeline, GPipe; Pipeline, 1F1B; Pipeline, interleaved | Predicted bubble (%)"],
}
