"""Replays: written as the run was, at its pace, and never taken for a measurement."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.launching import REPO
from tools.__main__ import main
from tools.commands.replay import replay
from tools.logs.figures import OF_ONE_RUN, figure
from tools.logs.run import Run
from tools.logs.runs import find_runs, read_run

REFERENCE = REPO / "logs" / "reference"


def figures(run: Run) -> dict[str, object]:
    return {name: figure(run, name) for name in OF_ONE_RUN}


def replayed(folder: Path, logs: Path) -> Path:
    before = {*logs.glob("*/*")}
    assert [*replay(read_run(folder), logs, 1e12)] == []
    (made,) = {*logs.glob("*/*")} - before
    return made


@pytest.mark.parametrize("name", ["h200x4-2026-11-22e/resilience", "h200x4-fabric/sockets/custom_model", "h200x2/fsdp"])
def test_replay_is_marked_as_one_and_its_figures_are_those_of_the_run(name: str, tmp_path: Path) -> None:
    """Runs that went on after a failure, on several nodes, and that ran out of memory."""
    for run in [run for run in find_runs(REFERENCE / name) if run.state != "running"][-4:]:
        copy = read_run(replayed(run.folder, tmp_path / run.folder.name))
        assert copy.shown_state == f"{run.state} (replay, not measured)" and figures(copy) == figures(run)
        assert copy.record.replay.of == str(run.folder.relative_to(REPO)) and "-replay1" in copy.folder.name
        assert abs(time.time() - copy.start.timestamp()) < 60 and copy.runtime_s == run.runtime_s
        sizes = [{file: size for file, (size, _) in one.files.items() if file != "run.json"} for one in (copy, run)]
        assert sizes[0] == sizes[1]


def test_interrupted_replay_leaves_no_run_half_running(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    command = [sys.executable, "-m", "tools", "replay", str(REFERENCE / "h200x1/baseline"), "--logs", str(logs)]
    for ending in (signal.SIGINT, signal.SIGTERM):
        replay = subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True)
        assert "Ctrl-C" in replay.stdout.readline() and replay.stdout.readline().startswith("running")
        replay.send_signal(ending)
        told, _ = replay.communicate(timeout=300)
        assert replay.returncode == 130 and "recorded as cancelled" in told
    runs = find_runs(logs, replays=True)
    assert [run.state for run in runs] == ["cancelled"] * 2 and runs[0].reason == "the replay was interrupted"


def test_replay_is_told_from_a_measurement_wherever_it_is_shown(
    make_run, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, replays = make_run("r"), tmp_path / "replays"
    monkeypatch.setattr("tools.page.site.REFERENCE", tmp_path / "none")
    assert main(["replay", str(logs), "--speed", "1e6", "--logs", str(replays)]) == 0
    assert f"replay of {run}" in capsys.readouterr().out
    (folder,) = replays.glob("baseline/*")

    def said(*command: str) -> str:
        assert main([*command]) == 0
        return capsys.readouterr().out

    own, told = ["--logs", str(replays)], "replay, not measured"
    filled, file = said("fill", "baseline", "--plain", *own), tmp_path / "my_results.md"
    assert told in filled and "yours" not in said("fill", "baseline", *own)
    file.write_text(filled)
    assert told in said("check", str(file), *own) and told in said("summary", str(folder))
    assert told in said("runs", *own) and told in said("watch", "--once", *own)
    said("page", *own, "--output", str(tmp_path / "page"))
    pages = [tmp_path / "page" / name for name in ("index.html", f"runs/baseline-{folder.name}.html")]
    assert all(told in page.read_text() for page in pages)
    for command in (["fill", "baseline", "--format", "csv"], ["runs", "--format", "csv"], ["runs", "--durations"]):
        assert main([*command, *own]) == 3, "nothing in it would tell a replay from a measurement"
    assert main(["grade", str(file), *own]) == 1
    assert main(["fill", "baseline", "--format", "csv", "--run", str(folder)]) == 2
    assert f"--run {folder}: is a replay, not measured" in capsys.readouterr().err
