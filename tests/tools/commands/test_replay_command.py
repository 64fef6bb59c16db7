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
END = {"end_time": "2026-11-21T09:45:20+00:00", "exit_code": 0}
STEPS = (
    "step,step_time_s,tokens,real_tokens,loss,epoch\n1,2,64,9,2.5,0.5\n2,1,64,9,2.25,1\n3,1,64,9,2,1.5\n4,1,64,9,1,2\n"
)
TRAIN_OUT = "import\nload\n{'loss': '2.5', 'epoch': '0.5'}\nbetween\n{'loss': '2', 'epoch': '1.5'}\nend\n"
FILES = {"steps.csv": STEPS, "train.out": TRAIN_OUT, "nccl.log": "before\n"}


def figures(run: Run) -> dict[str, object]:
    return {name: figure(run, name) for name in OF_ONE_RUN}


def replayed(folder: Path, logs: Path) -> Path:
    before = {*logs.glob("*/*")}
    assert [*replay(read_run(folder), logs, 1e12)] == []
    (made,) = {*logs.glob("*/*")} - before
    return made


def test_logs_grow_line_by_line_over_the_whole_run(make_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = 100.0
    monkeypatch.setattr("tools.commands.replay.time.monotonic", lambda: clock_s)
    run = make_run("r", END, {"train_runtime_s": 10.0}, **FILES)
    growing = replay(read_run(run), tmp_path / "replays", 1.0)

    def last_step(at_s: float) -> str:
        nonlocal clock_s
        clock_s = 100 + at_s
        next(growing, None)
        return (folder / "steps.csv").read_text().splitlines()[-1][0]

    next(growing)
    (folder,) = tmp_path.glob("replays/*/*")
    assert last_step(1) == "s"
    assert not (folder / "summary.json").exists()
    assert (folder / "gpu_memory.csv").read_text().count("V100") == 0
    assert last_step(9) == "2" and (folder / "gpu_memory.csv").read_text().count("V100") == 2
    assert read_run(folder).record.state == "running"
    assert last_step(20.1) == "4" and read_run(folder).state == "completed"
    for name in ("steps.csv", "train.out", "summary.json", "gpu_memory.csv", "cpu_memory.txt", "nccl.log"):
        assert (folder / name).read_bytes() == (run / name).read_bytes()


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


def test_nobody_can_resume_a_replay_and_nothing_outside_is_copied(make_run, tmp_path: Path) -> None:
    run = make_run("r", END, **{".launcher": "x"})
    (run / "bloom-qa-finetuned").mkdir()
    (run / "link").symlink_to("/etc/passwd")
    copied = {path.name for path in replayed(run, tmp_path / "replays").iterdir()}
    assert copied == {path.name for path in run.iterdir()} - {".launcher", "bloom-qa-finetuned", "link"}


def test_file_that_vanishes_after_it_was_listed_is_left_out(make_run, tmp_path: Path) -> None:
    run = read_run(make_run("r", END, **{"nccl.log": "x", "train.out": "x"}))
    assert {"nccl.log", "train.out"} < run.files.keys()
    (run.folder / "nccl.log").unlink()
    assert [*replay(run, tmp_path / "replays", 1e12)] == []
    (copy,) = (tmp_path / "replays").glob("*/*")
    assert {path.name for path in copy.iterdir()} == run.files.keys() - {"nccl.log"}


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
    for command in (["fill", "baseline", "--format", "csv"], ["runs", "--format", "json"], ["runs", "--durations"]):
        assert main([*command, *own]) == 3, "nothing in it would tell a replay from a measurement"
    assert main(["grade", str(file), *own]) == 1
    assert main(["fill", "baseline", "--format", "csv", "--run", str(folder)]) == 2
    assert f"--run {folder}: is a replay, not measured" in capsys.readouterr().err


def test_replays_are_in_a_folder_that_nothing_reads_unless_it_is_named(make_run, logs: Path, monkeypatch) -> None:
    """Else a replayed run, which is newer, would be shown as one's own."""
    runs = {make_run("r"), make_run("other")}
    monkeypatch.setenv("LOG_DIR", str(logs))
    assert main(["replay", str(logs), "--speed", "1e6"]) == 0
    assert len([*(logs / "replay/baseline").iterdir()]) == 2
    assert {found.folder for found in find_runs(logs, replays=True)} == runs


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "neither a folder of runs nor an exercise: baseline"),
        (["--logs", str(REFERENCE / "new")], "expected a folder of your own"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_written(words: list[str], said: str, tmp_path: Path, capsys) -> None:
    logs = [] if "--logs" in words else ["--logs", str(tmp_path / "logs")]
    assert main(["replay", *words, *logs]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "logs").exists() and not (REFERENCE / "new").exists()
