import re

import pytest

from tests.launching import REPO
from tests.tools.conftest import write_run
from tools.__main__ import main
from tools.logs.figures import FIGURES
from tools.logs.run import Run
from tools.logs.runs import read_run
from tools.tables.fill import figure_of


def test_folders_of_a_whole_course_follow_one_option(make_run, logs, tmp_path, capsys):
    make_run("r1")
    write_run(tmp_path / "other", "r2")
    assert main(["runs", "--logs", str(logs), str(tmp_path / "other")]) == 0
    assert "2 runs: 2 completed" in capsys.readouterr().out


def test_runs_lists_every_state_with_its_reason_and_the_next_command(make_run, logs, capsys, monkeypatch):
    monkeypatch.chdir(logs.parent)  # a reason is cut off, and the folder of a test may be long
    make_run("r1")
    make_run(
        "r2", {"config": "zero3", "state": "oom", "reason": "CUDA out of memory", "device": "cpu", "world_size": 2}
    )
    (make_run("r3") / "run.json").write_text("{")
    assert main(["runs", "--logs", "logs"]) == 0
    header, *rows, _, summary, hint = capsys.readouterr().out.splitlines()
    first, second, third = sorted(rows)
    names = "run config model precision batch processes nodes length state runtime reason"
    assert header.split() == names.split()
    assert first.split()[1:] == ["-", "bloom-560m", "-", "-", "1", "1", "-", "completed", "0:05:00"]
    assert " ".join(second.split()[1:]) == "zero3 bloom-560m - - 2 x CPU 1 - oom 0:05:00 CUDA out of memory"
    assert "unreadable" in third and "r3/run.json" in third
    assert summary == "3 runs: 1 completed, 1 oom, 1 unreadable"
    assert hint == "next: less logs/baseline/r2/train.out"
    assert main(["runs", "baseline", "--logs", "logs", "--state", "failed,oom"]) == 0
    printed = capsys.readouterr().out
    assert "/r2 " in printed and "/r1 " not in printed


def listed(capsys, *options: str) -> list[dict[str, str]]:
    """The table that `runs` prints; the cells of a column are where its name is."""
    assert main(["runs", *options]) == 0
    header, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    places = [(match[0], match.start()) for match in re.finditer(r"\S+", header)]
    ends = [start for _, start in places[1:]] + [None]
    return [{name: row[start:end].strip() for (name, start), end in zip(places, ends, strict=True)} for row in rows]


def test_runs_of_one_configuration_and_of_several_owners_are_told_apart(make_run, logs, capsys, monkeypatch):
    settings = {"bf16": True, "batch_size": 4, "grad_acc": 8, "num_epochs": 3, "max_steps": 0}
    facts = {"world_size": 2, "gpu_names": ["NVIDIA H200"] * 2, "precision": "bf16", "train_examples": 500}
    make_run("r1", facts | {"settings": settings})
    make_run("r2", facts | {"settings": settings | {"repeat": 2, "rung": "9_rows"}})
    make_run("r3", facts | {"settings": settings | {"max_steps": 2, "fp16": True}, "device": "cpu", "gpu_names": []})
    first, second, third = listed(capsys, "--logs", str(logs))
    same = {"precision": "bf16", "batch": "4 x 8", "nodes": "1"}
    assert first.items() >= (same | {"processes": "2 x H200", "length": "3 x 500", "rung": "-", "repeat": "1"}).items()
    assert second.items() >= (same | {"rung": "9_rows", "repeat": "2"}).items()
    assert third.items() >= (same | {"processes": "2 x CPU", "length": "2 steps"}).items()
    assert "owner" not in first
    owners = {"r1": "ada", "r2": "grace", "r3": "ada"}
    monkeypatch.setattr(Run, "owner", property(lambda run: owners[run.folder.name]))
    assert [row["owner"] for row in listed(capsys, "--logs", str(logs))] == ["ada", "grace", "ada"]


@pytest.mark.parametrize(
    ("record", "hint"),
    [
        ({}, "next: python -m tools fill baseline --logs logs"),
        ({"settings": {"model_name": "tiny"}}, "next: python -m tools fill baseline --logs logs --tiny"),
        ({"state": "failed"}, "next: less logs/baseline/r2/train.out"),
        ({"state": "preempted"}, "next: python -m tools submit --resume logs/baseline/r2"),
    ],
)
def test_next_command_is_about_the_newest_run(make_run, logs, capsys, monkeypatch, record, hint):
    monkeypatch.chdir(logs.parent)
    make_run("r1")
    checkpoint = make_run("r2", {"start_time": "2026-11-22T09:45:00+00:00"} | record) / "model/checkpoint-5"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").touch()
    (checkpoint.parents[1] / ".resume.json").touch()
    main(["runs", "--logs", "logs"])
    assert capsys.readouterr().out.splitlines()[-1] == hint


