"""What is unusual in a log must be neither wrong nor lost."""

import pytest

from tools.errors import LogError, UnavailableError
from tools.logs.memory_logs import extremes, read_nvidia_smi, read_psrecord

HEADER = "timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n"
ROW = "2026/11/21 05:55:41.717, 0, NVIDIA H200, {} MiB, 143771 MiB, {} %\n"
# Each with its peak, mean and least memory; or the number of the line that is no log's.
GPU_LOGS = {
    "ordinary": (HEADER + ROW.format(10, 20) + ROW.format(30, 40), [30.0, 20.0, 10.0]),
    "without units": ((HEADER + ROW.format(11, 21)).replace(" MiB", "").replace(" %", ""), [11.0, 11.0, 11.0]),
    "empty": ("", []),
    "header alone": (HEADER, []),
    "cut off header": (HEADER[:30], []),
    "cut off in a number": (HEADER + ROW.format(10, 82) + ROW.format(20, 8)[:-3], [20.0, 15.0, 10.0]),
    "cut off after a unit": (HEADER + ROW.format(10, 82) + ROW.format(20, 8)[:-1], [20.0, 15.0, 10.0]),
    "cut off in a name": (HEADER + ROW.format(10, 82) + ROW.format(20, 8)[:33], [10.0, 10.0, 10.0]),
    "restarted": (HEADER + ROW.format(10, 20) + HEADER * 2 + ROW.format(50, 60), [50.0, 30.0, 10.0]),
    "restarted in a line": (
        HEADER + ROW.format(10, 20) + "2026/11/21 05:5" + HEADER + ROW.format(50, 60),
        [50.0, 30.0, 10.0],
    ),
    "not available": (HEADER + ROW.format(10, 20).replace("20 %", "[N/A]") + ROW.format(30, 40), [30.0, 20.0, 10.0]),
    "no value": (HEADER + ROW.format(10, 20).replace(" 20 %", "") + ROW.format(30, 40), [30.0, 20.0, 10.0]),
    "carriage returns": ((HEADER + ROW.format(10, 20) + ROW.format(30, 40)).replace("\n", "\r\n"), [30.0, 20.0, 10.0]),
    "blank lines": (HEADER + "\n" + ROW.format(10, 20) + "\n\n" + ROW.format(30, 40), [30.0, 20.0, 10.0]),
    "digits after a unit": (HEADER + ROW.format("5M0", 20) + ROW.format(30, 40), 2),
    "nothing reported": (HEADER + ROW.format(10, 20).replace("10 MiB", "[N/A]"), []),
    "not reported once": (
        HEADER + ROW.format(10, 2).replace("10 MiB", "[Not Supported]") + ROW.format(9, 4),
        [9.0] * 3,
    ),
    "word": (HEADER + ROW.format(10, 20) + ROW.format("lots", 40) + ROW.format(30, 40), 3),
    "too few fields": (HEADER + ROW.format(10, 20) + "2026/11/21 05:55:42.717, 0\n" + ROW.format(30, 40), 3),
    "no header": (ROW.format(10, 20) + ROW.format(30, 40), [30.0, 20.0, 10.0]),
    "other columns": ("memory.used [MiB], timestamp\n7 MiB, 2026/11/21 05:55:41.717\n", [7.0, 7.0, 7.0]),
    "failing nvidia-smi": ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 1),
}
CPU_HEADER = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n"
CPU_ROW = "{:12.3f} {:12.3f} {:12.3f} {:12.3f}\n"
# Each with its peak and mean, or that line.
CPU_LOGS = {
    "ordinary": (
        CPU_HEADER + CPU_ROW.format(0, 5, 1000.125, 2000) + CPU_ROW.format(1, 5, 3000, 4000),
        [3000.0, 2000.0625],
    ),
    "without header": (CPU_ROW.format(0, 5, 1001, 2000), [1001.0, 1001.0]),
    "empty": ("", []),
    "header alone": (CPU_HEADER, []),
    "cut off": (
        CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + CPU_ROW.format(1, 5, 3000, 4000)[:40],
        [1000.0, 1000.0],
    ),
    "other widths": (CPU_HEADER + "0.0 5.0 1002.5 2000.0\n", [1002.5, 1002.5]),
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
    "nothing in place of a number": (CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000).replace("1000.000", "    .   "), 2),
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


def test_time_of_a_second_attempt_goes_on_after_the_first(tmp_path):
    attempt = CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + CPU_ROW.format(2, 5, 1000, 2000)
    (tmp_path / "cpu_memory.txt").write_text(attempt * 2)
    assert read_psrecord(tmp_path / "cpu_memory.txt").time_s == [0, 2, 2, 4]


def test_real_log_of_psrecord(sample_logs):
    log = read_psrecord(sample_logs / "psrecord-ros.txt")
    assert (len(log.mib), extremes([log], "empty log")["peak_mib"]) == (399, 52.84)
