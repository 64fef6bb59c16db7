"""A sharded checkpoint that is written while the training continues: as one that was waited for, or absent."""

import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.checkpoint import FileSystemWriter
from transformers import TrainerCallback

from tests.launching import losses
from tests.trainings_on_ranks import Ranks, Training, training
from workshop.measure import trainer_hooks
from workshop.record.checkpoints import checkpoints, fault, manifest, newest
from workshop.record.control import Control
from workshop.record.run_record import read_summary
from workshop.settings.settings import Settings
from workshop.training.saving import CheckpointWriter

SIZES = {"BATCH_SIZE": "2", "GRAD_ACC": "1", "SAVE": "steps", "SAVE_STEPS": "5", "SAVE_LIMIT": "0"}
WAITED, ASYNC = "sharded_state", "async"
OUTPUT = "bloom-qa-finetuned"


def of(run: Path, form: str = ASYNC, happens: str = "", **settings: str) -> Training:
    """Args: happens: what this file, run as a script, makes happen."""
    command = (__file__, happens) if happens else ("train.py",)
    return training(run, "resilience", f"../models/full_shard_{form}.json", command, **SIZES | settings)


@pytest.fixture(scope="module")
def runs(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("async_save")
    ranks.train([of(folder / WAITED, WAITED), of(folder / ASYNC, happens="held", SAVE_LIMIT="1")])
    return folder


def test_save_is_measured_until_it_is_on_disk(runs: Path) -> None:
    for form in (WAITED, ASYNC):
        summary = read_summary(runs / form)
        assert summary["checkpoint_disk_time_s"] > 0 and summary["checkpoint_time_s"] > 0
    assert read_summary(runs / WAITED)["checkpoint_time_s"] >= read_summary(runs / WAITED)["checkpoint_disk_time_s"]


def test_training_goes_on_while_the_older_checkpoint_stays_and_a_copy_is_written(runs: Path) -> None:
    """Two steps have changed the weights when the copy is written; the training's end waits for it."""
    assert losses(runs / ASYNC) == losses(runs / WAITED)
    (checkpoint,) = checkpoints(runs / ASYNC / OUTPUT)
    waited, found = (manifest(path)["files"] for path in (runs / WAITED / OUTPUT / "checkpoint-10", checkpoint))
    assert not fault(checkpoint)
    assert found.keys() == waited.keys()
    differ = {name for name in waited if found[name] != waited[name]}
    assert differ <= {"pytorch_model_fsdp_0/.metadata", "optimizer_0/.metadata"}, "they name the checkpoint's folder"


def test_rank_killed_while_it_writes_loses_no_older_checkpoint(ranks: Ranks, runs: Path, tmp_path: Path) -> None:
    assert -signal.SIGKILL in ranks.ask(trainings=[of(tmp_path, happens="killed")], ranks=2)
    assert (tmp_path / OUTPUT / "unfinished/checkpoint-10").is_dir()
    found = newest(tmp_path / OUTPUT)
    assert found and found.name == "checkpoint-5"
    first = (tmp_path / "steps.csv").read_text().splitlines()[:6]
    ranks.train([of(tmp_path, RESUME_FROM=str(found))])
    assert losses(tmp_path) == losses(runs / WAITED)
    assert (tmp_path / "steps.csv").read_text().splitlines()[:6] == first, "it began anew"
    assert not (tmp_path / OUTPUT / "unfinished/checkpoint-5").exists()


def test_preempted_training_ends_when_its_checkpoint_is_whole(ranks: Ranks, tmp_path: Path) -> None:
    ranks.train([of(tmp_path, happens="stopped")])
    assert Control(tmp_path).read().saved == "8"
    found = newest(tmp_path / OUTPUT)
    assert found and found.name == "checkpoint-8"


class Happens(TrainerCallback):
    """held: the threads write checkpoint-5 when step 9 begins, and checkpoint-10 when the training ends.

    killed: rank 1 dies as it begins to write checkpoint-10. stopped: the launcher says `stop` before step 8.
    """

    def __init__(self, settings: Settings, what: str) -> None:
        self.settings, self.what = settings, what
        self.may_write = {"checkpoint-5": threading.Event(), "checkpoint-10": threading.Event()}
        own_write, own_say = FileSystemWriter.write_data, Control.say

        def write(writer: FileSystemWriter, *given: Any) -> Any:
            checkpoint = Path(writer.path).parent.name
            if what == "held":
                assert self.may_write[checkpoint].wait(300), "the training waits for the disk"
            if what == "killed" and checkpoint == "checkpoint-10" and os.environ["RANK"] == "1":
                os.kill(os.getpid(), signal.SIGKILL)
            return own_write(writer, *given)

        def say(control: Control, line: str) -> None:
            if line.startswith("saved"):
                assert not fault(settings.output_path / "checkpoint-8")
            own_say(control, line)

        FileSystemWriter.write_data, Control.say = write, say

    def on_step_begin(self, args: Any, state: Any, *_: object, **__: object) -> None:
        found = [path.name for path in checkpoints(self.settings.output_path)]
        if self.what == "stopped" and state.global_step == 7 and args.process_index == 0:
            Control(self.settings.run_dir).say("stop")
        if self.what == "held" and state.global_step == 8:
            assert found == []
            self.may_write["checkpoint-5"].set()
        if self.what == "held" and state.global_step == 11:
            assert found == ["checkpoint-5"]

    def on_train_end(self, *_: object, **__: object) -> None:
        self.may_write["checkpoint-10"].set()


if __name__ == "__main__":  # on ranks: the exercise's train.py, and what happens
    own, what = trainer_hooks.callbacks_for, sys.argv[1]

    def callbacks_for(settings: Settings, *given: Any) -> list[TrainerCallback]:
        found = own(settings, *given)
        assert isinstance(found[-1].parts[-1], CheckpointWriter), "a step contains its wait for the disk"
        return [Happens(settings, what), *found]

    trainer_hooks.callbacks_for = callbacks_for
    runpy.run_path("train.py", run_name="__main__")
