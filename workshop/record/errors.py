"""Errors that a user can correct: a line with the file, line or variable, what was found and what is expected.

Others' logs are read here, too: plain files of a bounded size, never a link, a pipe or a device. A link in somebody's
run folder could show one of the reader's own files, and a pipe would block for ever.
"""

import errno
import json
import os
import stat
import sys
import traceback
from io import IOBase
from pathlib import Path
from typing import Any

from workshop.record.printable import one_line

_REPO = Path(__file__).resolve().parents[2]
LARGEST_BYTES = 512 << 20  # of a log that is read as a whole


class InputError(Exception):
    """An input that cannot be used as given. A job prints the text and ends with code 1, the tools with code 2."""


def no_package(name: str) -> str:
    """Return what to do where a package cannot be imported; "" for a module of this repository."""
    if (_REPO / name.split(".")[0]).is_dir():
        return ""
    return (
        f"{sys.executable} has no {name}; expected the workshop's environment: `make install` in {_REPO} once, "
        "then `source .venv/bin/activate` there"
    )


def failed_file(error: OSError) -> str:
    """Return the file that `error` is about and why. A full disk's error has no name: the open file has."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    opened = [value for frame in frames for value in frame.f_locals.values() if isinstance(value, IOBase)]
    name = error.filename or (opened[-1].name if opened else "")
    return f"{name}: {error.strerror}" if name else str(error)


def utf8_lines(path: Path) -> list[str]:
    """Return the lines of a text file, without a byte order mark.

    Raises:
        LogError: a line is not in UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start)
        line = error.object.split(b"\n")[number].decode("latin-1").strip()
        raise LogError(path, number + 1, line, "a line in UTF-8") from None


class LogError(InputError):
    """A log that does not have the form its kind should have.

    Args:
        path: the log, or the text of a line given as an argument.
        line: line number, counted from 1; None when the whole file is meant.
        found: what the file holds there (shortened to 120 characters).
        expected: what would be right.
    """

    def __init__(self, path: Path | str, line: int | None, found: str, expected: str):
        found = found if len(found) <= 120 else found[:117] + "..."
        super().__init__(
            f"{one_line(str(path))}{'' if line is None else f':{line}'}: found {found!r}, expected {expected}"
        )
        self.path, self.line, self.found, self.expected = path, line, found, expected


def open_plain(path: Path | str) -> int:
    """Return a descriptor for reading. Raises OSError for anything but a plain file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", str(path))
    return descriptor


def read_plain(path: Path | str) -> bytes:
    """Return all bytes. Raises LogError for no plain file, an unreadable one, or more than LARGEST_BYTES."""
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_BYTES:
                raise OSError(errno.EFBIG, f"more than {LARGEST_BYTES >> 20} MiB", str(path))
            return file.read()
    except OSError as error:
        raise LogError(path, None, error.strerror or str(error), "a file that can be read") from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises InputError with line and column, or for a duplicate key."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"{path}: '{twice}' stands twice in one object, where the last would win")
        return dict(pairs)

    try:
        config = json.loads(path.read_text("utf-8-sig"), object_pairs_hook=once)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected a file such as ds_configs/zero2.json") from None
    except json.JSONDecodeError as error:
        where, expected = f"{path}:{error.lineno}:{error.colno}", "no comments, no commas before } or ], no YAML"
        raise InputError(f"{where}: not JSON ({error.msg}); expected {expected}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); expected text in UTF-8") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: found {type(config).__name__}, expected a JSON object {{…}}")
    return config
