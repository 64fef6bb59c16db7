"""The live view: trouble first, and nothing in a log that steers the terminal or stops the view."""

import io
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from tests.launching import REPO, program
from tools.__main__ import main
from tools.commands.watch import Folders
from tools.logs import live_run
from tools.logs.live_run import LiveRun
from tools.logs.run import Run
from tools.logs.runs import read_run
from tools.submit import slurm
from tools.watch import screen

HEADER = "step,step_time_s,tokens,real_tokens,loss,epoch\n"
NOW = datetime.now(UTC)
ENDED = {"start_time": (NOW - timedelta(minutes=1)).isoformat(), "end_time": NOW.isoformat()}


def running(**more: object) -> dict[str, object]:
    return ENDED | {"state": "running", "exit_code": None, "end_time": None, "settings": {}} | more


def age(folder: Path, by_s: float) -> Path:
    for file in folder.iterdir():
        os.utime(file, (time.time() - by_s,) * 2)
    return folder


def look(folder: Path) -> LiveRun:
    return live_run.look(read_run(folder))


def test_line_that_is_still_being_written_is_no_step(make_run) -> None:
    steps = HEADER + "1,0.5,2048,700,2.5,0.2\n2,0.5,20"
    run = make_run("r", running(settings={"max_steps": 10}), **{"steps.csv": steps})
    one = look(run)
    assert (one.step, one.losses, one.left_s, one.tokens_per_s) == (1, [2.5], 4.5, 4096)
    with (run / "steps.csv").open("a") as steps:
        steps.write("48,650,2.25,0.4\nnot a step\n3,0.5,2048,650,2.0,0.6\n")
    one = look(run)
    assert (one.step, one.steps, one.losses, one.left_s) == (3, 10, [2.5, 2.25, 2.0], 3.5)
    (run / "steps.csv").write_text(HEADER + "2,0.5,2048,650,2.1,0.4\n")  # went on from a checkpoint
    one = look(run)
    assert (one.step, one.losses[-1], one.gpu_mib) == (2, 2.1, 21_658)


def test_numbers_that_no_training_writes_cost_their_line(make_run) -> None:
    one = look(make_run("long", running(), **{"steps.csv": HEADER + "1,0.5,2048,700,1.5,0.2\n" * 10_000}))
    assert (set(one.losses), one.tokens_per_s) == ({1.5}, 4096)  # its end is read, from the middle of a line on
    steps = HEADER + "1,0.5,2048,700,2.5,0.2\n2,nan,2048,700,2.5,0.2\n3,inf,2048,700,2.5,0.2\n1e999,1,1,1,1,1\n"
    one = look(make_run("r", running(steps_per_epoch=10**400, settings={"num_epochs": 3.0}), **{"steps.csv": steps}))
    assert (one.step, one.steps, one.left_s, one.tokens_per_s, len(one.losses)) == (1, None, None, 4096, 1)


def test_what_is_in_trouble_comes_first(make_run, logs: Path) -> None:
    make_run("completed", ENDED)
    make_run("well", running())
    make_run("nan", running(), **{"steps.csv": HEADER + "1,0.5,2048,700,nan,0.2\n"})
    make_run("cancelled", {"state": "cancelled", **ENDED})
    make_run("oom", {"state": "oom", "cause": "GPU memory", **ENDED})
    (make_run("damaged") / "run.json").write_text("{")
    silent = age(make_run("silent", running()), by_s=300)
    folders = Folders([logs], None, recent_s=3600)
    folders.find()
    shown = [one.run.folder.name for one in folders.look()]
    assert set(shown[:2]) == {"oom", "damaged"} and set(shown[2:4]) == {"nan", "silent"}
    assert shown[4:] == ["cancelled", "well", "completed"]
    shutil.rmtree(silent)
    assert "silent" not in [one.run.folder.name for one in folders.look()]


