import re

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
