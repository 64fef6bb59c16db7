"""The container recipes as far as they can be tried without an engine: both install the same, and what is there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.launching import REPO

DOCKERFILE = (REPO / "benchmark/Dockerfile").read_text()
DEFINITION = (REPO / "benchmark/shardlab.def").read_text()
CI = (REPO / ".ci/run").read_text()


def instructions() -> list[tuple[str, str]]:
    """(COPY, "a b"), ... with continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line]


def test_both_recipes_start_from_the_same_image_and_run_the_same_commands() -> None:
    image = dict(instructions())["FROM"]
    assert f"From: {image}" in DEFINITION
    assert "devel" in image, "DeepSpeed compiles its optimizers with nvcc"
    docker = [part.strip() for name, text in instructions() if name == "RUN" for part in text.split("&&")]
    post = re.search(r"%post\n(.*?)\n\n", DEFINITION, re.DOTALL)[1]
    assert [" ".join(part.split()) for part in docker] == [line.strip() for line in post.splitlines()]


def test_everything_copied_and_installed_is_in_the_repository() -> None:
    for name, text in instructions():
        if name == "COPY":
            *sources, _ = shlex.split(text)
            assert all((REPO / source).exists() for source in sources), text
    assert all((REPO / line.split()[0]).exists() for line in re.findall(r"%files\n((?: +\S+ \S+\n)+)", DEFINITION))
    installed = set(re.search(r"--no-install-recommends (.*?)\s*\\?\n", DOCKERFILE)[1].split())
    assert {"g++", "python3-dev", "python3-venv"} <= installed, "what DeepSpeed's compilation and the venv need"
    assert installed - {"git", "make"} <= set(re.findall(r"[\w+-]+", CI)), "CI installs the same packages from Debian"


def test_commands_in_the_recipes_heads_are_those_of_the_results() -> None:
    results = (REPO / "benchmark/RESULTS.md").read_text()
    for command in re.findall(r"^#   (docker build .*|apptainer .*)$", DOCKERFILE + DEFINITION, re.MULTILINE):
        assert command in results, command


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
    (tmp_path / "repo/benchmark").mkdir()
    script = f"source {REPO}/workshop/launch.sh; activate_python; command -v python"
    for environment, expected in (
        ({"WORKSHOP_VENV": f"{tmp_path}/opt/venv"}, python),
        ({}, tmp_path / "repo/.venv/bin/python"),
    ):
        environment |= {"PATH": os.environ["PATH"]}
        bash = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path / "repo/benchmark", env=environment, capture_output=True, text=True
        )
        assert bash.stdout.strip() == str(expected), bash.stderr
