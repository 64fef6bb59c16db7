"""The live view: trouble first, and nothing in a log that steers the terminal or stops the view."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.launching import REPO
from tests.tools.conftest import age
from tools.commands import watch
from tools.commands.watch import LiveRun, recent_runs
from tools.logs.runs import read_run

HEADER = "step,step_time_s,tokens,real_tokens,loss,epoch\n"
NOW = datetime.now(UTC)
ENDED = {"start_time": (NOW - timedelta(minutes=1)).isoformat(), "end_time": NOW.isoformat()}


def running(**more: object) -> dict[str, object]:
    return ENDED | {"state": "running", "exit_code": None, "end_time": None, "settings": {}} | more


def look(folder: Path) -> LiveRun:
    return watch.look(read_run(folder))


def test_line_that_is_still_being_written_is_no_step(make_run) -> None:
    steps = HEADER + "1,0.5,2048,700,2.5,0.2\n2,0.5,20"
    run = make_run("r", running(settings={"max_steps": 10}), **{"steps.csv": steps})
    one = look(run)
    assert (one.step, one.loss, one.left_s, one.tokens_per_s) == (1, 2.5, 4.5, 4096)
    with (run / "steps.csv").open("a") as steps:
        steps.write("48,650,2.25,0.4\n3,0.5,2048,650,2.0,0.6\n")
    one = look(run)
    assert (one.step, one.steps, one.loss, one.left_s) == (3, 10, 2.0, 3.5)
    (run / "steps.csv").write_text(HEADER + "2,0.5,2048,650,2.1,0.4\n")  # went on from a checkpoint
    one = look(run)
    assert (one.step, one.loss) == (2, 2.1)
    (run / "steps.csv").write_text(HEADER + "not a step\n2,0.5,2048,650,2.1,0.4\n")
    assert "steps.csv:2: found 'not a step'" in look(run).trouble


def test_what_is_in_trouble_comes_first(make_run, logs: Path) -> None:
    make_run("completed", ENDED)
    make_run("well", running())
    make_run("nan", running(), **{"steps.csv": HEADER + "1,0.5,2048,700,nan,0.2\n"})
    make_run("cancelled", {"state": "cancelled", **ENDED})
    make_run("oom", {"state": "oom", "cause": "GPU memory", **ENDED})
    (make_run("damaged") / "run.json").write_text("{")
    silent = age(make_run("silent", running()), 300)
    left_out: set[Path] = set()
    shown = [one.run.folder.name for one in recent_runs([logs], None, 3600, left_out)]
    assert set(shown[:2]) == {"oom", "damaged"} and set(shown[2:4]) == {"nan", "silent"}
    assert shown[4:] == ["cancelled", "well", "completed"]
    shutil.rmtree(silent)
    assert "silent" not in [one.run.folder.name for one in recent_runs([logs], None, 3600, left_out)]


def test_view_stays_until_ctrl_c(make_run, logs: Path) -> None:
    make_run("r", running())
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tools", "watch", "--logs", str(logs)]
    view = subprocess.Popen(command, cwd=REPO, stdin=theirs, stdout=theirs, stderr=theirs)
    try:
        for _ in range(2):  # it is drawn again
            shown = b""
            while b"1 running" not in shown:
                assert select.select([ours], [], [], 60)[0], shown[-500:]
                shown += os.read(ours, 65536)
        view.send_signal(signal.SIGINT)
        assert view.wait(30) == 130
    finally:
        view.kill()
        view.wait()
        os.close(ours)
        os.close(theirs)
