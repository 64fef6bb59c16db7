"""Read env_vars.sh and similar files: the names that a file exports, and the values that bash gives them."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from workshop.record.errors import InputError, utf8_lines

_ASSIGNED = re.compile(r"(?:^|\s)([A-Za-z_][A-Za-z0-9_]*)=")


def assignments(path: Path) -> list[tuple[str, int, bool]]:
    """Return each assigned name, its line from 1, and whether it is exported; [] without a file."""
    assigned = []
    for number, text in enumerate(utf8_lines(path) if path.is_file() else [], start=1):
        code = text.partition(" #")[0].strip()
        exported = code.startswith("export ")
        names = [match for match in _ASSIGNED.finditer(code) if exported or match.start() == 0]
        assigned += [(match[1], number, exported) for match in names]
    return assigned


def exported(path: Path) -> set[str]:
    """Return the names that a file exports."""
    return {name for name, _, exported in assignments(path) if exported}


def sourced(path: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment after bash has sourced a file with only PATH, HOME and `variables` set.

    Raises:
        InputError: bash cannot read it.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}  # files may name folders of HOME
    command = ["bash", "-c", 'set -a; [ ! -f "$1" ] || . "$1" >&2; env -0', "bash", str(path.resolve())]
    answer = subprocess.run(
        command, cwd=path.parent, env=kept | dict(variables), capture_output=True, text=True, errors="replace"
    )
    if answer.returncode != 0:
        *_, last = ["", *answer.stderr.strip().splitlines()]
        if last.startswith("error: "):  # its own
            raise InputError(last.removeprefix("error: "))
        raise InputError(f"{path}: bash cannot read it: {answer.stderr.strip()[-1000:]}")
    return dict(line.split("=", 1) for line in answer.stdout.split("\0") if "=" in line)
