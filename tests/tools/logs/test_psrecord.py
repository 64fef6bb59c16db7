import pytest

from tools.errors import LogError
from tools.logs.memory_log import MemoryLog, read_psrecord

HEADER = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n"
ROWS = "       0.000        0.000       30.473      391.965\n       0.002      822.300       52.730      392.094\n"


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> MemoryLog:
        (tmp_path / "cpu_memory.txt").write_text(text)
        return read_psrecord(tmp_path / "cpu_memory.txt")

    return read


def test_peak_and_mean_are_of_the_resident_not_the_virtual_size(read):
    log = read(HEADER + ROWS)
    assert log.figures()["peak_mib"] == 52.73
    assert log.figures()["mean_mib"] == pytest.approx(41.6015)


@pytest.mark.parametrize("cut", ["       0.003      713.8", "       0.003      713.800       99."])
def test_cut_off_last_line_is_left_out(read, cut):
    assert len(read(HEADER + ROWS + cut).mib) == 2


@pytest.mark.parametrize("text", ["", HEADER, "\n"])
def test_log_without_samples_is_empty(read, text):
    assert read(text).figures() == {}


def test_message_in_place_of_numbers_is_an_error_with_its_line(read):
    with pytest.raises(LogError, match=r"cpu_memory\.txt:3: found 'psrecord: process has gone', expected 4 numbers"):
        read(HEADER + ROWS.splitlines()[0] + "\npsrecord: process has gone\n" + ROWS)


def test_time_of_a_second_attempt_goes_on_after_the_first(tmp_path, read):
    (tmp_path / "cpu_memory.txt").write_text(HEADER + ROWS + HEADER + ROWS)
    log = read_psrecord(tmp_path / "cpu_memory.txt")
    assert log.time_s == [0, 0.002, 0.002, 0.004]
    (tmp_path / "cpu_memory.txt").write_text(HEADER)
    assert read_psrecord(tmp_path / "cpu_memory.txt").time_s == []


def test_real_log(sample_logs):
    log = read_psrecord(sample_logs / "psrecord-ros.txt")
    assert len(log.mib) == 399
    assert log.figures()["peak_mib"] == 52.84
