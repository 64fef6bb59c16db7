"""What is unusual in a log of memory must be neither wrong nor lost; tests/foreign/gpu: as people have them."""

from pathlib import Path

import pytest

from tools.errors import LogError, UnavailableError
from tools.logs.figures import measure
from tools.logs.memory_logs import extremes, read_nvidia_smi, read_psrecord
from tools.logs.runs import read_run

HEADER = "timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n"
ROW = "2026/11/21 05:55:41.717, 0, NVIDIA H200, {} MiB, 143771 MiB, {} %\n"
# Each with its peak, mean and least memory; or the number of the line that is no log's.
GPU_LOGS = {
    "empty": ("", []),
    "cut off in a number": (HEADER + ROW.format(10, 82) + ROW.format(20, 8)[:-3], [20.0, 15.0, 10.0]),
    "cut off in a name": (HEADER + ROW.format(10, 82) + ROW.format(20, 8)[:33], [10.0, 10.0, 10.0]),
    "B4: zeros count": (HEADER + "".join(ROW.format(mib, 0) for mib in (0, 500, 500, 0)), [500.0, 250.0, 0.0]),
    "byte order mark": ("\ufeff" + HEADER + ROW.format(10, 20), [10.0, 10.0, 10.0]),
    "two GPUs": (HEADER + ROW.format(100, 0) + ROW.format(300, 0).replace(", 0,", ", 1,", 1), [300.0, 200.0, 100.0]),
    "restarted": (HEADER + ROW.format(10, 20) + HEADER * 2 + ROW.format(50, 60), [50.0, 30.0, 10.0]),
    "restarted in a line": (HEADER + ROW.format(10, 20) + ROW[:14] + HEADER + ROW.format(50, 60), [50.0, 30.0, 10.0]),
    "message between rows": (
        HEADER + ROW.format(10, 20) + "Unable to determine the device\n" + ROW.format(30, 40),
        [30.0, 20.0, 10.0],
    ),
    "no permission": (
        HEADER + ROW.format(10, 20) + ROW.format("Insufficient Permissions", 40).replace(" MiB", "", 1),
        [10.0, 10.0, 10.0],
    ),
    "digits after a unit": (HEADER + ROW.format("5M0", 20) + ROW.format(30, 40), 2),
    "sums overflow": (HEADER + ROW.format("1e308", 20) * 2, 2),
    "word": (HEADER + ROW.format(10, 20) + ROW.format("lots", 40) + ROW.format(30, 40), 3),
    "no header": (ROW.format(10, 20) + ROW.format(30, 40), 1),
    "other columns": ("memory.used [MiB], index, timestamp\n7 MiB, 0, 2026/11/21 05:55:41.717\n", [7.0, 7.0, 7.0]),
}
ONE = [1000.0, 1000.0]
CPU_HEADER = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n"
CPU_ROW = "{:12.3f} {:12.3f} {:12.3f} {:12.3f}\n"
CPU_LOG = CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000)
# As psrecord 1.4 writes it.
IO_HEADER = CPU_HEADER.rstrip() + "  Read count  Write count   Read bytes  Write bytes \n"
IO_ROW = "{:12.3f}        0.000 {:12.3f}     2000.000            8            0            0            0\n"
# Each with its peak and mean, or that line.
CPU_LOGS = {
    "without header": (CPU_ROW.format(0, 5, 1001, 2000), [1001.0, 1001.0]),
    "empty": ("", []),
    "cut off": (CPU_LOG + CPU_ROW.format(1, 5, 3000, 4000)[:40], ONE),
    "message": (CPU_LOG + "psrecord: gone\n" + CPU_ROW.format(1, 5, 3000, 4000), 3),
    "message at the end": (CPU_LOG + "slurmstepd: error: *** STEP 2.0 ***\n", ONE),
    "NULs at the end": (CPU_LOG + "\0" * 4096, ONE),
    "no size": (CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000).replace("1000.000", "     inf") * 2, 2),
    "sums overflow": (CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000).replace("1000.000", "   1e308") * 2, 2),
    "byte order marks": (f"\ufeff{CPU_LOG}\ufeff\n", ONE),
    "--include-io": (IO_HEADER + IO_ROW.format(0, 1000) + IO_ROW.format(1, 3000), [3000.0, 2000.0]),
    "--include-io, cut off": (IO_HEADER + IO_ROW.format(0, 1000) + IO_ROW.format(1, 3000)[:60], ONE),
    "restarted": (CPU_LOG + CPU_HEADER + CPU_ROW.format(0, 5, 3000, 4000), [3000.0, 2000.0]),
}


