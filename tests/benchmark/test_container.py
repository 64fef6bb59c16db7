"""The container recipes as far as they can be tried without an engine: both install the same, and what is there."""

import os
import re
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


def test_both_recipes_start_from_the_same_image_run_the_same_commands_and_copy_what_is_there() -> None:
    image = dict(instructions())["FROM"]
    assert f"From: {image}" in DEFINITION
    assert "devel" in image, "DeepSpeed compiles its optimizers with nvcc"
    docker = [part.strip() for name, text in instructions() if name == "RUN" for part in text.split("&&")]
    post = re.search(r"%post\n(.*?)\n\n", DEFINITION, re.DOTALL)[1]
    assert [" ".join(part.split()) for part in docker] == [line.strip() for line in post.splitlines()]
    copied = [source for name, text in instructions() if name == "COPY" for source in text.split()[:-1]]
    copied += [line.split()[0] for line in re.findall(r"%files\n((?: +\S+ \S+\n)+)", DEFINITION)[0].splitlines()]
    assert [source for source in copied if not (REPO / source).exists()] == []


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
