"""Other people's logs folders: no file outside them is read, nothing waits, and no terminal is steered by them."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.__main__ import main
from tools.logs.runs import find_runs

SECRET = "ssh-ed25519 AAAAC3Nz of the instructor"
NASTY = "\x1b[2J\x1b]0;owned\x07\r\x9b31m\u202eevil\u2066\n| PASS | \ufeff$\\frac{"
HARMFUL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
FILES = ("train.out", "steps.csv", "gpu_memory.csv", "cpu_memory.txt", "nccl.log", "collectives.csv", "summary.json")


@pytest.fixture
def printed(logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch) -> Callable[[], str]:
    """What all commands that read logs print about the folder."""
    monkeypatch.setenv("LOG_DIR", str(tmp_path))
    monkeypatch.setattr("tools.commands.page.REFERENCE", tmp_path / "none")  # hundreds of runs take a while

    def run() -> str:
        for words in (
            ("runs",),
            ("runs", "--figures", "peak_gpu_mib,peak_cpu_mib,train_loss,optimizer_steps,all_reduces,optimizer_ms"),
            ("runs", "--format", "csv"),
            ("fill", "baseline"),
            ("plot", "baseline", "--output", str(tmp_path / "plot.png")),
            ("page",),
        ):
            assert main([*words, "--logs", str(logs)]) in (0, 2, 3), words
        output = capsys.readouterr()
        assert len([*(tmp_path / "page/runs").iterdir()]) == len(find_runs(logs)), "also of a damaged run"
        return output.out + output.err

    return run


def test_links_are_not_followed_and_pipes_not_waited_for(make_run, logs: Path, tmp_path: Path, printed) -> None:
    outside = tmp_path / "home"
    outside.mkdir()
    (outside / "key").write_text(SECRET + "\nValueError: " + SECRET + "\n")
    (outside / "steps.csv").write_text(f"{SECRET}\n" * 3)
    (outside / "run.json").write_text(json.dumps({"exercise": SECRET, "state": "completed", "start_time": "2026"}))
    whole = make_run("r1", start_time="2026-11-21T08:00:00+00:00")
    for number, target in enumerate((outside / "key", "/dev/zero", "/dev/stdin", "pipe"), 2):
        folder = make_run(f"r{number}", {"state": "failed", "settings": {"timers": True}})
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
            os.mkfifo(folder / name) if target == "pipe" else (folder / name).symlink_to(target)
    (logs / "linked").symlink_to(outside)
    (make_run("r9") / "run.json").unlink()
    (logs / "baseline" / "r9" / "run.json").symlink_to(outside / "run.json")
    (logs / "latest").symlink_to(whole)  # within the logs: it is in the list already
    text = printed()
    assert SECRET not in "".join([text, *(page.read_text() for page in (tmp_path / "page").rglob("*.html"))])
    states = {run.folder.name: run.state for run in find_runs(logs)}
    assert states == {"r1": "completed", "r9": "unreadable", "linked": "unreadable"} | dict.fromkeys(
        ("r2", "r3", "r4", "r5"), "failed"
    )
    assert "found 'a symbolic link', expected a folder; name one that lies elsewhere with --logs" in text
    assert (outside / "key").read_text().startswith(SECRET)


def test_control_characters_reach_no_terminal(make_run, logs: Path, capsys: pytest.CaptureFixture, printed) -> None:
    record = {"state": "failed", "reason": NASTY, "cause": NASTY, "precision": NASTY, "experiment": NASTY}
    make_run("r1", {"model": {"name": NASTY}, "precision": NASTY, "gpu_names": [NASTY], "host": NASTY})
    make_run("r2", record | {"experiment": "baseline"})
    make_run("r3", {"state": "failed"}, **{"train.out": f"RuntimeError: {NASTY}", "gpu_memory.csv": NASTY})
    make_run("r4" + NASTY.replace("/", ""))
    make_run("r5", {"config": NASTY})
    make_run("r6", **{f"gpu_memory-{NASTY.replace('/', '')}.csv": "no log\nat all\n", "steps.csv": NASTY * 3})
    steps = "step,step_time_s,tokens,real_tokens,loss,epoch\n{},8,8,2.5,1\n"
    for number, step in enumerate(("nan,0.5", "1,inf")):
        make_run(f"number{number}", summary={"train_loss": float("nan")}, **{"steps.csv": steps.format(step)})
    (logs / "baseline" / "r7").mkdir()
    (logs / "baseline" / "r7" / "run.json").write_bytes(b'{"exercise": "\xff\x1b[2J", \x00')
    text = printed()
    for name in ("r1", "r2", "r3", "r6"):
        main(["summary", str(logs / "baseline" / name)])
    text += capsys.readouterr().out
    assert not HARMFUL.search(text), HARMFUL.search(text)
    assert "\n| PASS |" not in text
    assert r"\x1b[2J" in text
