"""What can go wrong for a user of the tools, so that the command line prints one line instead of a traceback."""

from pathlib import Path


class InputError(Exception):
    """A file, folder or argument that cannot be used as given; the command line prints it and exits 2."""


class NoRunsError(Exception):
    """There is nothing to read yet: no run of the exercise. Exit code 3, because it is nobody's mistake."""


class LogError(InputError):
    """A log that does not have the form its kind should have.

    Args:
        path: the log.
        line: line number, counted from 1; None when the whole file is meant.
        found: what the file holds there (shortened to 120 characters).
        expected: what would be right.
    """

    def __init__(self, path: Path, line: int | None, found: str, expected: str):
        found = found if len(found) <= 120 else found[:117] + "..."
        super().__init__(f"{path}{'' if line is None else f':{line}'}: found {found!r}, expected {expected}")
        self.path, self.line, self.found, self.expected = path, line, found, expected


class UnavailableError(Exception):
    """There is no figure; the text (OOM, not measured, no GPU log, ...) is what the cell shows."""
