import pytest

from tools.errors import LogError
from tools.logs.run import StepLog, read_steps

HEADER = "step,step_time_s,tokens,real_tokens,loss,epoch\n"


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> StepLog:
        (tmp_path / "steps.csv").write_text(text)
        return read_steps(tmp_path / "steps.csv")

    return read


def test_columns_are_numbers(read):
    log = read(HEADER + "1,0.5,2048,700,2.5,0.25\n2,0.25,2048,650,nan,0.5\n")
    assert log.step.tolist() == [1, 2]
    assert log.step_time_s.tolist() == [0.5, 0.25]
    assert log.loss[0] == 2.5


def test_log_without_steps_is_empty_and_the_last_line_of_a_killed_job_left_out(read):
    steps = [read(text).step.tolist() for text in ("", HEADER, HEADER + "1,0.5,2048,700,2.5,0.25\n2,0.2")]
    assert steps == [[], [], [1]]


def test_missing_column_is_named(read):
    with pytest.raises(LogError, match=r"steps\.csv:1: .*missing: real_tokens"):
        read("step,step_time_s,tokens,loss,epoch\n1,0.5,2048,2.5,0.25\n")


@pytest.mark.parametrize(
    "line", ["nan,0.5,2048,700,2.5,0.5", "2,fast,2048,700,2.5,0.5", "2,inf,2048,700,2.5,0.5", "2,0.5,1e999,700,2.5,0.5"]
)
def test_step_that_no_training_makes_is_an_error_with_its_line(read, line):
    with pytest.raises(LogError, match=r"steps\.csv:3: found '(nan|fast|inf|1e999)', expected a number in column "):
        read(HEADER + f"1,0.5,2048,700,nan,0.25\n{line}\n3,0.5,2048,700,2.5,0.75\n")
