"""A message that says "1 runs" makes its reader look for the others."""

import ast
import re
import subprocess
from pathlib import Path

from evidence.counted import counted
from tests.launching import REPO


def test_one_is_singular_and_all_else_plural() -> None:
    assert [counted(number, "run") for number in (0, 1, 2, 2048)] == ["0 runs", "1 run", "2 runs", "2,048 runs"]
    assert [counted(number, "process", "processes") for number in (1, 2)] == ["1 process", "2 processes"]


def test_no_program_prints_a_plural_in_parentheses() -> None:
    """`1 node(s) x 2 GPU(s)` leaves it to the reader."""
    kinds = ["*.py", "*.sh", "*.slurm", "*.csv", ":!tests", ":!logs"]
    files = subprocess.run(["git", "ls-files", *kinds], cwd=REPO, capture_output=True, text=True, check=True).stdout
    found = [f"{name}: {text}" for name in files.split() for text in printed(REPO / name) if PLURAL.search(text)]
    assert found == []


PLURAL = re.compile(r"[a-z]\((?:s|es|ies)\)", re.IGNORECASE)


def printed(file: Path) -> list[str]:
    """The texts of a Python file, the lines of another."""
    if file.suffix != ".py":
        return file.read_text().splitlines()
    texts = (node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant))
    return [text for text in texts if isinstance(text, str)]
