"""Logs are parsed together where they are ordinary; what is unusual must read as it does alone, and spoil no other."""

import dataclasses

import pytest

from tools.errors import LogError
from tools.logs import nvidia_smi, psrecord

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
    "restarted": CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000) + CPU_HEADER + CPU_ROW.format(0, 5, 3000, 4000),
    "nothing in place of a number": CPU_HEADER + CPU_ROW.format(0, 5, 1000, 2000).replace("1000.000", "    .   "),
}


def seen(parser, log) -> dict | str:
    if isinstance(log, LogError):
        return str(log)
    return {field.name: getattr(log, field.name) for field in dataclasses.fields(parser)}


@pytest.mark.parametrize(
    ("module", "kind", "texts", "suffix"),
    [
        (nvidia_smi, nvidia_smi.GpuFigures, GPU_LOGS, "csv"),
        (psrecord, psrecord.CpuFigures, CPU_LOGS, "txt"),
    ],
    ids=["nvidia-smi", "psrecord"],
)
def test_unusual_log_among_others_reads_as_it_does_alone(tmp_path, module, kind, texts, suffix):
    paths = [tmp_path / f"{name.replace(' ', '-')}.{suffix}" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_bytes(text.encode())
    together = module.figures([str(path) for path in paths])
    for path, found in zip(paths, together, strict=True):
        try:
            expected = seen(kind, module.read(path))
        except LogError as error:
            expected = str(error)
        assert seen(kind, found) == expected, path.name
    damaged = sum(isinstance(found, LogError) for found in together)
    assert 2 <= damaged <= len(texts) / 3


def test_logs_of_a_real_kind_are_read_together(tmp_path, sample_logs):
    names = ["nvidia-smi-h200-own.csv", "nvidia-smi-noheader-units.csv"]
    for name, log in zip(names, nvidia_smi.figures([str(sample_logs / name) for name in names]), strict=True):
        assert seen(nvidia_smi.GpuFigures, log) == seen(nvidia_smi.GpuFigures, nvidia_smi.read(sample_logs / name))
    (cpu,) = psrecord.figures([str(sample_logs / "psrecord-ros.txt")])
    assert cpu.peak_mib == 52.84