def test_name_in_a_log_is_no_formula_in_csv(make_run, logs, capsys):
    make_run("r1", {"model": {"name": "=HYPERLINK(1)"}})
    assert main(["runs", "--logs", str(logs), "--format", "csv"]) == 0
    assert ",'=HYPERLINK(1)," in capsys.readouterr().out


def test_figures_are_columns_with_their_units_and_a_failed_run_has_its_cause(make_run, logs, capsys):
    full = "OSError: [Errno 28] No space left on device"
    make_run("r1", **{"gpu_memory.csv": None})
    make_run("r2", {"state": "oom", "reason": "CUDA out of memory"})
    make_run("r3", **{"cpu_memory.txt": "no log\n"})
    make_run("r4", {"state": "failed", "reason": full, "cause": "disk full"})
    make_run("r5", {"state": "failed"}, **{"train.out": f"{full}\n"})  # nobody recorded why
    assert main(["runs", "--figures", "peak_gpu_mib, peak_cpu_mib", "--logs", str(logs)]) == 0
    header, *rows = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()[:6]]
    assert header[-3:] == ["peak_gpu_mib (MiB)", "peak_cpu_mib (MiB)", "reason"]
    one, two, three, four, five = sorted(rows)
    assert one[-2:] == ["no GPU log", "8,000"] and three[-2:] == ["21,658", "unreadable log"]
    assert two[-3:] == ["OOM", "OOM", "CUDA out of memory"]
    assert four[-2:] == ["FAILED (disk full)", f"disk full: {full}"]
    assert five[-2:] == ["FAILED", f"disk full: train.out:1: {full}"]


def test_every_figure_can_be_asked_for_and_those_that_compare_runs_say_so(make_run):
    run = read_run(make_run("r1", summary={"train/samples_per_second": 2.0, "train/real_tokens_per_second": 100.0}))
    written = {name: figure_of(run, one) for name, one in FIGURES.items()}
    comparing = {name for name, text in written.items() if text == "compares runs"}
    assert {"gain_over_textbook", "gain_over_rung_below", "share_of_one_gpu", "memory_savings_percent"} <= comparing
    assert written["real_tokens_per_second"] == "100"


def test_durations_are_of_the_completed_run_nearest_to_each_line_and_say_whether_it_was_as_long(make_run, logs, capsys):
    full, short = ({"num_epochs": 3, "train_size": size, "batch_size": 4, "grad_acc": 4} for size in (500, 50))
    two = {"exercise": "by-hand", "experiment": "by-hand", "gpu_names": ["NVIDIA H200"] * 4, "gpus_per_node": 4}
    for name, end, record in (
        ("r1", "09:46:00", {"settings": short}),
        ("r2", "09:47:00", {"settings": full}),
        ("r3", "09:48:00", {"settings": full | {"batch_size": 16}}),
        ("r4", "09:49:00", {"settings": full, "device": "cpu"}),
        ("r5", "09:50:00", {"settings": full, "state": "oom"}),
        ("r6", "09:51:00", {"settings": full, "replay": {"of": "elsewhere", "speed": 1.0}}),
        (
            "r7",
            "09:52:00",
            two | {"command": ["torchrun", "fsdp.py"], "config": "full_shard", "settings": short | {"grad_acc": 1}},
        ),
    ):
        make_run(name, {"gpu_names": ["NVIDIA H200"], "end_time": f"2026-11-21T{end}+00:00"} | record)
    assert main(["runs", "--logs", str(logs), "--durations"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert rows == [
        "| baseline: must do | 1 | 1 | 1 | 2.0 | H200 |",
        "| by-hand: must do | 9 | 1 | 1 | 7.0 | H200 |",
        "| by-hand: all | 24 | 1 | 1 | 7.0 | H200 |",
    ]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--state", "faild"], 2, "--state faild: unknown; states are running, completed"),
        (["--figures", "peak_cpu_mib,peak_tpu"], 2, "--figures peak_tpu: unknown; known are train_loss"),
        (["--durations", "--format", "csv"], 2, "expected no --state, --figures or --format"),
        (["fsdp"], 3, "sbatch fsdp/"),
        (["--logs", str(REPO / "fsdp")], 2, "write an exercise before --logs"),
    ],
)
def test_what_cannot_be_listed_is_named(make_run, logs, tmp_path, monkeypatch, capsys, options, code, said):
    monkeypatch.chdir(tmp_path)
    make_run("r1")
    assert main(["runs", *options, "--logs", str(logs)]) == code
    assert said in capsys.readouterr().err
