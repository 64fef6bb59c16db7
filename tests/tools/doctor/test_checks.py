"""The doctor finds what is wrong with an environment before forty people do, and says which command mends it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launching import REPO, program
from tools.doctor import checks
from tools.doctor.checks import Place

GPU_NODE = {"version": "2.13.0", "cuda": "13.0", "gpus": ["NVIDIA H200"] * 2, "nccl": "2.28.9", "warning": ""}
LISTED = "cpu*|up|infinite|4|(null)\ngpu|up|1-00:00:00|2|gpu:h200:8\nold|down|1:00:00|1|gpu:v100:4\n"
DRIVER = "NVIDIA H200, 580.65.06\n" * 2  # as nvidia-smi prints it


def only(folder: Path, name: str, script: str) -> dict[str, str]:
    """An environment in which this program is the only one."""
    program(folder / name, script)
    return {"PATH": str(folder)}


def test_another_pin_and_an_environment_that_jobs_do_not_take_are_named(tmp_path: Path) -> None:
    assert checks.packages(Place({})).status == "ok"
    pins = tmp_path / "requirements.txt"
    pins.write_text("# pinned\nnumpy==0.0.1\nno-such-package==1.0\n")
    found = checks.packages(Place({}), pins)
    assert found.status == "error" and found.fix == f"{sys.executable} -m pip install -r {pins}"
    assert "(expected 0.0.1), no-such-package missing (expected 1.0)" in found.text
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    other = checks.python(Place({"WORKSHOP_VENV": str(tmp_path)}))
    assert other.status == "warning" and other.fix == f"source {tmp_path}/bin/activate"


@pytest.mark.parametrize(
    ("changed", "driver", "in_job", "torch", "gpus"),
    [
        ({}, DRIVER, True, "ok", "ok"),
        ({"cuda": None, "gpus": [], "nccl": None}, DRIVER, False, "error", "error"),
        ({"gpus": [], "warning": "The NVIDIA driver on your system is too old"}, DRIVER, False, "ok", "error"),
        ({"gpus": []}, "", True, "ok", "error"),
        ({"gpus": []}, "", False, "ok", "warning"),
        ({"nccl": None}, DRIVER, True, "error", "ok"),
    ],
)
def test_each_fault_of_pytorch_on_gpus_has_its_line_and_fix(
    changed: dict[str, Any], driver: str, in_job: bool, torch: str, gpus: str, tmp_path: Path
) -> None:
    there = only(tmp_path, "nvidia-smi", f"printf '{driver}'") if driver else {"PATH": str(tmp_path)}
    place = Place(there | ({"SLURM_JOB_ID": "7"} if in_job else {}), facts={"torch": GPU_NODE | changed})
    found = [check(place) for check in (checks.torch, checks.gpus)]
    assert driver == "" or "2 x NVIDIA H200, 580.65.06" in found[0].text
    assert [one.status for one in found] == [torch, gpus]
    assert all(one.fix for one in found if one.status != "ok")


def test_machine_full_of_faults_has_a_line_and_a_fix_for_each(tmp_path: Path) -> None:
    """The command itself: no compiler, nothing compiled, an empty cache, no SLURM, no room, no such interface."""
    logs = tmp_path / "logs"
    faults = {"CXX": "/nowhere/c++", "TORCH_EXTENSIONS_DIR": str(tmp_path / "none")}
    faults |= {"HF_HOME": str(tmp_path / "hub"), "NCCL_SOCKET_IFNAME": "nosuch0"}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
    bash = tmp_path / "bin"
    bash.mkdir()
    (bash / "bash").symlink_to("/bin/bash")
    (bash / "env").symlink_to("/usr/bin/env")
    command = [sys.executable, "-m", "tools", "doctor", "--json", "--space", "1e9", "--logs", str(logs)]
    answer = subprocess.run(
        command, cwd=REPO, env=inherited | faults | {"PATH": str(bash)}, capture_output=True, text=True
    )
    assert answer.returncode == 1, answer.stderr
    found = {one["name"]: one for one in json.loads(answer.stdout)["findings"]}
    errors = {name for name, one in found.items() if one["status"] == "error"}
    assert errors >= {"operators", "cache", "space", "network"}
    assert found["operators"]["fix"] == "module load gcc cuda; or: apt-get install g++"
    assert found["slurm"]["status"] == "warning"
    assert "model bigscience/bloom-560m, dataset rajpurkar/squad" in found["cache"]["text"]
    assert found["torch"]["status"] == "ok" and all(one["fix"] for one in found.values() if one["status"] != "ok")


def test_check_without_its_facts_says_why_and_the_others_still_look() -> None:
    broken = {"problem": "ImportError: no deepspeed"}
    facts = {"operators": broken, "cache": broken, "torch": GPU_NODE}
    found = {one.name: one for one in checks.findings(Place(os.environ, facts=facts))}
    assert (found["operators"].text, found["operators"].fix) == ("ImportError: no deepspeed", "make install")
    assert found["gpus"].status == "ok"


def test_partition_of_the_jobs_is_there_up_and_has_gpus(tmp_path: Path) -> None:
    assert checks.slurm(Place({"PATH": str(tmp_path)})).status == "warning"
    only(tmp_path, "sbatch", "exit 1")
    there = only(tmp_path, "sinfo", f"printf '{LISTED}'")
    for partition, status in (("", "warning"), ("gpu", "ok"), ("old", "error")):
        found = checks.slurm(Place(there | {"SBATCH_PARTITION": partition}))
        assert found.status == status and "gpu (up, limit 1-00:00:00, nodes: 2, gpu:h200:8)" in found.text
    unknown = checks.slurm(Place(there | {"SBATCH_PARTITION": "gpus"}))
    assert unknown.status == "error" and "SBATCH_PARTITION=gpus is not one of them" in unknown.text
    place = Place(only(tmp_path, "sinfo", "echo 'sinfo: error: no controller' >&2; exit 1"))
    silent = checks.slurm(place)
    assert checks.launchers(place) is None
    assert (silent.status, silent.text, silent.fix) == ("error", "sinfo: error: no controller", "scontrol ping")


@pytest.mark.parametrize(
    ("variable", "value", "status"),
    [
        ("NCCL_SOCKET_IFNAME", "ib", "ok"),
        ("NCCL_SOCKET_IFNAME", "^lo,docker", "ok"),
        ("NCCL_SOCKET_IFNAME", "ens1", "error"),
        ("GLOO_SOCKET_IFNAME", "ib", "error"),
        ("GLOO_SOCKET_IFNAME", "ib0", "ok"),
    ],
)
def test_network_interface_is_read_as_nccl_and_gloo_read_it(variable: str, value: str, status: str) -> None:
    assert checks.network(Place({variable: value}), ["lo", "eth0", "ib0"]).status == status
