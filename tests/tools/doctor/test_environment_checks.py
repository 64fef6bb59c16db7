"""The doctor finds what is wrong with an environment before forty people do, and says which command mends it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launching import REPO
from tools.doctor import environment

GPU_NODE = {"version": "2.13.0", "cuda": "13.0", "gpus": ["NVIDIA H200"] * 2, "nccl": "2.28.9", "warning": ""}
DRIVER = "2 x NVIDIA H200, 580.65.06"


def test_this_environment_is_as_pinned_and_another_pin_is_named(tmp_path: Path) -> None:
    assert environment.packages().status == "ok"
    pins = tmp_path / "requirements.txt"
    pins.write_text("# pinned\nnumpy==0.0.1\nno-such-package==1.0\n")
    found = environment.packages(pins)
    assert found.status == "error" and found.fix == f"{sys.executable} -m pip install -r {pins}"
    assert "(expected 0.0.1), no-such-package missing (expected 1.0)" in found.text


def test_environment_that_jobs_do_not_take_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    found = environment.python({"WORKSHOP_VENV": str(tmp_path)})
    assert found.status == "warning" and found.fix == f"source {tmp_path}/bin/activate"


@pytest.mark.parametrize(
    ("changed", "driver", "in_job", "wrong"),
    [
        ({}, DRIVER, True, {}),
        ({"cuda": None, "gpus": [], "nccl": None}, DRIVER, False, {"torch": "error"}),
        ({"gpus": [], "warning": "The NVIDIA driver on your system is too old"}, DRIVER, False, {"gpus": "error"}),
        ({"gpus": []}, "", True, {"gpus": "error"}),
        ({"gpus": []}, "", False, {"gpus": "warning"}),
        ({"nccl": None}, DRIVER, True, {"nccl": "error"}),
    ],
)
def test_each_fault_of_pytorch_on_gpus_has_its_line_and_fix(
    changed: dict[str, Any], driver: str, in_job: bool, wrong: dict[str, str]
) -> None:
    found = environment.torch(GPU_NODE | changed, driver, in_job)
    assert {one.name: one.status for one in found if one.status != "ok"} == wrong
    assert all(one.fix for one in found if one.status != "ok")


def test_wandb_is_a_warning_only_for_who_asked_for_it() -> None:
    facts = {"hindrance": "https://wandb.example does not answer"}
    online = {"REPORT_TO": "wandb", "WANDB_MODE": "online"}
    assert environment.wandb(facts, {}).status == "ok"
    found = environment.wandb(facts, online)
    assert (found.status, found.text) == ("warning", "https://wandb.example does not answer; runs stay offline")
    assert environment.wandb({"hindrance": ""}, online).status == "ok"


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
    assert errors >= {"compiler", "cache", "space", "network"}
    assert (found["operators"]["status"], found["slurm"]["status"]) == ("warning", "warning")
    assert found["operators"]["fix"] == "python -m workshop.operators"
    assert "model bigscience/bloom-560m, dataset rajpurkar/squad" in found["cache"]["text"]
    assert found["torch"]["status"] == "ok" and all(one["fix"] for one in found.values() if one["status"] != "ok")
