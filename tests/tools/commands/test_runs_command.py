"""What the commands about single runs print: runs, summary, plot."""

import re

from matplotlib.figure import Figure

from tests.tools.conftest import age
from tools.__main__ import main


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
    names = "run config model precision batch processes nodes length state step runtime reason"
    assert header.split() == names.split()
    assert first.split()[1:] == ["-", "bloom-560m", "-", "-", "1", "1", "-", "completed", "-", "0:05:00"]
    assert " ".join(second.split()[1:]) == "zero3 bloom-560m - - 2 x CPU 1 - oom 2/? 0:05:00 CUDA out of memory"
    assert "unreadable" in third and "r3/run.json" in third
    assert summary == "3 runs: 1 completed, 1 oom, 1 unreadable"
    assert hint == "next: less logs/baseline/r2/train.out"
    assert main(["runs", "baseline", "--logs", "logs", "--state", "failed,oom"]) == 0
    printed = capsys.readouterr().out
    assert "/r2 " in printed and "/r1 " not in printed


def test_running_run_has_its_last_whole_step_and_what_is_wrong_with_it(make_run, logs, capsys, monkeypatch):
    """A hanging run, and a run that learns nothing, looked like all others."""
    monkeypatch.chdir(logs.parent)  # a reason is cut off, and the folder of a test may be long
    steps = "step,step_time_s,tokens,real_tokens,loss,epoch\n1,0.5,2048,700,2.5,0.2\n"
    running = {"state": "running", "end_time": None, "settings": {"num_epochs": 2}}
    make_run("well", running, **{"steps.csv": f"{steps}2,0.5,20"})
    make_run("nan", running, **{"steps.csv": f"{steps}2,0.5,2048,700,nan,0.2\n"})
    make_run("damaged", running, **{"steps.csv": f"{steps}no step\n2,0.5,2048,700,2.5,0.2\n"})
    age(make_run("silent", running), 300)
    (age(make_run("hanging", running), 700) / "gpu_memory.csv").touch()
    age(make_run("lost", running), 700)
    assert main(["runs", "--logs", "logs"]) == 0
    *table, _, summary, _ = capsys.readouterr().out.splitlines()
    header, *rows = (re.split(r"\s{2,}", line) for line in table)
    shown = {row[0].rpartition("/")[2]: (row[header.index("step")], " ".join(row[len(header) - 1 :])) for row in rows}
    assert shown["well"] == ("1/64", "") and shown["nan"] == ("2/64", "loss is nan")
    assert re.fullmatch("wrote nothing for 30. s", shown["silent"][1])
    assert re.fullmatch("wrote nothing for 70. s", shown["hanging"][1]), "its loggers still write"
    assert shown["damaged"][0] == "?" and "steps.csv:3: found 'no step'" in shown["damaged"][1]
    assert "5 running, 1 lost" in summary


def test_run_that_ended_before_its_settings_were_written_adds_no_column(make_run, logs, capsys):
    """After Ctrl-C in the first seconds three columns told everybody the same."""
    settings = {"learning_rate": 5e-5, "seed": 42, "gradient_checkpointing": False}
    make_run("r1", {"settings": settings})
    make_run("r2", {"state": "cancelled"})
    assert main(["runs", "--logs", str(logs)]) == 0
    assert not settings.keys() & set(capsys.readouterr().out.splitlines()[0].split())
    make_run("r3", {"settings": settings | {"seed": 43}})
    assert main(["runs", "--logs", str(logs)]) == 0
    assert settings.keys() & set(capsys.readouterr().out.splitlines()[0].split()) == {"seed"}


def test_run_whose_clock_was_set_back_has_no_time(make_run, logs, capsys):
    make_run("r1", {"end_time": "2026-11-21T09:44:00+00:00"})
    assert main(["runs", "--logs", str(logs), "--figures", "total_runtime_s"]) == 0
    header, row = (re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()[:2])
    assert row[header.index("runtime")] == "-" and row[-1] == "no valid end_time"


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


def test_exercise_after_logs_is_said_to_belong_before_it(capsys):
    """`lora`, in further/, was "no such folder"."""
    assert main(["runs", "--logs", "logs/reference/h200x1", "lora"]) == 2
    assert "--logs lora: an exercise's folder, not one of runs" in capsys.readouterr().err


def test_completed_run_is_a_few_lines_and_a_failed_one_says_where_to_read_on(make_run, capsys) -> None:
    run = make_run("20261121-094500-j1")
    assert main(["runs", str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "loss: 2.2500 in the last tenth of the steps, 1.7790 in the last evaluation",
        "speed: 11.80 samples/s, 1,355.9 ms per step",
        "peak memory: 21,658 MiB of GPU memory, 8,000 MiB of CPU memory (RSS)",
        f"evidence: {run}",
        f"next: python -m tools fill baseline --logs {run.parents[1]}",
    ]
    nothing = {"steps.csv": None, "gpu_memory.csv": None, "cpu_memory.txt": None, "train.out": "error: no\n"}
    run = make_run("20261121-094500-j2", {"state": "failed", "exit_code": 1}, summary=None, **nothing)
    assert main(["runs", str(run)]) == 0
    assert capsys.readouterr() == (f"evidence: {run}\nnext: less {run}/train.out\n", "")


def test_run_that_went_on_says_after_which_fault_and_from_which_step(make_run, logs, tmp_path, monkeypatch):
    undisturbed = {"config": "ddp", "settings": {"fault": "none"}}
    attempt = {"state": "failed", "last_step": 2, "resumed_step": 1}
    make_run("20261121-094500-p1", undisturbed)
    make_run("20261121-094500-p2", undisturbed | {"settings": {"fault": "rank_killed"}, "attempts": [attempt]})
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    assert main(["plot", "baseline", "--logs", str(logs), "--output", str(tmp_path / "curves.png")]) == 0
    (figure,) = drawn
    (legend,) = figure.legends
    labels = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
    runs = ["ddp, bloom-560m, fp32 (20261121-094500-p1)", "ddp, rank killed, bloom-560m, fp32 (20261121-094500-p2)"]
    assert labels == [runs[0], f"{runs[1]}: failed after step 2, resumed from step 1"]
    assert [list(line.get_xdata()) for line in figure.axes[0].lines if line.get_linestyle() == ":"] == [[1, 1]]
