import pytest

from tools.errors import LogError
from tools.logs import trainer_log


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


def test_real_log_with_glued_progress_bars(sample_logs):
    (training,) = trainer_log.read(sample_logs / "hf-trainer-progressbar-glued.log")
    assert [event["eval_loss"] for event in training.evals] == [0.4172849953174591]
    assert training.final["train_runtime"] == 1810.426


def test_real_log_that_ends_in_a_failure(sample_logs):
    (training,) = trainer_log.read(sample_logs / "oom-then-nccl-watchdog-timeout.out")
    assert training.final is None
