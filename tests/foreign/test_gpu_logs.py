"""nvidia-smi's output as people have it: what it could not report costs those cells, another command's is refused."""

from pathlib import Path

import pytest

from tools.errors import LogError
from tools.logs.memory_logs import extremes, read_nvidia_smi

LOGS = Path(__file__).parent / "gpu"
HEADER = "timestamp, index, memory.used [MiB], power.draw [W]"
ROW = "2026/11/20 10:00:0{}.000, 0, {}, 60 W"
READ = {
    "g01-gpu-is-lost": [1000, 2000, 3000],
    "g04-device-handle-last": [1000, 2000, 3000],
    "g11-err": [1000, 2000],
    "g15-mig-utilization": [512, 4096],
}
REFUSED = {
    "g05-no-devices": "'No devices were found', expected a header with timestamp",
    "g06-dmon": "'# gpu .*', expected a header with timestamp",
    "g07-pmon": "'# gpu .*', expected a header with timestamp",
    "g08-compute-apps": "'pid, process_name, .*', expected a header with timestamp",
    "g09-per-line-date-iso-ns": "expected a header with timestamp, index",
    "g10-ts-with-dash": "expected a header with timestamp, index",
    "g14-uuid-no-index": "expected a header with timestamp, index",
    "g12-powershell-utf16": "'UTF-16', expected UTF-8",
}


def test_every_log_has_a_case() -> None:
    assert {path.stem for path in LOGS.iterdir()} == {*READ, *REFUSED}


@pytest.mark.parametrize("name", READ)
def test_what_is_not_reported_costs_its_cell_alone(name: str) -> None:
    log = read_nvidia_smi(LOGS / f"{name}.csv")
    assert [mib for mib in log.mib if mib == mib] == READ[name]
    assert extremes([log.mib], "empty log")["peak_mib"] == max(READ[name])


@pytest.mark.parametrize("name", REFUSED)
def test_output_of_another_form_is_refused_with_line_and_what_is_right(name: str) -> None:
    with pytest.raises(LogError, match=rf"{name}\.csv:\d: found .*{REFUSED[name]}"):
        read_nvidia_smi(LOGS / f"{name}.csv")


@pytest.mark.parametrize(
    "line",
    [
        "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system",
        "No devices were found",
        "Failed to initialize NVML: Driver/library version mismatch, reload, please",
        ROW.format(2, "[Insufficient Permissions]"),
        ROW.format(2, "Insufficient Permissions"),
        ROW.format(2, "[GPU is lost]").replace("60 W", "[GPU is lost]"),
        ROW.format(2, "[Requested functionality has been deprecated]").replace("60 W", "[No Permission]"),
    ],
)
def test_one_line_between_rows_does_not_cost_the_log(tmp_path: Path, line: str) -> None:
    (tmp_path / "gpu.csv").write_text("\n".join([HEADER, ROW.format(1, "10 MiB"), line, ROW.format(3, "30 MiB"), ""]))
    log = read_nvidia_smi(tmp_path / "gpu.csv")
    assert [mib for mib in log.mib if mib == mib] == [10, 30]
    assert (log.time_s[0], log.time_s[-1]) == (0, 2)
