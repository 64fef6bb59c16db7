"""What a launcher says at the end of a run: a few lines, of which none is about something that was not measured."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import REPO
from tools.__main__ import main
from tools.tables import run_cells

TINY = {"settings": {"model_name": "tiny"}}


@pytest.fixture
def cells(capsys: pytest.CaptureFixture[str]):
    def cells(run: Path) -> list[str]:
        """What the summary says about cells, and which command is next."""
        capsys.readouterr()
        assert main(["summary", str(run)]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return [line for line in printed.out.splitlines() if line.startswith(("cells: ", "next: "))]

    return cells


def test_completed_run_is_a_few_lines(make_run, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run("20261121-094500-j1")
    assert main(["summary", str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "loss: 2.2500 in the last tenth of the steps, 1.7790 in the last evaluation",
        "speed: 11.80 samples/s, 1,355.9 ms per step",
        "peak memory: 21,658 MiB of GPU memory",
        'cells: Table 1, column "Value": Train Loss (mean) 0.7039; Eval Loss (Epoch 1) 1.2965; and 9 more',
        'cells: Table 2, column "Value": Peak GPU Memory Usage (MiB) 21,658; Mean GPU Memory Usage (MiB) 10,415; '
        "and 1 more",
        'cells: Table 2b, row "Peak CPU Memory, RSS (MiB)": Value 8,000',
        f"evidence: {run}",
        f"next: python -m tools fill baseline --logs {run.parents[1]}",
    ]


def test_damaged_or_missing_figures_cost_their_part_of_the_line(make_run, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"gpu_memory.csv": "no such columns\n", "cpu_memory.txt": None, "train.out": None}
    main(["summary", str(make_run("20261121-094500-j1", summary={}, **files))])
    loss, speed, memory, *_ = capsys.readouterr().out.splitlines()
    assert (loss, speed, memory) == (
        "loss: 2.2500 in the last tenth of the steps",
        "speed: not measured",
        "peak memory: not measured",
    )


def test_failed_run_says_where_to_read_on(make_run, capsys: pytest.CaptureFixture[str]) -> None:
    failed = {"state": "failed", "exit_code": 1}
    nothing = {"steps.csv": None, "gpu_memory.csv": None, "cpu_memory.txt": None}
    run = make_run("20261121-094500-j1", failed, summary=None, **nothing, **{"train.out": "error: no\n"})
    assert main(["summary", str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"evidence: {run}", f"next: less {run}/train.out"]


def test_folder_without_a_record_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(tmp_path)]) == 2
    assert f"error: {tmp_path}/run.json" in capsys.readouterr().err


def test_failed_run_without_output_has_no_empty_hint(make_run, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = dict.fromkeys(("train.out", "steps.csv", "gpu_memory.csv", "cpu_memory.txt"))
    run = make_run("20261121-094500-j1", {"state": "failed"}, summary=None, **nothing)
    assert main(["summary", str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"evidence: {run}"]


def test_tiny_run_fills_the_tiny_tables(make_run, cells) -> None:
    record = TINY | {"device": "cpu", "model": {"name": "tiny"}}
    run = make_run("20261121-094500-j1", record, summary={}, **{"gpu_memory.csv": None, "cpu_memory.txt": None})
    assert cells(run) == [
        'cells: Table 1 (tiny runs), column "Value": Train Loss (mean) 0.7039; Eval Loss (Epoch 1) 1.2965; and 4 more',
        f"next: python -m tools fill baseline --logs {run.parents[1]} --tiny",
    ]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"settings": {"profile": "5"}}, "profiled"),
        (
            {"exercise": "speed-ladder", "settings": {"rung": "7_compile"}, "nodes": 2, "world_size": 2},
            "processes 2, not 1",
        ),
        ({"exercise": "my-exercise"}, "no table is about runs of my-exercise"),
    ],
)
def test_run_that_no_cell_asks_for_says_why(make_run, cells, record, why) -> None:
    line, _ = cells(make_run("20261121-094500-j1", record))
    assert line == f"cells: none: {why}"


def test_run_without_a_figure_says_the_cells_words(make_run, cells) -> None:
    nothing = dict.fromkeys(("train.out", "steps.csv", "gpu_memory.csv", "cpu_memory.txt"))
    record = {"device": "cpu", "steps_per_epoch": ...}
    line, _ = cells(make_run("20261121-094500-j1", record, summary=None, **nothing))
    assert line.startswith("cells: none: no train_loss, no eval, ")


def test_try_says_which_run_the_tables_show(make_run, cells) -> None:
    real = make_run("20261121-094500-j1", {"settings": {"num_epochs": 3}})
    later = {"start_time": "2026-11-21T10:45:00+00:00", "train_examples": 50, "settings": {"num_epochs": 1}}
    line, _ = cells(make_run("20261121-104500-j2", later))
    assert line == f"cells: none: newer, but a try: it trained on 50 examples; {real} is shown"


def test_older_run_that_ends_later_does_not_claim_the_newer_one_s_cells(make_run, cells) -> None:
    older = make_run("20261121-094500-j1")
    make_run("20261121-104500-j2", {"start_time": "2026-11-21T10:45:00+00:00"})
    assert cells(older)[0] == "cells: none: another run is shown"


def test_repeats_share_their_cells(make_run, cells) -> None:
    facts = {"exercise": "benchmark", "experiment": "benchmark", "config": "zero1", "model": {"name": "gpt2"}}
    for repeat in (1, 2):
        settings = {"fp16": True, "batch_size": 32, "max_length": 128, "repeat": repeat}
        run = make_run(f"r{repeat}", facts | {"settings": settings, "precision": "fp16"})
    line, _ = cells(run)
    assert line.startswith('cells: Table 17, row "zs1_fp16_gpus1_bs32_sl128", from 2 runs: ')


def test_many_tables_are_four_lines_and_a_chapter_without_runs_of_its_own_is_the_next_command(make_run, cells) -> None:
    facts = {"exercise": "speed-ladder", "experiment": "speed-ladder"}
    top = {"rung": "11_labelled", "model_name": "tiny"}
    run = make_run("r1", facts | {"settings": top, "model": {"name": "tiny"}})
    *tables, more, following = cells(run)
    options = f"--logs {run.parents[1]} --tiny"
    assert [line.split(",")[0] for line in tables] == [f"cells: Table {n} (tiny runs)" for n in ("18", "18c", "19")]
    commands = ", ".join(f"python -m tools fill {chapter} {options}" for chapter in ("speed-ladder", "models"))
    assert re.fullmatch(rf"cells: and \d+ more in \d tables: {re.escape(commands)}", more)
    assert following == f"next: python -m tools fill speed-ladder {options}"
    # No table of the ladder's own is about another model.
    large = {"settings": {"rung": "0_textbook", "max_length": 512}, "model": {"name": "qwen-3-0.6b"}}
    line, following = cells(make_run("r2", facts | large))
    assert line.startswith('cells: Table 23 of models, row "qwen-3-0.6b, 0 textbook": ')
    assert following == f"next: python -m tools fill models --logs {run.parents[1]}"


def test_broken_table_is_a_warning_and_the_rest_is_said(make_run, tmp_path, capsys, monkeypatch) -> None:
    readme = tmp_path / "baseline" / "README.md"
    readme.parent.mkdir()
    readme.write_text("**Table 1** *Summary*\n\n| Metric | Value |\n|---|---|\n| F1 (%) |\n")
    monkeypatch.setattr(run_cells, "exercises", lambda: [readme.parent])
    run = make_run("20261121-094500-j1")
    assert main(["summary", str(run)]) == 0
    printed = capsys.readouterr()
    assert printed.err == (
        f"warning: the cells it fills are not known: {readme}:5: 1 cell, but the header of Table 1 has 2\n"
    )
    *_, memory, evidence, following = printed.out.splitlines()
    assert (memory, evidence) == ("peak memory: 21,658 MiB of GPU memory", f"evidence: {run}")
    assert following == f"next: python -m tools fill baseline --logs {run.parents[1]}"


def test_error_of_the_tools_is_one_line_too(make_run, capsys, monkeypatch) -> None:
    monkeypatch.setattr(run_cells, "fill", lambda *_: {}["no such\nkey"])
    run = make_run("20261121-094500-j1")
    assert main(["summary", str(run)]) == 0
    printed = capsys.readouterr()
    (warning,) = printed.err.splitlines()
    assert warning.startswith("warning: the cells it fills are not known: KeyError(")
    assert f"evidence: {run}" in printed.out


def test_damaged_evidence_costs_its_cells_only(make_run, cells) -> None:
    make_run("20261121-084500-j0", **{"run.json": "{"})
    line, *_ = cells(make_run("20261121-094500-j1", summary=None, **{"summary.json": "{"}))
    assert line == 'cells: Table 1, row "Steps per Epoch": Value 32'


def test_end_of_a_run_does_not_wait_for_large_packages(make_run) -> None:
    """In a launcher it is a job's time."""
    show = "import sys; from tools.__main__ import main; main(['summary', sys.argv[1]]); print(*sys.modules)"
    command = [sys.executable, "-c", show, str(make_run("20261121-094500-j1"))]
    printed = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert "cells: Table 1" in printed
    assert {"pandas", "torch", "matplotlib"} & set(printed.splitlines()[-1].split()) == set()