def test_runs_that_ended_long_ago_are_not_shown(make_run, logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Their end counts, not their files' times: git and scp write old runs anew.
    make_run("old", {"end_time": (NOW - timedelta(hours=2)).isoformat()})
    age(make_run("lost", running()), by_s=7200)
    assert main(["watch", "--once", "--recent", "1", "--logs", str(logs)]) == 0
    assert "no run is running or recent" in capsys.readouterr().out
    main(["watch", "--once", "--recent", "3", "--logs", str(logs)])
    assert "1 lost, 1 completed" in capsys.readouterr().out


def test_hostile_run_neither_steers_the_terminal_nor_stops_the_view(
    make_run, logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "\x1b[2J[bold]all is well[/nosuch]\x07"
    failed = make_run("evil", {"state": "failed", "cause": evil, **ENDED}, **{"train.out": f"{evil}\r\nlast\n"})
    pipe = make_run("pipe", running(), **{"steps.csv": None})
    os.mkfifo(pipe / "steps.csv")
    monkeypatch.setenv("COLUMNS", "250")
    assert main(["watch", "--once", "--logs", str(logs)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and r"\x1b[2J[bold]all is well[/nosuch]\x07" in shown and "1 running" in shown
    assert live_run.last_lines(failed / "train.out", 5)[-1] == "last"
    assert "\x1b" not in "".join(live_run.last_lines(failed / "train.out", 5))


@pytest.mark.parametrize("width", [60, 80, 110, 250])
def test_narrow_terminal_has_fewer_columns_and_no_number_without_its_end(
    width: int, make_run, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "owner", "ada")  # a long name would take another column's place
    steps = HEADER + "".join(f"{step},0.5,20480,700,2.5,0.2\n" for step in range(1, 30))
    settings = {"max_steps": 123456, "model_name": "a-model-of-a-long-name"}
    make_run("r", running(settings=settings, config="full_shard_checkpointing"), **{"steps.csv": steps})
    make_run("oom", {"state": "oom", "cause": "the GPU's memory is full, which is a long story", **ENDED})
    folders = Folders([logs], None, recent_s=3600)
    folders.find()
    console = Console(width=width, file=io.StringIO())
    waiting = [f"{job} ada fsdp: Priority, start N/A" for job in range(40)]
    console.print(screen.view(folders.look(), waiting, width, 24))
    shown = console.file.getvalue()
    assert len(shown.splitlines()) <= 24 and "…" not in shown and max(map(len, shown.splitlines())) <= width
    assert "29/123456" in shown and "the GPU's mem" in shown and "and 36 more" in shown
    assert ("2.500" in shown) == (width >= 80) and ("21,658" in shown) == (width == 250)
    assert all(line.lstrip()[0] in "12" for line in shown.splitlines()[2:4])


def test_sparkline_shows_the_course_of_the_loss() -> None:
    assert [screen.sparkline(values) for values in ([], [1.0], [7.0, 2.0, 0.0])] == ["", "▁", "█▃▁"]
    assert screen.sparkline([1.0, float("nan"), 2.0]) == "▁█"
    assert screen.sparkline(range(32)) == "▁▁▂▂▃▃▄▄▅▅▆▆▇▇██"


def test_queue_says_what_waits_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.waiting() == []
    said = "'|7 ada fsdp-multi-gpu: Resources, start N/A'"
    program(tmp_path / "squeue", f"echo {said}\necho 'slurm is talkative'")
    assert slurm.waiting() == ["7 ada fsdp-multi-gpu: Resources, start N/A"]


def test_key_opens_a_log_and_q_ends_the_view(make_run, logs: Path) -> None:
    make_run("r", running(), **{"train.out": "the last line of the log\n"})
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tools", "watch", "--logs", str(logs), "--every", "0.1"]
    view = subprocess.Popen(command, cwd=REPO, stdin=theirs, stdout=theirs, stderr=theirs)
    try:
        for wanted, key in ((b"1 running", b"1"), (b"the last line of the log", b"x"), (b"1 running", b"q")):
            shown = b""
            while wanted not in shown:
                assert select.select([ours], [], [], 60)[0], shown[-500:]
                shown += os.read(ours, 65536)
            os.write(ours, key)
        assert view.wait(30) == 0
    finally:
        view.kill()
        view.wait()
        os.close(ours)
        os.close(theirs)
