"""The doctor finds what is wrong with an environment before forty people do, and says which command mends it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.launching import REPO


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
    command = [sys.executable, "-m", "tools", "doctor", "--space", "1e9", "--logs", str(logs)]
    answer = subprocess.run(
        command, cwd=REPO, env=inherited | faults | {"PATH": str(bash)}, capture_output=True, text=True
    )
    assert answer.returncode == 1, answer.stderr
    *lines, summary = answer.stdout.splitlines()
    found = {
        name: (status, text, fix) for status, name, text, fix in (re.split(r"  +", f"{line}  ")[:4] for line in lines)
    }
    assert {name for name, (status, *_) in found.items() if status == "error"} >= {
        "operators",
        "cache",
        "space",
        "network",
    }
    assert found["operators"][2] == "fix: module load gcc cuda; or: apt-get install g++"
    assert found["slurm"][0] == "warning" and "errors" in summary
    assert "model bigscience/bloom-560m, dataset rajpurkar/squad" in found["cache"][1]
    assert found["torch"][0] == "ok" and all(fix for status, _, fix in found.values() if status != "ok")
