"""What is unusual in a log of memory must be neither wrong nor lost."""

import pytest

from tools.errors import LogError, UnavailableError
from tools.logs.figures import measure
from tools.logs.memory_logs import MemoryLog, extremes, read_nvidia_smi, read_psrecord
from tools.logs.runs import read_run

HEADER = "timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n"
ROW = "2026/11/21 05:55:41.717, 0, NVIDIA H200, {} MiB, 143771 MiB, {} %\n"
# Each with its peak, mean and least memory; or the number of the line that is no log's.
GPU_LOGS = {
    "empty": ("", []),
    "cut off in a number": (HEADER + ROW.format(10, 82) + ROW.format(20, 8)[:-3], [20.0, 15.0, 10.0]),
    "cut off in a name": (HEADER + ROW.format(10, 82) + ROW.format(20, 8)[:33], [10.0, 10.0, 10.0]),
    "restarted": (HEADER + ROW.format(10, 20) + HEADER * 2 + ROW.format(50, 60), [50.0, 30.0, 10.0]),
    "restarted in a line": (
        HEADER + ROW.format(10, 20) + "2026/11/21 05:5" + HEADER + ROW.format(50, 60),
        [50.0, 30.0, 10.0],
    ),
    "digits after a unit": (HEADER + ROW.format("5M0", 20) + ROW.format(30, 40), 2),
    "word": (HEADER + ROW.format(10, 20) + ROW.format("lots", 40) + ROW.format(30, 40), 3),
    "no header": (ROW.format(10, 20) + ROW.format(30, 40), 1),
    "other columns": ("memory.used [MiB], index, timestamp\n7 MiB, 0, 2026/11/21 05:55:41.717\n", [7.0, 7.0, 7.0]),
}
CPU_HEADER = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n"
CPU_ROW = "{:12.3f} {:12.3f} {:12.3f} {:12.3f}\n"
# Each with its peak and mean, or that line.
CPU_LOGS = {
    "without header": (CPU_ROW.format(0, 5, 1001, 2000), [1001.0, 1001.0]),
    "empty": ("", []),
    "cut off": (
        CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + CPU_ROW.format(1, 5, 3000, 4000)[:40],
        [1000.0, 1000.0],
    ),
    "message": (
        CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + "psrecord: gone\n" + CPU_ROW.format(1, 5, 3000, 4000),
        3,
    ),
    "message at the end": (
        CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + "slurmstepd: error: *** STEP 2.0 ***\n",
        [1000.0, 1000.0],
    ),
    "NULs at the end": (CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + "\0" * 4096, [1000.0, 1000.0]),
    "no size": (CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000).replace("1000.000", "     inf") * 2, 2),
    "byte order marks": ("\ufeff" + CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + "\ufeff\n", [1000.0, 1000.0]),
    "restarted": (
        CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + CPU_HEADER + CPU_ROW.format(0, 5, 3000, 4000),
        [3000.0, 2000.0],
    ),
}


def seen(read, path, text: str) -> list | int:
    path.write_bytes(text.encode())
    try:
        figures = extremes([read(path)], "empty log")
    except LogError as error:
        assert error.path == path
        return error.line
    except UnavailableError as empty:
        assert str(empty) == "empty log"
        return []
    return list(figures.values())


@pytest.mark.parametrize(("text", "expected"), GPU_LOGS.values(), ids=GPU_LOGS)
def test_unusual_gpu_log_gives_its_figures_or_the_line_that_is_wrong(tmp_path, text, expected):
    assert seen(read_nvidia_smi, tmp_path / "gpu_memory.csv", text) == expected


@pytest.mark.parametrize(("text", "expected"), CPU_LOGS.values(), ids=CPU_LOGS)
def test_unusual_cpu_log_gives_its_figures_or_the_line_that_is_wrong(tmp_path, text, expected):
    figures = seen(read_psrecord, tmp_path / "cpu_memory.txt", text)
    assert (figures if isinstance(figures, int) else figures[:2]) == expected


def test_real_log_of_psrecord(sample_logs):
    log = read_psrecord(sample_logs / "psrecord-ros.txt")
    assert (len(log.mib), extremes([log], "empty log")["peak_mib"]) == (399, 52.84)


HEADER = "timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n"
SAMPLE = "2026/11/21 05:55:4{second}.717, {gpu}, NVIDIA H200, {used}, 143771, {busy}\n"


def row(second: int, used, busy, gpu: int = 0) -> str:
    return SAMPLE.format(second=second, used=used, busy=busy, gpu=gpu)


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> MemoryLog:
        (tmp_path / "gpu_memory.csv").write_bytes(text.encode())
        return read_nvidia_smi(tmp_path / "gpu_memory.csv")

    return read


def test_B4_memory_is_averaged_over_zeros_too(read):
    log = read(HEADER + row(1, 0, 0) + row(2, 500, 80) + row(3, 500, 100) + row(4, 0, 0))
    assert tuple(extremes([log], "empty log").values()) == (500, 250, 0)


def test_peak_is_of_one_gpu_and_mean_over_all(read):
    log = read(HEADER + row(1, 100, 0, gpu=0) + row(3, 300, 0, gpu=1))
    assert tuple(extremes([log], "empty log").values()) == (300, 200, 100)
    assert (log.gpu, log.time_s) == ([0, 1], [0, 2])  # seconds since the start


def test_nodes_are_merged_sample_by_sample(make_run):
    logs = {"gpu_memory-a.csv": HEADER + row(1, 10, 5), "gpu_memory-b.csv": HEADER + row(1, 20, 15) + row(2, 30, 25)}
    run = read_run(make_run("20261121-094500-j1", **logs, **{"gpu_memory.csv": None}))
    assert (measure(run, "peak_gpu_mib"), measure(run, "mean_gpu_mib")) == (30, 20)


def test_real_log(sample_logs):
    log = read_nvidia_smi(sample_logs / "nvidia-smi-h200-own.csv")
    figures = extremes([log], "empty log")
    assert (len(log.mib), figures["peak_mib"], figures["mean_mib"]) == (320, 55775, pytest.approx(5087.2875))
