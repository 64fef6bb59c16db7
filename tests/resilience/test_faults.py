"""A training that dies in any of these ways goes on as if nothing had been: same losses, same weights, one line a step.

Real trainings, killed for real (trainings.py). Through the launchers: test_drill_launcher.py and tests/slurm.
"""

import csv
import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainings import STEPS, Trainings

from tests.leftovers import leftovers
from workshop.run_record import RESERVE_BYTES

KILLS = 20
SEED = 20261122


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    with Trainings(tmp_path_factory.mktemp("shm")) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_is_left(trainings: Trainings, tmp_path: Path) -> Iterator[None]:
    """After each fault, and what followed."""
    yield
    for run in {path.parent for path in tmp_path.rglob("run.json")}:
        assert leftovers(run, trainings.shm) == []
    assert trainings.processes() == []


@pytest.fixture(scope="module")
def undisturbed(trainings: Trainings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed")
    assert trainings.train(run) == [0]
    return run


def losses(run: Path) -> dict[int, float]:
    with (run / "steps.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["step"]) for line in lines] == list(range(1, len(lines) + 1)), "a gap, or a step twice"
    return {int(line["step"]): float(line["loss"]) for line in lines}


def record(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())


def assert_as_undisturbed(run: Path, undisturbed: Path) -> None:
    assert len(losses(run)) == STEPS
    assert losses(run) == pytest.approx(losses(undisturbed), abs=1e-5)
    weights = "bloom-qa-finetuned/model.safetensors"
    assert (run / weights).read_bytes() == (undisturbed / weights).read_bytes()
    summary, whole = (json.loads((one / "summary.json").read_text()) for one in (run, undisturbed))
    assert summary["eval_loss"] == whole["eval_loss"]
    assert summary["train_loss"] == pytest.approx(whole["train_loss"], abs=1e-5)
    assert summary["train_runtime_s"] * summary["train_steps_per_second"] == pytest.approx(STEPS, rel=0.01)


@pytest.mark.parametrize(
    ("fault", "resumed_step", "words"),
    [
        ("rank_killed", 15, ""),
        ("checkpoint_truncated", 10, "checkpoint-15 is skipped: optimizer.pt has"),
        ("shard_missing", 10, "checkpoint-15 is skipped: optimizer.pt is missing"),
    ],
)
def test_killed_training_goes_on_from_the_newest_whole_checkpoint(
    trainings: Trainings,
    undisturbed: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture,
    fault: str,
    resumed_step: int,
    words: str,
) -> None:
    assert trainings.train(tmp_path, FAULT=fault) == [-9]
    assert record(tmp_path)["state"] == "failed"
    assert trainings.train(tmp_path, FAULT=fault) == [0]
    printed = capfd.readouterr()
    assert words in printed.out
    assert printed.out.count(f"drill: FAULT={fault} comes now, after step 18, on purpose") == 1
    assert_as_undisturbed(tmp_path, undisturbed)
    (attempt,) = record(tmp_path)["attempts"]
    assert (attempt["last_step"], attempt["resumed_step"]) == (18, resumed_step)
    assert attempt["steps_lost"] == 18 - resumed_step
    assert 0 < attempt["seconds_lost"] < 60
    assert record(tmp_path)["settings"]["resume_from"] == "", "it would no longer be a run of its submit.txt"


def test_rank_that_hangs_while_the_other_waits_is_ended_and_the_training_goes_on(
    trainings: Trainings, tmp_path: Path
) -> None:
    """Rank 0 waits for a fault that nobody brings, rank 1 for rank 0."""
    assert 1 in trainings.train(tmp_path, ranks=2, FAULT="time_limit", HANG_TIMEOUT_S="3")
    assert (record(tmp_path)["state"], record(tmp_path)["cause"]) == ("failed", "hang")
    assert trainings.train(tmp_path, ranks=2, FAULT="time_limit") == [0, 0]
    assert len(losses(tmp_path)) == STEPS / 2
    assert [attempt["cause"] for attempt in record(tmp_path)["attempts"]] == ["hang"]
    assert not (tmp_path / "stacks").exists()


def test_full_disk_in_a_checkpoint_leaves_the_older_ones_and_says_so(
    trainings: Trainings, undisturbed: Path, tmp_path: Path
) -> None:
    """The checkpoints have a disk of their own, which two of them fill."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "none", small], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a small disk")
    try:
        run, output = tmp_path / "run", str(small / "out")
        assert trainings.train(run, OUTPUT_DIR=output) == [1]
        assert (record(run)["state"], record(run)["cause"]) == ("failed", "disk full")
        assert sorted(path.name for path in Path(output).iterdir()) == ["checkpoint-10", "checkpoint-5"]
        subprocess.run(["mount", "-o", "remount,size=20m", small], check=True)
        assert trainings.train(run, OUTPUT_DIR=output) == [0]
        assert losses(run) == pytest.approx(losses(undisturbed), abs=1e-5)
    finally:
        subprocess.run(["umount", small], check=True)


def test_full_disk_in_a_log_is_recorded_although_the_log_cannot_say_so(
    trainings: Trainings, undisturbed: Path, tmp_path: Path
) -> None:
    """The run folder's disk is full of checkpoints: neither train.out nor steps.csv has room for another line."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], capture_output=True).returncode:
        pytest.skip("only root can make a small disk")
    try:
        run = small / "run"
        run.mkdir()
        # Without git: the difference of a developer's tree would fill the disk before the first step.
        settings = {"OUTPUT_DIR": str(tmp_path / "out"), "GIT_DIR": "/nowhere"}
        (run / "ballast").write_bytes(bytes((1 << 20) - RESERVE_BYTES - shutil.disk_usage(small).used - (24 << 10)))
        assert trainings.train(run, **settings) == [1]
        assert (record(run)["state"], record(run)["cause"]) == ("failed", "disk full")
        (run / "ballast").unlink()
        assert trainings.train(run, **settings) == [0]
        assert losses(run) == pytest.approx(losses(undisturbed), abs=1e-5)
    finally:
        subprocess.run(["umount", small], check=True)


def test_training_killed_twenty_times_at_random_moments_ends_with_the_same_weights(
    trainings: Trainings, undisturbed: Path, tmp_path: Path
) -> None:
    moments = random.Random(SEED)
    whole_s = 1.5 * json.loads((undisturbed / "summary.json").read_text())["train_runtime_s"]
    for _ in range(KILLS):
        trainings.train(tmp_path, kill_after_s=moments.uniform(0.2, whole_s))
    assert trainings.train(tmp_path) == [0]
    assert_as_undisturbed(tmp_path, undisturbed)
