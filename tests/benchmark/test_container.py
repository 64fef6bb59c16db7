"""The container recipes as far as they can be tried without an engine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.launching import REPO

DOCKERFILE = (REPO / "benchmark/Dockerfile").read_text()
DEFINITION = (REPO / "benchmark/shardlab.def").read_text()


def instructions() -> list[tuple[str, str]]:
    """(COPY, "a b"), ... with continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line]


def test_launcher_in_a_container_uses_its_python_and_not_the_hosts_venv(tmp_path: Path) -> None:
    """The repository is mounted, and with it the host's .venv, whose python the container does not have."""
    variables = "PATH=/opt/venv/bin:$PATH WORKSHOP_VENV=/opt/venv"
    assert ("ENV", variables) in instructions()
    assert f"export {variables}\n" in DEFINITION
    python = tmp_path / "opt/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "repo/.venv/bin").mkdir(parents=True)
    (tmp_path / "repo/.venv/bin/python").symlink_to(sys.executable)
    for folder in ("benchmark", "workshop"):
        (tmp_path / "repo" / folder).mkdir()
    shutil.copy(REPO / "workshop/launch.sh", tmp_path / "repo/workshop")
    script = "source ../workshop/launch.sh; activate_python; command -v python"
    for environment, expected in (
        ({"WORKSHOP_VENV": f"{tmp_path}/opt/venv"}, python),
        ({}, tmp_path / "repo/.venv/bin/python"),
    ):
        environment |= {"PATH": os.environ["PATH"]}
        bash = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path / "repo/benchmark", env=environment, capture_output=True, text=True
        )
        assert bash.stdout.strip() == str(expected), bash.stderr
