"""What the Trainer and DeepSpeed's timers printed, and steps.csv."""

from pathlib import Path

import pytest

from tools.errors import LogError
from tools.logs import trainer_log
from tools.logs.run import StepLog, read_steps
from tools.logs.trainer_log import read_timers


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> list[trainer_log.Training]:
        (tmp_path / "train.out").write_bytes(text.encode())
        return trainer_log.read(tmp_path / "train.out")

    return read


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


@pytest.mark.parametrize("garbled", ["14[rank1]: done", "١٢", "9" * 5000, "14"])
def test_garbled_number_costs_its_line(tmp_path: Path, garbled: str) -> None:
    end = "" if garbled == "14" else "\n"  # cut off
    (tmp_path / "train.out").write_text(f"[Rank 0] time (ms) | fwd: 1.5\n[Rank 0] time (ms) | fwd: {garbled}{end}")
    assert read_timers(tmp_path / "train.out") == {"fwd": [1.5]}


HEADER = "step,step_time_s,tokens,real_tokens,loss,epoch\n"


@pytest.fixture
def read_log(tmp_path):
    def read_log(text: str) -> StepLog:
        (tmp_path / "steps.csv").write_text(text)
        return read_steps(tmp_path / "steps.csv")

    return read_log


def test_log_without_steps_is_empty_and_the_last_line_of_a_killed_job_left_out(read_log):
    steps = [read_log(text).step.tolist() for text in ("", HEADER, HEADER + "1,0.5,2048,700,2.5,0.25\n2,0.2")]
    assert steps == [[], [], [1]]


@pytest.mark.parametrize(
    "line", ["nan,0.5,2048,700,2.5,0.5", "2,fast,2048,700,2.5,0.5", "2,inf,2048,700,2.5,0.5", "2,0.5,1e999,700,2.5,0.5"]
)
def test_step_that_no_training_makes_is_an_error_with_its_line(read_log, line):
    with pytest.raises(LogError, match=r"steps\.csv:3: found '(nan|fast|inf|1e999)', expected a number in column "):
        read_log(HEADER + f"1,0.5,2048,700,nan,0.25\n{line}\n3,0.5,2048,700,2.5,0.75\n")
