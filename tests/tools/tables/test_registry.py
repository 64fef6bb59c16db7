import pytest

from tools.tables.fill import definitions, plan
from tools.tables.metrics import METRICS
from tools.tables.registry import _LABELS, meaning, run_conditions
from tools.tables.repository import ROOT, readmes

STAGES = [f"Stage {stage}{offload}" for stage in (1, 2, 3) for offload in ("", " + offload")]
TABLE_5_ROWS = [
    "Train Runtime (sec)",
    "Steps/sec",
    "Samples/sec",
    "Train Loss (mean)",
    "Eval Loss (final)",
    "Eval Speed (samples/sec)",
    "Peak GPU Memory (MiB)",
    "Average GPU Memory (MiB)",
]


def test_every_label_of_every_readme_can_be_filled():
    for readme in readmes(ROOT):
        for table in definitions(readme):
            plan(table)


def test_every_label_names_a_known_metric():
    assert {entry.metric for entry in _LABELS.values()} - {None} <= set(METRICS)


def conditions(label):
    return run_conditions(meaning(label).where)


@pytest.mark.parametrize(
    ("label", "where"),
    [
        ("Stage 1 + offload", {"config": "zero1_offload"}),
        ("Stage 3", {"config": "zero3"}),
        ("**ZeRO-2**", {"config": "zero2"}),
        ("2 GPUs", {"world_size": 2}),
        ("8 nodes", {"nodes": 8}),
        ("`pin_memory` true", {"config": "zero2_offload"}),
        ("pin_memory  false", {"config": "zero2_offload_unpinned"}),
        ("BLOOM-3b, 10,000", {"model": "bloom-3b", "train_examples": 10_000}),
        ("BLOOM-560m, 500", {"model": "bloom-560m", "train_examples": 500}),
        ("BLOOM-7b1", {"model": "bloom-7b1"}),
    ],
)
def test_label_selects_its_runs(label, where):
    assert conditions(label) == where


def test_unknown_label_means_nothing():
    assert meaning("Peak TPU Memory (MiB)") is None
    assert meaning("Stage 4") is None


def table(number, rows, columns):
    blank = " | " * len(columns)
    lines = [f"**Table {number}** *T*", "", f"| {' | '.join(['', *columns])} |", "|---" * (len(columns) + 1) + "|"]
    return "\n".join([*lines, *(f"| {row} | {blank}" for row in rows)]) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        table("3", ["pin_memory true"], ["Peak GPU Memory (MiB)", "Peak CPU Memory (MiB)", "Total Runtime"]),
        table("5", TABLE_5_ROWS, ["2 GPUs", "4 GPUs", "6 GPUs", "8 GPUs"]),
        table("6", [*TABLE_5_ROWS, "Peak CPU Memory (MiB)", "Average CPU Memory (MiB)"], STAGES),
        table(
            "7",
            ["Stage 1", "Stage 2", "Stage 3"],
            [
                "GPU Mem (No Offload)",
                "GPU Mem (Offload)",
                "Mem Savings (%)",
                "Train Runtime (No Offload)",
                "Train Runtime (Offload)",
                "Runtime change (%)",
            ],
        ),
        table(
            "8",
            ["Train Samples/sec", "Train Loss (mean)", "Peak GPU Memory (MiB)", "Average GPU Memory (MiB)"],
            ["2 nodes", "4 nodes", "8 nodes"],
        ),
        table(
            "9",
            [
                "Parameter sharding",
                "Gradient sharding",
                "Optimizer sharding",
                "CPU offload",
                "No model-code change",
                "Works with HF Trainer",
            ],
            ["DDP", "FSDP1", "FSDP2", "DeepSpeed ZeRO-3"],
        ),
        (
            "**Table 4** *T*\n\n| Model and data | DeepSpeed config | Peak GPU Memory Used (MiB) | "
            "Peak CPU Memory Used (MiB) | Total RunTime |\n|---|---|---|---|---|\n"
            "| BLOOM-7b1, 10,000 | Stage 3 + offload | | | |\n"
        ),
    ],
    ids=["3", "5", "6", "7", "8", "9", "4"],
)
def test_tables_of_the_specification_can_be_filled(make_readme, text):
    (definition,) = definitions(make_readme(text))
    planned = plan(definition)
    assert sum(cell is not None for row in planned for cell in row) == sum(row.count("") for row in definition.rows)
