"""The doctor's checks of a site, with each fault planted."""

import time
from pathlib import Path

import pytest

from tools.doctor import site
from tools.doctor.finding import Finding

LISTED = "cpu*|up|infinite|4|(null)\ngpu|up|1-00:00:00|2|gpu:h200:8\nold|down|1:00:00|1|gpu:v100:4\n"


def program(folder: Path, name: str, script: str) -> dict[str, str]:
    """An environment in which this program is the only one."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


@pytest.mark.parametrize(
    ("partition", "status"),
    [({}, "warning"), ({"SBATCH_PARTITION": "gpu"}, "ok"), ({"SBATCH_PARTITION": "old"}, "error")],
)
def test_partition_of_the_jobs_is_there_up_and_has_gpus(partition: dict[str, str], status: str) -> None:
    found = site.partitions(LISTED, partition)
    assert found.status == status and "gpu (up, limit 1-00:00:00, nodes: 2, gpu:h200:8)" in found.text
    unknown = site.partitions(LISTED, {"SBATCH_PARTITION": "gpus"})
    assert unknown.status == "error" and "SBATCH_PARTITION=gpus is not one of them" in unknown.text


def test_machine_without_slurm_and_slurm_that_does_not_answer(tmp_path: Path) -> None:
    (without,) = site.slurm({"PATH": str(tmp_path)})
    assert without.status == "warning"
    program(tmp_path, "sinfo", "echo 'sinfo: error: no controller' >&2; exit 1")
    (silent,) = site.slurm(program(tmp_path, "sbatch", "exit 1"))
    assert (silent.status, silent.text, silent.fix) == ("error", "sinfo: error: no controller", "scontrol ping")


def test_no_room_for_runs_is_an_error(tmp_path: Path) -> None:
    assert site.space(tmp_path / "not/yet/there", 0).status == "ok"
    assert site.space(tmp_path, 1e9).status == "error"


def test_who_is_over_quota_is_told(tmp_path: Path) -> None:
    assert site.quota({"PATH": str(tmp_path)}).status == "ok"
    found = site.quota(program(tmp_path, "quota", "echo '/home 210G* 200G 220G 6days'; exit 1"))
    assert (found.status, found.text) == ("error", "/home 210G* 200G 220G 6days")


def test_clock_that_is_not_the_file_systems_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {"PATH": str(tmp_path)}
    assert site.clock(tmp_path, nothing).status == "ok"
    unkept = site.clock(tmp_path, program(tmp_path, "timedatectl", "echo no"))
    assert (unkept.status, unkept.fix) == ("warning", "timedatectl set-ntp true")
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 3600)
    late = site.clock(tmp_path, nothing)
    assert late.status == "warning" and "-3600 s" in late.text
    assert [path.name for path in tmp_path.iterdir()] == ["timedatectl"]


@pytest.mark.parametrize(
    ("variable", "value", "status"),
    [
        ("NCCL_SOCKET_IFNAME", "ib", "ok"),
        ("NCCL_SOCKET_IFNAME", "=ib", "error"),
        ("NCCL_SOCKET_IFNAME", "^lo,docker", "ok"),
        ("NCCL_SOCKET_IFNAME", "^ib,eth", "error"),
        ("NCCL_SOCKET_IFNAME", "ens1", "error"),
        ("GLOO_SOCKET_IFNAME", "ib", "error"),
        ("GLOO_SOCKET_IFNAME", "ib0", "ok"),
    ],
)
def test_network_interface_is_read_as_nccl_and_gloo_read_it(variable: str, value: str, status: str) -> None:
    assert site.network({variable: value}, ["lo", "eth0", "ib0"]).status == status


def test_what_a_program_said_cannot_steer_the_terminal() -> None:
    line = str(Finding("slurm", "error", "\x1b[2J\nall is well", "scontrol ping"))
    assert "\x1b" not in line and "\n" not in line
