"""The doctor finds what is wrong with an environment before forty people do, and says which command mends it."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.launching import program, run
from tests.simulated_here import simulated_here
from tools.commands import doctor
from tools.plan.gpus import GPUS
from tools.plan.submitted_lines import predictions_of
from tools.plan.workload import SOCKETS_GB_PER_S
from tools.submit.slurm import asked_minutes, minutes
from tools.submit.submissions import exercise_files, read_list
from workshop.measure import doctor_probe

GPU_NODE = {"version": "2.13.0", "CUDA": "13.0", "NCCL": "2.28.9", "driver": "580.65.06", "warning": ""}
GPU_NODE |= {"gpus": ["NVIDIA H200"] * 2}
LOGIN_NODE = {"gpus": [], "driver": ""}
PARTITIONS = "echo 'cpu* (up, limit 1:00, nodes: 4, (null))'"


def test_machine_full_of_faults_has_a_line_and_a_fix_for_each(tmp_path: Path) -> None:
    """The command itself: no compiler, nothing compiled, an empty cache, no SLURM, no room, no such interface."""
    faults = {"LOG_DIR": str(tmp_path / "logs"), "CXX": "/nowhere/c++", "TORCH_EXTENSIONS_DIR": str(tmp_path / "none")}
    faults |= {"HF_HOME": str(tmp_path / "hub"), "NCCL_SOCKET_IFNAME": "nosuch0"}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
    bash = tmp_path / "bin"
    bash.mkdir()
    for path in ("/bin/bash", "/usr/bin/env"):
        (bash / Path(path).name).symlink_to(path)
    words = (sys.executable, "-m", "tools", "doctor", "--space", "1e9")
    *lines, summary = run(*words, code=1, env=inherited | faults, PATH=str(bash)).stdout.splitlines()
    rows = (re.split(r"  +", f"{line}  ")[:4] for line in lines)
    found = {name: (status, text, fix) for status, name, text, fix in rows}
    errors = {name for name, (status, *_) in found.items() if status == "error"}
    assert errors >= {"operators", "cache", "space", "network"}
    assert found["operators"][2] == "fix: module load gcc cuda; or: apt-get install g++"
    assert found["slurm"][0] == "warning" and "errors" in summary
    assert "model bigscience/bloom-560m, dataset rajpurkar/squad" in found["cache"][1]
    assert found["torch"][0] in ("ok", "warning") and all(fix for status, _, fix in found.values() if status != "ok")


@pytest.mark.parametrize(
    ("facts", "job", "status", "told"),
    [
        ({}, None, "ok", "driver: 580.65.06, GPUs: 2 x NVIDIA H200"),
        ({"CUDA": None, "gpus": []}, None, "error", "expected a build with CUDA and NCCL"),
        ({"NCCL": None}, None, "error", "expected a build with CUDA and NCCL"),
        ({"gpus": [], "warning": "The driver is too old"}, None, "error", "GPUs: none: The driver is too old"),
        ({"gpus": []}, None, "error", "CUDA_VISIBLE_DEVICES hides them"),
        (LOGIN_NODE, "7", "error", "expected one in a job"),
        (LOGIN_NODE, None, "warning", "on a login node that is as it should be"),
    ],
)
def test_each_fault_of_gpus_has_its_line_and_fix(facts, job, status, told, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", job) if job else monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    found = doctor_probe.torch(GPU_NODE | facts)
    assert found[0] == status and told in found[1], found
    assert found[2] or status == "ok"


@pytest.mark.parametrize(
    ("programs", "status", "told"),
    [
        ({}, "warning", "no sbatch on PATH"),
        ({"sinfo": "echo 'no controller' >&2; exit 1"}, "error", "no controller"),
        ({"sinfo": PARTITIONS}, "ok", "cpu* (up, limit 1:00, nodes: 4, (null))"),
        ({"sinfo": PARTITIONS, "sbatch": "echo 'error: no account' >&2; exit 1"}, "error", "error: no account"),
        ({"sinfo": PARTITIONS, "sbatch": "case $2 in *multi*) exit 1; esac"}, "warning", "fsdp/multi_node.slurm"),
    ],
)
def test_each_fault_of_slurm_has_its_line_and_fix(programs: dict, status: str, told: str, tmp_path: Path) -> None:
    for name, script in ({"sbatch": "exit 0"} | programs if programs else {}).items():
        program(tmp_path / name, script)
    found = doctor.slurm({"PATH": str(tmp_path)})
    assert found.status == status and told in found.text, found
    assert found.fix or status == "ok"


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("NCCL", "l", "ok"),  # a beginning
        ("NCCL", "^docker", "ok"),
        ("NCCL", "nosuch0", "error"),
        ("GLOO", "l", "error"),
        ("GLOO", "lo", "ok"),
    ],
)
def test_interface_that_this_machine_lacks_is_an_error(name: str, value: str, status: str) -> None:
    assert doctor.network({f"{name}_SOCKET_IFNAME": value}).status == status


def test_package_that_cannot_be_imported_costs_only_its_own_check(tmp_path: Path) -> None:
    (tmp_path / "deepspeed.py").write_text("raise ImportError('no deepspeed')\n")
    found = doctor.with_torch(os.environ | {"PYTHONPATH": str(tmp_path)}, ["baseline"])
    assert found["operators"] == ("error", "ImportError: no deepspeed", "make install")
    assert found["torch"].text.startswith("2.")


@pytest.mark.parametrize(
    ("written", "found"),
    [("30", 30), ("1:30", 1.5), ("12:00:00", 720), ("2-3", 3060), ("1-2:30", 1590), ("infinite", float("inf"))],
)
def test_durations_are_read_as_slurm_reads_them(written: str, found: float) -> None:
    assert minutes(written) == found


def test_every_line_asks_for_the_time_that_it_may_need_on_an_h200() -> None:
    """A job that asks for less is ended; a job that asks for more than a partition gives never starts."""
    lines = [line for file in exercise_files([]) for line in read_list(file, {})]
    with simulated_here():
        predictions = predictions_of(lines, GPUS["h200"], SOCKETS_GB_PER_S)
    for line, found in zip(lines, predictions, strict=True):
        if found:
            assert found.limit_min <= asked_minutes(line, {})[1], line.place
