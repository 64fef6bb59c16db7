"""A training that dies in any of these ways goes on as if nothing had been: same losses, same weights, one line a step.

Real trainings, killed for real. Through the launchers: test_drill_launcher.py and tests/slurm.
"""

import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.launching import die_after, losses, record
from tests.leftovers import leftovers
from tests.trainings_on_ranks import Ranks, training
from workshop.job.outcome import RESERVE_BYTES, begin, record_end
from workshop.record.checkpoints import newest

STEPS = 40  # on one rank
SIZES = {
    **{"TRAIN_SIZE": "40", "MAX_LENGTH": "64", "NUM_EPOCHS": "2", "BATCH_SIZE": "2", "GRAD_ACC": "1"},
    **{"WEIGHT_DECAY": "0.01", "SAVE": "steps", "SAVE_STEPS": "5", "SAVE_LIMIT": "2"},
    **{"FAULT": "none", "FAULT_STEP": "18"},
}
Train = Callable[..., list[int]]


@pytest.fixture(scope="module")
def shm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shm")


@pytest.fixture(scope="module")
def train(ranks: Ranks, shm: Path) -> Train:
    """train(run, kill_after_s=None, world_size=1, FAULT="rank_killed"): an attempt in the folder `run`, with the record
    that the launcher would write; the ranks' exit codes.
    """

    def attempt(run: Path, kill_after_s: float | None = None, world_size: int = 1, **settings: str) -> list[int]:
        plan = training(run, "resilience", **SIZES | settings)
        run.mkdir(parents=True, exist_ok=True)
        environ = os.environ | plan["environ"] | {"EXERCISE_DIR": "resilience", "CONFIG": ""}
        checkpoint = str(newest(run / plan["environ"]["OUTPUT_DIR"]) or "")
        begin(run, environ, plan["command"], checkpoint)
        plan["environ"]["RESUME_FROM"] = checkpoint
        codes = ranks.ask(trainings=[plan], ranks=world_size, kill_after_s=kill_after_s, shm=str(shm))
        record_end(run, environ, 1 if any(codes) else 0, "")
        return codes

    return attempt


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """small_disk(mib) mounts a disk that is small enough to be filled."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mounted(mib: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", disk]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("only root can make a small disk")
        return disk

    yield mounted
    subprocess.run(["umount", disk], capture_output=True)


@pytest.fixture(autouse=True)
def nothing_is_left(ranks: Ranks, shm: Path, tmp_path: Path) -> Iterator[None]:
    """After each fault, and what followed."""
    yield
    assert [left for path in tmp_path.rglob("run.json") for left in leftovers(path.parent, shm)] == []
    assert ranks.processes() == []


@pytest.fixture(scope="module")
def undisturbed(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A logger beside it is killed, which it does not notice."""
    run = tmp_path_factory.mktemp("undisturbed")
    stands_for = ["sh", "-c", "read forever", "psrecord"]
    with subprocess.Popen(stands_for, env=os.environ | {"RUN_DIR": str(run)}, stdin=subprocess.PIPE) as logger:
        assert train(run, FAULT="logger_killed") == [0]
        assert logger.wait(timeout=60) == -signal.SIGKILL
    return run


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
    ("fault", "resumed", "words"),
    [
        ("rank_killed", 15, ""),
        ("checkpoint_truncated", 10, "checkpoint-15 is skipped: optimizer.pt has"),
        ("shard_missing", 10, "checkpoint-15 is skipped: optimizer.pt is missing"),
    ],
)
def test_killed_training_goes_on_from_the_newest_whole_checkpoint(
    train: Train, undisturbed: Path, tmp_path: Path, capfd: pytest.CaptureFixture, fault: str, resumed: int, words: str
) -> None:
    assert train(tmp_path, FAULT=fault) == [-9]
    assert record(tmp_path)["state"] == "failed"
    assert train(tmp_path, FAULT=fault) == [0]
    assert words in capfd.readouterr().out
    printed = (tmp_path / "train.out").read_text()
    assert printed.count(f"drill: FAULT={fault} comes now, after step 18, on purpose") == 1
    assert_as_undisturbed(tmp_path, undisturbed)
    (attempt,) = record(tmp_path)["attempts"]
    assert (attempt["last_step"], attempt["resumed_step"]) == (18, resumed)
    assert attempt["steps_lost"] == 18 - resumed
    assert attempt["seconds_lost"] > 0
    assert record(tmp_path)["settings"]["resume_from"] == "", "it would no longer be a run of its submit.txt"


