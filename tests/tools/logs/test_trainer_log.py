"""What the Trainer printed; and DeepSpeed's timers: the step's parts, and only from runs that were timed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.errors import LogError
from tools.logs import trainer_log
from tools.logs.trainer_log import read_timers
from tools.tables.repository import ROOT


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> list[trainer_log.Training]:
        (tmp_path / "train.out").write_bytes(text.encode())
        return trainer_log.read(tmp_path / "train.out")

    return read


def test_numbers_printed_as_strings_are_numbers(read):
    (training,) = read("{'eval_loss': '12.64', 'eval_runtime': '1.5e+01', 'epoch': '0.5'}\n")
    assert training.evals == [{"eval_loss": 12.64, "eval_runtime": 15.0, "epoch": 0.5}]


def test_nan_loss_and_progress_bars_around_a_dict_do_not_hide_the_next(read):
    text = "{'loss': nan, 'epoch': 0.5}\r 10%|█  | 1/10 [00:01<00:09]{'eval_loss': 'nan', 'epoch': 1.0}\r 20%|██"
    (training,) = read(text + "{'eval_loss': 0.25, 'epoch': 2.0} 30%|")
    assert [event["epoch"] for event in training.evals] == [1.0, 2.0]


def test_event_printed_by_every_rank_counts_once(read):
    first, second = "{'loss': 0.5, 'epoch': 1.0}\n", "{'loss': 0.4, 'epoch': 2.0}\n"
    evals = "".join(f"{{'eval_loss': 0.3, 'eval_runtime': {t}, 'epoch': 2.0}}\n" for t in (1.1, 1.2))
    finals = "".join(f"{{'train_runtime': {t}, 'train_loss': 0.45, 'epoch': 2.0}}\n" for t in (9.1, 9.2))
    (training,) = read(first + second + first + second + evals + finals)
    assert len(training.evals) == 1
    assert training.final["train_runtime"] == 9.1


def test_requeued_job_appends_a_second_training(read):
    killed = "{'loss': 0.5, 'epoch': 1.0}\n{'eval_loss': 0.4, 'epoch': 2.0}\n"
    again = "{'loss': 0.45, 'epoch': 1.0}\n{'train_runtime': 5.0, 'train_loss': 0.4, 'epoch': 2.0}\n"
    trainings = read(killed + again)
    assert [len(training.evals) for training in trainings] == [1, 0]
    assert trainings[0].final is None and trainings[1].final["train_runtime"] == 5.0


@pytest.mark.parametrize("loss", [0.3, 0.5])
def test_two_complete_trainings_are_kept_apart(read, loss):
    one = "{'loss': 0.5, 'epoch': 1.0}\n{'train_runtime': 5.0, 'train_loss': 0.5, 'epoch': 1.0}\n"
    two = f"{{'loss': {loss}, 'epoch': 1.0}}\n{{'train_runtime': 6.0, 'train_loss': {loss}, 'epoch': 1.0}}\n"
    assert [training.final["train_runtime"] for training in read(one + two)] == [5.0, 6.0]


def test_evaluation_after_training_is_not_another_epoch(read):
    last = "{'eval_loss': 0.5, 'eval_accuracy': 0.7, 'epoch': 1.0}\n"
    (training,) = read("{'eval_loss': 0.5, 'epoch': 1.0}\n{'train_runtime': 5.0, 'epoch': 1.0}\n" + last)
    assert [event["eval_loss"] for event in training.evals] == [0.5]


def test_cut_off_dict_of_a_killed_job_is_left_out(read):
    (training,) = read("{'eval_loss': 0.5, 'epoch': 1.0}\n{'eval_loss': 0.4, 'epo")
    assert len(training.evals) == 1
    assert read("") == []


def test_word_in_place_of_a_number_is_an_error_with_its_line(read):
    with pytest.raises(LogError, match=r"train\.out:2: found 'loss: abc', expected a number"):
        read("start\r 5%|\r 6%|\n{'loss': 'abc', 'epoch': 1.0}\n")


def test_real_logs_with_glued_progress_bars_and_with_a_failure_at_the_end(sample_logs):
    (training,) = trainer_log.read(sample_logs / "hf-trainer-progressbar-glued.log")
    assert [event["eval_loss"] for event in training.evals] == [0.4172849953174591]
    assert training.final["train_runtime"] == 1810.426
    (training,) = trainer_log.read(sample_logs / "oom-then-nccl-watchdog-timeout.out")
    assert training.final is None


# From a run of stage 3 with offload on an H200: two steps of two micro-batches.
STEP = """\
[Rank 0] time (ms) | fwd_microstep: 70.25 | bwd_microstep: 93.53 | bwd_allreduce_microstep: 2.73
[Rank 0] time (ms) | optimizer_step: {optimizer}
[Rank 0] time (ms) | fwd_microstep: 71.02 | bwd_microstep: 100.01 | bwd_allreduce_microstep: 60.01
[Rank 0] time (ms) | fwd: 141.28 | bwd: 194.50 | bwd_inner: 132.07 | bwd_allreduce: 62.38 | step: {update}
{{'loss': '9.74', 'grad_norm': '6.283', 'learning_rate': '0', 'epoch': '0.25'}}
"""
TIMED = "".join(STEP.format(optimizer=time, update=3 * time) for time in (400.5, 200.25, 210.75))
SETTINGS = {"batch_size": 4, "grad_acc": 4, "fp16": True}


@pytest.mark.parametrize("garbled", ["1.2.3", "14[rank1]: done", "١٢", ".", "9" * 5000, "14"])
def test_garbled_number_costs_its_line(tmp_path: Path, garbled: str) -> None:
    end = "" if garbled == "14" else "\n"  # cut off
    (tmp_path / "train.out").write_text(f"[Rank 0] time (ms) | fwd: 1.5\n[Rank 0] time (ms) | fwd: {garbled}{end}")
    assert read_timers(tmp_path / "train.out") == {"fwd": [1.5]}


@pytest.fixture
def row(make_run: Callable[..., Path], filled_by_column: Callable[..., dict]) -> Callable[[str], list[str]]:
    """The figures of stage 3 + offload, 4 x 4, from a run with timers and a run without."""
    place = {"exercise": "deepspeed-single-gpu", "config": "zero3_offload", "precision": "fp16"}
    timed = place | {"settings": SETTINGS | {"timers": True}}
    summary = {"train/steps_per_second": 0.5, "train/samples_per_second": 8.0, "warmup_steps": 1}
    make_run("timed", timed, summary, **{"train.out": TIMED})
    make_run("plain", place | {"settings": SETTINGS}, summary | {"train/steps_per_second": 1.0}, **{"train.out": ""})
    labels = "Stage 3 + offload / 4 x 4, fp16"
    return lambda number: [*filled_by_column(ROOT / "deepspeed-single-gpu", number)[labels].values()]


def test_medians_leave_the_warm_up_out(row: Callable[[str], list[str]]) -> None:
    assert row("4c") == ["141.3", "194.5", "62.4", "616.5", "205.5"]


def test_step_time_of_a_run_slowed_by_its_timers_is_in_no_other_table(row: Callable[[str], list[str]]) -> None:
    assert row("4b")[0] == "1,000.0"
