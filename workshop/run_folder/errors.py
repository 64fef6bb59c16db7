"""A file that cannot be used as it is: one line that names it, the line in it, what was found and what is expected."""

from pathlib import Path

from workshop.run_folder.printable import one_line


class InputError(Exception):
    """A file, folder or argument that cannot be used as given; the command line prints it and exits 2."""


def utf8_lines(path: Path) -> list[str]:
    """The lines of a text file.

    Raises:
        LogError: a line is not in UTF-8.
    """
    for number, line in enumerate((data := path.read_bytes()).split(b"\n"), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            raise LogError(path, number, line.decode("latin-1").strip(), "a line in UTF-8") from None
    return data.decode().splitlines()


class LogError(InputError):
    """A log that does not have the form its kind should have.

    Args:
        path: the log; what a line stands in that is in no file.
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
