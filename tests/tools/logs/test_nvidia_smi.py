import pytest

from tools.errors import LogError
from tools.logs.figures import measure
from tools.logs.memory_logs import MemoryLog, extremes, read_nvidia_smi
from tools.logs.runs import read_run

HEADER = "timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n"
ROW = "2026/11/21 05:55:4{second}.717, {gpu}, NVIDIA H200, {used}, 143771, {busy}\n"


def row(second: int, used, busy, gpu: int = 0) -> str:
    return ROW.format(second=second, used=used, busy=busy, gpu=gpu)


@pytest.fixture
def read(tmp_path):
    def read(text: str, **options) -> MemoryLog:
        (tmp_path / "gpu_memory.csv").write_bytes(text.encode())
        return read_nvidia_smi(tmp_path / "gpu_memory.csv", **options)

    return read


def test_B4_memory_is_averaged_over_zeros_too(read):
    log = read(HEADER + row(1, 0, 0) + row(2, 500, 80) + row(3, 500, 100) + row(4, 0, 0))
    assert tuple(extremes([log], "empty log").values()) == (500, 250, 0)


def test_peak_is_of_one_gpu_and_mean_over_all(read):
    log = read(HEADER + row(1, 100, 0, gpu=0) + row(3, 300, 0, gpu=1), with_time=True)
    assert tuple(extremes([log], "empty log").values()) == (300, 200, 100)
    assert (log.gpu, log.time_s) == ([0, 1], [0, 2])  # seconds since the start


@pytest.mark.parametrize("line", ["12, 14, 80", row(1, 10, 40).rstrip()], ids=["numbers", "the launcher's order"])
def test_headerless_file_without_units_is_an_error(read, line):
    with pytest.raises(LogError, match=rf"gpu_memory\.csv:1: found '{line}', expected a header with memory\.used"):
        read(f"{line}\n")


@pytest.mark.parametrize("cell", ["37 %", "250 W", "1e999 MiB", "nan", "12 GiB", "12 MiB MiB"])
def test_cell_of_another_unit_or_without_a_size_is_refused(read, cell):
    with pytest.raises(
        LogError, match=rf"gpu_memory\.csv:3: found '{cell}.*', expected a number in column memory\.used"
    ):
        read(HEADER + row(1, "10 MiB", 5) + row(2, cell, 5))


def test_seconds_since_1970_are_not_read_as_a_year(read):
    text = HEADER + row(1, 10, 5).replace("2026/11/21 05:55:41.717", "1732430000.123")
    assert extremes([read(text)], "empty log")["peak_mib"] == 10
    with pytest.raises(LogError, match=r"gpu_memory\.csv:2: found '1732430000.123', expected a timestamp such as"):
        read(text, with_time=True)


def test_two_memory_columns_that_cannot_be_told_apart_are_an_error(read):
    with pytest.raises(LogError, match="cannot be told"):
        read("5 MiB, 9 MiB\n9 MiB, 5 MiB\n1 MiB, 2 MiB\n")


def test_header_without_memory_used_is_an_error(read):
    with pytest.raises(LogError, match=r"a column memory\.used in the header"):
        read("timestamp, utilization.gpu [%]\n2026/11/21 05:55:41.717, 5\n")


def test_nodes_are_merged_sample_by_sample(make_run):
    logs = {"gpu_memory-a.csv": HEADER + row(1, 10, 5), "gpu_memory-b.csv": HEADER + row(1, 20, 15) + row(2, 30, 25)}
    run = read_run(make_run("20261121-094500-j1", **logs, **{"gpu_memory.csv": None}))
    assert (measure(run, "peak_gpu_mib"), measure(run, "mean_gpu_mib")) == (30, 20)


@pytest.mark.parametrize(
    ("name", "samples", "most", "mean"),
    [("h200-own.csv", 320, 55775, 5087.2875), ("noheader-units.csv", 400, 20137, None)],
)
def test_real_log(sample_logs, name, samples, most, mean):
    log = read_nvidia_smi(sample_logs / f"nvidia-smi-{name}")
    figures = extremes([log], "empty log")
    assert (len(log.mib), figures["peak_mib"]) == (samples, most)
    assert mean is None or figures["mean_mib"] == pytest.approx(mean)
