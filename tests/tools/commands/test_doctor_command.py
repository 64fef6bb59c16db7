"""The doctor finds what is wrong with an environment before forty people do, and says which command mends it."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.launching import program, run
from tools.commands import doctor
from tools.commands.doctor import Site

GPU_NODE = {"version": "2.13.0", "cuda": "13.0", "gpus": ["NVIDIA H200"] * 2, "nccl": "2.28.9", "warning": ""}
NO_GPUS, OLD = {"gpus": []}, {"gpus": [], "warning": "The driver is too old"}
DRIVER = {"nvidia-smi": r"printf 'NVIDIA H200, 580.65.06\nNVIDIA H200, 580.65.06\n'"}
LISTED = r"cpu*|up|1:00|4|(null)\ngpu|up|1:00|2|gpu:h200:8\nold|down|1:00|1|gpu:v100:4\n"
CLUSTER = {"sbatch": "exit 1", "sinfo": f"printf '{LISTED}'"}


def test_machine_full_of_faults_has_a_line_and_a_fix_for_each(tmp_path: Path) -> None:
    """The command itself: no compiler, nothing compiled, an empty cache, no SLURM, no room, no such interface."""
    logs = tmp_path / "logs"
    faults = {"CXX": "/nowhere/c++", "TORCH_EXTENSIONS_DIR": str(tmp_path / "none")}
    faults |= {"HF_HOME": str(tmp_path / "hub"), "NCCL_SOCKET_IFNAME": "nosuch0"}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
    bash = tmp_path / "bin"
    bash.mkdir()
    for path in ("/bin/bash", "/usr/bin/env"):
        (bash / Path(path).name).symlink_to(path)
    words = (sys.executable, "-m", "tools", "doctor", "--space", "1e9", "--logs", logs)
    *lines, summary = run(*words, code=1, env=inherited | faults, PATH=str(bash)).stdout.splitlines()
    rows = (re.split(r"  +", f"{line}  ")[:4] for line in lines)
    found = {name: (status, text, fix) for status, name, text, fix in rows}
    errors = {name for name, (status, *_) in found.items() if status == "error"}
    assert errors >= {"operators", "cache", "space", "network"}
    assert found["operators"][2] == "fix: module load gcc cuda; or: apt-get install g++"
    assert found["slurm"][0] == "warning" and "errors" in summary
    assert "model bigscience/bloom-560m, dataset rajpurkar/squad" in found["cache"][1]
    assert found["torch"][0] == "ok" and all(fix for status, _, fix in found.values() if status != "ok")


@pytest.mark.parametrize(
    ("check", "programs", "shell", "facts", "status", "told"),
    [
        ("torch", DRIVER, {}, {}, "ok", "2 x NVIDIA H200, 580.65.06"),
        ("torch", DRIVER, {}, {"cuda": None}, "error", "expected a build with CUDA and NCCL"),
        ("torch", DRIVER, {}, {"nccl": None}, "error", "expected a build with CUDA and NCCL"),
        ("gpus", DRIVER, {}, {}, "ok", "2 x NVIDIA H200"),
        ("gpus", DRIVER, {}, OLD, "error", "sees none: The driver is too old"),
        ("gpus", DRIVER, {}, NO_GPUS, "error", "CUDA_VISIBLE_DEVICES hides them"),
        ("gpus", {}, {"SLURM_JOB_ID": "7"}, NO_GPUS, "error", "none in this job"),
        ("gpus", {}, {}, NO_GPUS, "warning", "on a login node that is as it should be"),
        ("slurm", {}, {}, {}, "warning", "no sbatch on PATH"),
        ("slurm", CLUSTER, {"SBATCH_PARTITION": "gpu"}, {}, "ok", "gpu (up, limit 1:00, nodes: 2, gpu:h200:8)"),
        ("slurm", CLUSTER, {"SBATCH_PARTITION": "old"}, {}, "error", "up for SBATCH_PARTITION=old: cpu* (up, "),
        ("slurm", CLUSTER, {"SBATCH_PARTITION": "gpus"}, {}, "error", "up for SBATCH_PARTITION=gpus: cpu* (up, "),
        ("slurm", CLUSTER | {"sinfo": "echo 'no controller' >&2; exit 1"}, {}, {}, "error", "no controller"),
        ("network", {}, {"NCCL_SOCKET_IFNAME": "ib"}, {}, "ok", "NCCL_SOCKET_IFNAME=ib"),  # a beginning
        ("network", {}, {"NCCL_SOCKET_IFNAME": "^lo,docker"}, {}, "ok", "of lo eth0 ib0"),
        ("network", {}, {"NCCL_SOCKET_IFNAME": "ens1"}, {}, "error", "NCCL_SOCKET_IFNAME=ens1: no such interface"),
        ("network", {}, {"GLOO_SOCKET_IFNAME": "ib"}, {}, "error", "GLOO_SOCKET_IFNAME=ib: no such interface"),
        ("network", {}, {"GLOO_SOCKET_IFNAME": "ib0"}, {}, "ok", "not set: NCCL chooses"),
    ],
)
def test_each_fault_of_gpus_nccl_slurm_and_network_has_its_line_and_fix(
    check: str, programs: dict, shell: dict, facts: dict, status: str, told: str, tmp_path: Path
) -> None:
    for name, script in programs.items():
        program(tmp_path / name, script)
    site = Site(shell | {"PATH": str(tmp_path)}, facts={"torch": GPU_NODE | facts})
    arguments = (site, ["lo", "eth0", "ib0"]) if check == "network" else (site,)
    found = getattr(doctor, check)(*arguments)
    assert found.status == status and told in found.text, found
    assert found.fix or status == "ok"


def test_check_without_its_facts_says_why_and_the_others_still_look() -> None:
    broken = {"problem": "ImportError: no deepspeed"}
    facts = {"torch": GPU_NODE, "operators": broken, "cache": broken}
    found = doctor.findings(Site(os.environ, facts=facts))
    assert found["operators"][1:] == ("ImportError: no deepspeed", "make install")
    assert found["gpus"].status == "ok"
