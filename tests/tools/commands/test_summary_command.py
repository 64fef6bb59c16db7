"""What a launcher says at the end of a run: a few lines, of which none is about something that was not measured."""

import re
from pathlib import Path

import pytest

from tools.__main__ import main
from tools.commands import summary

SINGLE = "deepspeed-single-gpu"


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]):
    def told(run: Path) -> list[str]:
        capsys.readouterr()
        assert main(["summary", str(run)]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.splitlines()

    return told


@pytest.fixture
def cells(told):
    """What the summary says about cells, and which command is next."""
    return lambda run: [line for line in told(run) if line.startswith(("cells: ", "next: "))]


def test_completed_run_is_a_few_lines_and_a_failed_one_says_where_to_read_on(make_run, told) -> None:
    run = make_run("20261121-094500-j1")
    assert told(run) == [
        "loss: 2.2500 in the last tenth of the steps, 1.7790 in the last evaluation",
        "speed: 11.80 samples/s, 1,355.9 ms per step",
        "peak memory: 21,658 MiB of GPU memory, 8,000 MiB of CPU memory (RSS)",
        "cells: Table 1 of baseline: Train Loss (mean), Value 0.7039; and 11 more",
        "cells: Table 2 of baseline: Peak GPU Memory (MiB), Value 21,658; and 2 more",
        "cells: Table 2b of baseline: Peak CPU Memory, RSS (MiB), Value 8,000",
        f"evidence: {run}",
        f"next: python -m tools fill baseline --logs {run.parents[1]}",
    ]
    nothing = {"steps.csv": None, "gpu_memory.csv": None, "cpu_memory.txt": None, "train.out": "error: no\n"}
    run = make_run("20261121-094500-j2", {"state": "failed", "exit_code": 1}, summary=None, **nothing)
    assert told(run) == [f"evidence: {run}", f"next: less {run}/train.out"]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"settings": {"profile": "5"}}, "profiled"),
        ({"exercise": SINGLE, "config": "zero2", "model": {"name": "bloom-1b1"}}, "model bloom-1b1, not bloom-560m"),
        ({"exercise": "speed-ladder", "settings": {"rung": "7_compile"}, "world_size": 2}, "processes 2, not 1"),
        ({"exercise": "my-exercise"}, "no table is about runs of my-exercise"),
    ],
)
def test_run_that_no_cell_asks_for_says_why(make_run, cells, record, why) -> None:
    line, _ = cells(make_run("20261121-094500-j1", record))
    assert line == f"cells: none: {why}"


def test_try_says_which_run_the_tables_show(make_run, cells) -> None:
    real = make_run("20261121-094500-j1", {"settings": {"num_epochs": 3}})
    later = {"start_time": "2026-11-21T10:45:00+00:00", "train_examples": 50, "settings": {"num_epochs": 1}}
    line, _ = cells(make_run("20261121-104500-j2", later))
    assert line == f"cells: none: newer, but a try: it trained on 50 examples; {real} is shown"


def test_many_tables_are_four_lines_and_a_chapter_without_runs_of_its_own_is_the_next_command(make_run, cells) -> None:
    facts = {"exercise": "speed-ladder", "experiment": "speed-ladder"}
    top = {"rung": "11_labelled", "model_name": "tiny"}
    run = make_run("r1", facts | {"settings": top, "model": {"name": "tiny"}})
    *tables, more, following = cells(run)
    options = f"--logs {run.parents[1]} --tiny"
    found = [line.split(" of ")[0] for line in tables]
    assert found == [f"cells: Table {number} (tiny runs)" for number in ("18", "18c", "19")]
    commands = ", ".join(f"python -m tools fill {chapter} {options}" for chapter in ("speed-ladder", "models"))
    assert re.fullmatch(rf"cells: more in \d tables: {re.escape(commands)}", more)
    assert following == f"next: python -m tools fill speed-ladder {options}"
    # No table of the ladder's own is about another model.
    large = {"settings": {"rung": "0_textbook", "max_length": 512}, "model": {"name": "qwen-3-0.6b"}}
    line, following = cells(make_run("r2", facts | large))
    assert line.startswith("cells: Table 23 of models: qwen-3-0.6b, 0 textbook, ")
    assert following == f"next: python -m tools fill models --logs {run.parents[1]}"


def test_broken_table_is_a_warning_and_the_rest_is_said(make_run, tmp_path, capsys, monkeypatch) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("**Table 1** *Summary*\n\n| Metric | Value |\n|---|---|\n| F1 (%) |\n")
    monkeypatch.setattr(summary, "exercises", lambda: [tmp_path])
    run = make_run("20261121-094500-j1")
    assert main(["summary", str(run)]) == 0
    printed = capsys.readouterr()
    why = f"{readme}:5: 1 cell, but the header of Table 1 has 2"
    assert printed.err == f"warning: the cells it fills are not known: {why}\n"
    assert printed.out.endswith(f"evidence: {run}\nnext: python -m tools fill baseline --logs {run.parents[1]}\n")
