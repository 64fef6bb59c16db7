"""The doctor finds what is wrong with an environment before forty people do, and says which command mends it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.launching import REPO, program


def only(folder: Path, name: str, script: str) -> dict[str, str]:
    """An environment in which this program is the only one."""
    program(folder / name, script)
    return {"PATH": str(folder)}


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