def seen(read, path, text: str) -> list | int:
    path.write_bytes(text.encode())
    try:
        figures = extremes([read(path).mib], "empty log")
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


def test_nodes_are_merged_sample_by_sample(make_run):
    logs = {"gpu_memory-a.csv": HEADER + ROW.format(10, 5), "gpu_memory-b.csv": HEADER + ROW.format(20, 15)}
    logs["gpu_memory-b.csv"] += ROW.format(30, 25)
    logs |= {"cpu_memory-a.txt": CPU_LOG, "cpu_memory-b.txt": CPU_LOG.replace("1000.000", "3000.000")}
    run = read_run(make_run("20261121-094500-j1", **logs, **{"gpu_memory.csv": None, "cpu_memory.txt": None}))
    assert (measure(run, "peak_gpu_mib"), measure(run, "mean_gpu_mib")) == (30, 20)
    assert measure(run, "peak_cpu_mib") == 3000, "one node runs out of memory, not their sum"


PSRECORD, NVIDIA_SMI = ("psrecord-ros.txt", 399, 52.84, 48.43035), ("nvidia-smi-h200-own.csv", 320, 55775, 5087.2875)


@pytest.mark.parametrize(("read", "real"), [(read_psrecord, PSRECORD), (read_nvidia_smi, NVIDIA_SMI)])
def test_real_log(sample_logs, read, real):
    name, samples, peak, mean = real
    log = read(sample_logs / name)
    figures = extremes([log.mib], "empty log")
    assert (len(log.mib), figures["peak_mib"], figures["mean_mib"]) == (samples, peak, pytest.approx(mean))


LOGS = Path(__file__).parents[2] / "foreign/gpu"
READ = {
    "g01-gpu-is-lost": [1000, 2000, 3000],
    "g04-device-handle-last": [1000, 2000, 3000],
    "g11-err": [1000, 2000],
    "g14-uuid-no-index": [1000, 3000, 1500, 3500],
    "g15-mig-utilization": [512, 4096],
}
REFUSED = {
    "g05-no-devices": "'No devices were found', expected a header with timestamp",
    "g06-dmon": "'# gpu .*', expected a header with timestamp",
    "g08-compute-apps": "'pid, process_name, .*', expected a header with timestamp",
    "g09-per-line-date-iso-ns": "expected a header with timestamp, index",
    "g10-ts-with-dash": "expected a header with timestamp, index",
    "g12-powershell-utf16": "'UTF-16', expected UTF-8",
}


def test_every_log_has_a_case() -> None:
    assert {path.stem for path in LOGS.iterdir()} == {*READ, *REFUSED}


@pytest.mark.parametrize("name", READ)
def test_what_is_not_reported_costs_its_cell_alone(name: str) -> None:
    log = read_nvidia_smi(LOGS / f"{name}.csv")
    assert [mib for mib in log.mib if mib == mib] == READ[name]
    assert extremes([log.mib], "empty log")["peak_mib"] == max(READ[name])
    assert len(set(log.gpu)) == 1 + ("uuid" in name), "a curve for each GPU"


@pytest.mark.parametrize("name", REFUSED)
def test_output_of_another_form_is_refused_with_line_and_what_is_right(name: str) -> None:
    with pytest.raises(LogError, match=rf"{name}\.csv:\d: found .*{REFUSED[name]}"):
        read_nvidia_smi(LOGS / f"{name}.csv")
