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
    (training,) = read("{'loss': '12.64', 'grad_norm': '1.5e+01', 'learning_rate': '5e-05', 'epoch': '0.5'}\n")
    assert training.losses == [{"loss": 12.64, "grad_norm": 15.0, "learning_rate": 5e-05, "epoch": 0.5}]


def test_nan_loss_does_not_end_the_parse(read):
    (training,) = read("{'loss': nan, 'epoch': 0.5}\n{'loss': 'nan', 'epoch': '1'}\n{'loss': 1.0, 'epoch': 1.5}\n")
    assert len(training.losses) == 3


def test_progress_bar_before_and_after_a_dict_does_not_hide_it(read):
    text = "\r 10%|█  | 1/10 [00:01<00:09]{'loss': 0.5, 'epoch': 1.0}\r 20%|██ | 2/10{'loss': 0.25, 'epoch': 2.0} 30%|"
    assert [event["loss"] for event in read(text)[0].losses] == [0.5, 0.25]


def test_event_printed_by_every_rank_counts_once(read):
    first, second = "{'loss': 0.5, 'epoch': 1.0}\n", "{'loss': 0.4, 'epoch': 2.0}\n"
    evals = "".join(f"{{'eval_loss': 0.3, 'eval_runtime': {t}, 'epoch': 2.0}}\n" for t in (1.1, 1.2))
    finals = "".join(f"{{'train_runtime': {t}, 'train_loss': 0.45, 'epoch': 2.0}}\n" for t in (9.1, 9.2))
    (training,) = read(first + second + first + second + evals + finals)
    assert len(training.losses) == 2
    assert len(training.evals) == 1
    assert training.final["train_runtime"] == 9.1


def test_requeued_job_appends_a_second_training(read):
    killed = "{'loss': 0.5, 'epoch': 1.0}\n{'loss': 0.4, 'epoch': 2.0}\n"
    again = "{'loss': 0.45, 'epoch': 1.0}\n{'train_runtime': 5.0, 'train_loss': 0.4, 'epoch': 2.0}\n"
    trainings = read(killed + again)
    assert [len(training.losses) for training in trainings] == [2, 1]
    assert trainings[0].final is None and trainings[1].final["train_runtime"] == 5.0


def test_two_complete_trainings_are_kept_apart(read):
    one = "{'loss': 0.5, 'epoch': 1.0}\n{'train_runtime': 5.0, 'train_loss': 0.5, 'epoch': 1.0}\n"
    two = "{'loss': 0.3, 'epoch': 2.0}\n{'train_runtime': 6.0, 'train_loss': 0.3, 'epoch': 2.0}\n"
    assert [training.final["train_runtime"] for training in read(one + two)] == [5.0, 6.0]


LOSSES = "{'loss': 0.0, 'epoch': 0.5}\n{'loss': 0.0, 'epoch': 1.0}\n"


@pytest.mark.parametrize(
    "between", ["", LOSSES, "{'eval_loss': 0.7, 'epoch': 1.0}\n", LOSSES + "{'eval_loss': 0.7, 'epoch': 1.0}\n"]
)
def test_trainings_that_end_in_equal_dicts_are_not_another_rank_s_repeats(read, between):
    text = "".join(f"{between}{{'train_runtime': {5 + i}, 'train_loss': 0.0, 'epoch': 1.0}}\n" for i in range(4))
    found = read(text)
    assert [training.final["train_runtime"] for training in found] == [5, 6, 7, 8]
    count = len(found[0].losses), len(found[0].evals)
    assert all((len(training.losses), len(training.evals)) == count for training in found)


def test_training_that_begins_like_the_one_before_it_has_all_its_losses(read):
    end = "{'train_runtime': 5.0, 'train_loss': 0.5, 'epoch': 1.0}\n"
    assert [
        len(one.losses) for one in read(LOSSES + end + LOSSES.replace("0.0, 'epoch': 1", "0.1, 'epoch': 1") + end)
    ] == [
        2,
        2,
    ]


def test_evaluations_tell_trainings_apart_that_end_in_the_same_second(read):
    text = "".join(
        f"{{'eval_loss': 0.{i}, 'epoch': 1.0}}\n{{'train_runtime': 5.0, 'train_loss': 0.0, 'epoch': 1.0}}\n"
        for i in (1, 2, 3)
    )
    assert [[event["eval_loss"] for event in training.evals] for training in read(text)] == [[0.1], [0.2], [0.3]]


def test_evaluation_after_training_is_not_another_epoch(read):
    last = "{'eval_loss': 0.5, 'eval_accuracy': 0.7, 'epoch': 1.0}\n"
    (training,) = read("{'eval_loss': 0.5, 'epoch': 1.0}\n{'train_runtime': 5.0, 'epoch': 1.0}\n" + last)
    assert [event["eval_loss"] for event in training.evals] == [0.5]


def test_cut_off_dict_of_a_killed_job_is_left_out(read):
    (training,) = read("{'loss': 0.5, 'epoch': 1.0}\n{'loss': 0.4, 'epo")
    assert len(training.losses) == 1


def test_empty_output_has_no_training(read):
    assert read("") == []


def test_word_in_place_of_a_number_is_an_error_with_its_line(read):
    with pytest.raises(LogError, match=r"train\.out:2: found 'loss: abc', expected a number"):
        read("start\r 5%|\r 6%|\n{'loss': 'abc', 'epoch': 1.0}\n")


def test_real_log_with_glued_progress_bars(sample_logs):
    (training,) = trainer_log.read(sample_logs / "hf-trainer-progressbar-glued.log")
    assert len(training.losses) == 18
    assert [event["eval_loss"] for event in training.evals] == [0.4172849953174591]
    assert training.final["train_runtime"] == 1810.426


def test_real_log_that_ends_in_a_failure(sample_logs):
    (training,) = trainer_log.read(sample_logs / "oom-then-nccl-watchdog-timeout.out")
    assert len(training.losses) == 775
    assert training.final is None
