"""What is unusual in a log must be neither wrong nor lost."""

import pytest

from tools.errors import LogError
from tools.logs import memory_log, nvidia_smi

HEADER = "timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n"
ROW = "2026/11/21 05:55:41.717, 0, NVIDIA H200, {} MiB, 143771 MiB, {} %\n"
GPU_LOGS = {
    "ordinary": HEADER + ROW.format(10, 20) + ROW.format(30, 40),
    "without units": (HEADER + ROW.format(11, 21)).replace(" MiB", "").replace(" %", ""),
    "empty": "",
    "header alone": HEADER,
    "cut off header": HEADER[:30],
    "cut off in a number": HEADER + ROW.format(10, 82) + ROW.format(20, 8)[:-3],
    "cut off after a unit": HEADER + ROW.format(10, 82) + ROW.format(20, 8)[:-1],
    "cut off in a name": HEADER + ROW.format(10, 82) + ROW.format(20, 8)[:33],
    "restarted": HEADER + ROW.format(10, 20) + HEADER + ROW.format(50, 60),
    "restarted twice at once": HEADER + ROW.format(10, 20) + HEADER + HEADER + ROW.format(50, 60),
    "restarted in a line": HEADER + ROW.format(10, 20) + "2026/11/21 05:5" + HEADER + ROW.format(50, 60),
    "not available": HEADER + ROW.format(10, 20).replace("20 %", "[N/A]") + ROW.format(30, 40),
    "reset required": HEADER + ROW.format(10, 20).replace("20 %", "[GPU requires reset]") + ROW.format(30, 40),
    "no value": HEADER + ROW.format(10, 20).replace(" 20 %", "") + ROW.format(30, 40),
    "carriage returns": (HEADER + ROW.format(10, 20) + ROW.format(30, 40)).replace("\n", "\r\n"),
    "a carriage return and a blank line": HEADER
    + ROW.format(10, 20).replace("H200", "H\r200")
    + "\n"
    + ROW.format(1, 2),
    "blank lines": HEADER + "\n" + ROW.format(10, 20) + "\n\n" + ROW.format(30, 40),
    "digits after a unit": HEADER + ROW.format("5M0", 20) + ROW.format(30, 40),
    "nothing reported": HEADER + ROW.format(10, 20).replace("10 MiB", "[N/A]"),
    "word": HEADER + ROW.format(10, 20) + ROW.format("lots", 40) + ROW.format(30, 40),
    "too few fields": HEADER + ROW.format(10, 20) + "2026/11/21 05:55:42.717, 0\n" + ROW.format(30, 40),
    "no header": ROW.format(10, 20) + ROW.format(30, 40),
    "other columns": "memory.used [MiB], timestamp\n7 MiB, 2026/11/21 05:55:41.717\n",
    "failing nvidia-smi": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
}
CPU_HEADER = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n"
CPU_ROW = "{:12.3f} {:12.3f} {:12.3f} {:12.3f}\n"
CPU_LOGS = {
    "ordinary": CPU_HEADER + CPU_ROW.format(0, 5, 1000.125, 2000) + CPU_ROW.format(1, 5, 3000, 4000),
    "without header": CPU_ROW.format(0, 5, 1001, 2000),
    "empty": "",
    "header alone": CPU_HEADER,
    "cut off": CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + CPU_ROW.format(1, 5, 3000, 4000)[:40],
    "other widths": CPU_HEADER + "0.0 5.0 1002.5 2000.0\n",
    "message": CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + "psrecord: gone\n" + CPU_ROW.format(1, 5, 3000, 4000),
    "message as long as a line": CPU_HEADER + "psrecord: process has gone and nobody knows where to" + "\n",
    "message at the end": CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + "slurmstepd: error: *** STEP 2.0 ***\n",
    "NULs at the end": CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + "\0" * 4096,
    "no size": CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000).replace("1000.000", "     inf") * 2,
    "byte order marks": "\ufeff" + CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + "\ufeff\n",
    "restarted": CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + CPU_HEADER + CPU_ROW.format(0, 5, 3000, 4000),
    "nothing in place of a number": CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000).replace("1000.000", "    .   "),
}


# Peak, mean, least memory and mean load; or the number of the line that is no log's.
GPU_FIGURES = {
    "ordinary": [30.0, 20.0, 10.0],
    "without units": [11.0, 11.0, 11.0],
    "empty": [None, None, None],
    "header alone": [None, None, None],
    "cut off header": [None, None, None],
    "cut off in a number": [20.0, 15.0, 10.0],
    "cut off after a unit": [20.0, 15.0, 10.0],
    "cut off in a name": [10.0, 10.0, 10.0],
    "restarted": [50.0, 30.0, 10.0],
    "restarted twice at once": [50.0, 30.0, 10.0],
    "restarted in a line": [50.0, 30.0, 10.0],
    "not available": [30.0, 20.0, 10.0],
    "reset required": [30.0, 20.0, 10.0],
    "no value": [30.0, 20.0, 10.0],
    "carriage returns": [30.0, 20.0, 10.0],
    "a carriage return and a blank line": 2,  # the line of the error
    "blank lines": [30.0, 20.0, 10.0],
    "digits after a unit": 2,  # the line of the error
    "nothing reported": [None, None, None],
    "word": 3,  # the line of the error
    "too few fields": 3,  # the line of the error
    "no header": [30.0, 20.0, 10.0],
    "other columns": [7.0, 7.0, 7.0],
    "failing nvidia-smi": 1,  # the line of the error
}
# Peak and mean.
CPU_FIGURES = {
    "ordinary": [3000.0, 2000.0625],
    "without header": [1001.0, 1001.0],
    "empty": [None, None],
    "header alone": [None, None],
    "cut off": [1000.0, 1000.0],
    "other widths": [1002.5, 1002.5],
    "message": 3,  # the line of the error
    "message as long as a line": 2,  # the line of the error
    "message at the end": [1000.0, 1000.0],
    "NULs at the end": [1000.0, 1000.0],
    "no size": 2,  # the line of the error
    "byte order marks": [1000.0, 1000.0],
    "restarted": [3000.0, 2000.0],
    "nothing in place of a number": 2,  # the line of the error
}


def seen(read, path, names) -> list | int:
    try:
        log = read(path)
    except LogError as error:
        assert error.path == path
        return error.line
    return [log.figures().get(name) for name in names]


@pytest.mark.parametrize("name", GPU_LOGS)
def test_unusual_gpu_log_gives_its_figures_or_the_line_that_is_wrong(tmp_path, name):
    path = tmp_path / "gpu_memory.csv"
    path.write_bytes(GPU_LOGS[name].encode())
    names = ("peak_mib", "mean_mib", "min_mib")
    assert seen(nvidia_smi.read, path, names) == GPU_FIGURES[name]


@pytest.mark.parametrize("name", CPU_LOGS)
def test_unusual_cpu_log_gives_its_figures_or_the_line_that_is_wrong(tmp_path, name):
    path = tmp_path / "cpu_memory.txt"
    path.write_bytes(CPU_LOGS[name].encode())
    assert seen(memory_log.read_psrecord, path, ("peak_mib", "mean_mib")) == CPU_FIGURES[name]