def test_run_killed_after_its_last_checkpoint_trains_no_step_more(train: Train, tmp_path: Path) -> None:
    """MAX_STEPS lies inside an epoch; the checkpoint has the last evaluation."""
    settings = {"MAX_STEPS": "15", "GENERATE_SIZE": "1"}
    assert train(tmp_path / "whole", **settings) == [0]
    resumed = die_after(tmp_path / "whole", "checkpoint-15", tmp_path / "resumed")
    assert train(resumed, **settings) == [0]
    assert losses(resumed) == losses(tmp_path / "whole")
    assert len(losses(resumed)) == 15
    weights = "bloom-qa-finetuned/model.safetensors"
    assert (resumed / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()
    summary, whole = (json.loads((run / "summary.json").read_text()) for run in (resumed, tmp_path / "whole"))
    assert len(summary["eval_loss"]) == 1
    for name in ("eval_loss", "train_loss", "f1"):
        assert summary[name] == whole[name]


def test_rank_that_hangs_while_the_other_waits_is_ended_and_the_training_goes_on(train: Train, tmp_path: Path) -> None:
    """Rank 0 waits for a fault that nobody brings, rank 1 for rank 0."""
    assert 1 in train(tmp_path, world_size=2, FAULT="time_limit", HANG_TIMEOUT_S="3")
    assert (record(tmp_path)["state"], record(tmp_path)["cause"]) == ("failed", "hang")
    assert train(tmp_path, world_size=2, FAULT="time_limit") == [0, 0]
    assert len(losses(tmp_path)) == STEPS / 2
    assert [attempt["cause"] for attempt in record(tmp_path)["attempts"]] == ["hang"]
    assert not (tmp_path / "stacks").exists()


def test_full_disk_is_recorded(train, undisturbed, tmp_path, small_disk, monkeypatch) -> None:
    """The run folder's disk is full of checkpoints: neither train.out nor steps.csv has room for another line."""
    small = small_disk(1)
    run = small / "run"
    run.mkdir()
    # Without git: the difference of a developer's tree would fill the disk before the first step.
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    settings = {"OUTPUT_DIR": str(tmp_path / "out")}
    (run / "ballast").write_bytes(bytes((1 << 20) - RESERVE_BYTES - shutil.disk_usage(small).used - (24 << 10)))
    assert train(run, **settings) == [1]
    assert (record(run)["state"], record(run)["cause"]) == ("failed", "disk full")
    (run / "ballast").unlink()
    assert train(run, **settings) == [0]
    assert losses(run) == pytest.approx(losses(undisturbed), abs=1e-5)


def test_disk_that_is_full_at_a_save_is_the_cause_and_keeps_the_checkpoints_before(
    train: Train, undisturbed: Path, tmp_path: Path, small_disk: Callable[[int], Path]
) -> None:
    whole = newest(undisturbed / "bloom-qa-finetuned")
    size_mib = sum(file.stat().st_size for file in whole.rglob("*") if file.is_file()) / 2**20
    out = small_disk(round(2.5 * size_mib)) / "out"
    assert train(tmp_path / "run", OUTPUT_DIR=str(out)) == [1]
    assert (record(tmp_path / "run")["state"], record(tmp_path / "run")["cause"]) == ("failed", "disk full")
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint-10", "checkpoint-5"]


@pytest.mark.slow
def test_training_killed_ten_times_ends_with_the_same_weights(train: Train, undisturbed: Path, tmp_path: Path) -> None:
    moments = random.Random(20261122)
    whole_s = 1.5 * json.loads((undisturbed / "summary.json").read_text())["train_runtime_s"]
    for _ in range(10):
        train(tmp_path, kill_after_s=moments.uniform(0.2, whole_s))
    assert train(tmp_path) == [0]
    assert_as_undisturbed(tmp_path, undisturbed)
