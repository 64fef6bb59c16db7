"""What a launcher says at the end of a run: five lines, of which none is about something that was not measured."""

from pathlib import Path

import pytest

from tools.__main__ import main


def test_completed_run_is_five_lines(make_run, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run("20261121-094500-j1")
    assert main(["summary", str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "loss: 2.2500 in the last tenth of the steps, 1.7790 in the last evaluation",
        "speed: 11.80 samples/s, 1,355.9 ms per step",
        "peak memory: 21,658 MiB of GPU memory",
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
