from tools.__main__ import main


def test_runs_lists_every_state_with_its_reason_and_the_next_command(make_run, logs, capsys):
    make_run("r1")
    make_run("r2", {"config": "zero3", "state": "oom", "reason": "CUDA out of memory", "device": "cpu"})
    (make_run("r3") / "run.json").write_text("{")
    assert main(["runs", "--logs", str(logs)]) == 0
    header, *rows, _, summary, hint = capsys.readouterr().out.splitlines()
    first, second, third = sorted(rows)
    assert header.split() == ["run", "config", "model", "gpus", "nodes", "state", "runtime", "reason"]
    assert first.split()[1:] == ["-", "bloom-560m", "1", "1", "completed", "0:05:00"]
    assert second.split()[1:] == ["zero3", "bloom-560m", "none", "1", "oom", "0:05:00", "CUDA", "out", "of", "memory"]
    assert "unreadable" in third and "r3/run.json" in third
    assert summary == "3 runs: 1 completed, 1 oom, 1 unreadable"
    assert hint == f"next: python -m tools fill baseline --logs {logs}"


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
