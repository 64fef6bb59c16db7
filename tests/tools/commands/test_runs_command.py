import re

from tools.__main__ import main
from tools.logs.runs import find_runs
from tools.tables.fill import figure_of
from tools.tables.metrics import METRICS


def test_runs_lists_every_state_with_its_reason_and_the_next_command(make_run, logs, capsys, monkeypatch):
    monkeypatch.chdir(logs.parent)  # a reason is cut off, and the folder of a test may be long
    make_run("r1")
    make_run("r2", {"config": "zero3", "state": "oom", "reason": "CUDA out of memory", "device": "cpu"})
    (make_run("r3") / "run.json").write_text("{")
    assert main(["runs", "--logs", "logs"]) == 0
    header, *rows, _, summary, hint = capsys.readouterr().out.splitlines()
    first, second, third = sorted(rows)
    assert header.split() == ["run", "config", "model", "gpus", "nodes", "state", "runtime", "reason"]
    assert first.split()[1:] == ["-", "bloom-560m", "1", "1", "completed", "0:05:00"]
    assert second.split()[1:] == ["zero3", "bloom-560m", "none", "1", "oom", "0:05:00", "CUDA", "out", "of", "memory"]
    assert "unreadable" in third and "r3/run.json" in third
    assert summary == "3 runs: 1 completed, 1 oom, 1 unreadable"
    assert hint == "next: python -m tools fill baseline --logs logs"


def test_state_selects_runs(make_run, logs, capsys):
    make_run("r1")
    make_run("r2", {"state": "timeout"})
    main(["runs", "baseline", "--logs", str(logs), "--state", "failed,timeout"])
    printed = capsys.readouterr().out
    assert "r2" in printed and "/r1" not in printed


def test_misspelt_state_is_an_error_that_lists_the_states(make_run, logs, capsys):
    make_run("r1")
    assert main(["runs", "--logs", str(logs), "--state", "faild"]) == 2
    assert "--state faild: unknown; states are running, completed" in capsys.readouterr().err


def test_no_runs_says_how_to_start_one(logs, capsys):
    assert main(["runs", "baseline", "--logs", str(logs)]) == 3
    assert "sbatch baseline/" in capsys.readouterr().err


def test_figures_are_columns_with_their_units_and_a_failed_run_has_none(make_run, logs, capsys):
    make_run("r1", **{"gpu_memory.csv": None})
    make_run("r2", {"state": "oom", "reason": "CUDA out of memory", "start_time": "2026-11-21T10:00:00+00:00"})
    make_run("r3", {"start_time": "2026-11-21T11:00:00+00:00"}, **{"cpu_memory.txt": "no log\n"})
    assert main(["runs", "--figures", "peak_gpu, peak_cpu", "--logs", str(logs)]) == 0
    rows = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()[:4]]
    assert rows[0][-3:] == ["peak_gpu (MiB)", "peak_cpu (MiB)", "reason"]
    assert rows[1][-2:] == ["no GPU log", "8,000"]
    assert rows[2][-3:] == ["OOM", "OOM", "CUDA out of memory"]
    assert rows[3][-2:] == ["21,658", "unreadable log"]


def test_figure_that_compares_runs_is_none_of_a_single_run(make_run, logs, capsys):
    make_run("r1")
    assert main(["runs", "--figures", "memory_savings", "--logs", str(logs)]) == 0
    assert "compares runs" in capsys.readouterr().out


def test_misspelt_figure_is_an_error_that_lists_the_figures(make_run, logs, capsys):
    make_run("r1")
    assert main(["runs", "--figures", "peak_cpu,peak_tpu", "--logs", str(logs)]) == 2
    error = capsys.readouterr().err
    assert "--figures peak_tpu: unknown; known are train_loss" in error


def test_every_figure_can_be_asked_for_and_those_that_compare_runs_say_so(make_run, logs):
    make_run("r1", summary={"train/samples_per_second": 2.0, "train/real_tokens_per_second": 100.0})
    (run,) = find_runs(logs)
    written = {name: figure_of(run, metric) for name, metric in METRICS.items()}
    comparing = {name for name, text in written.items() if text == "compares runs"}
    assert {"gain_over_textbook", "gain_over_rung_below", "share_of_one_gpu", "memory_savings"} <= comparing
    assert written["real_tokens_per_second"] == "100"
