"""Figures of a logs folder's runs: measured once, if somebody asks for them, and remembered for the next command.

They are kept in a hidden file in the logs folder, and are valid for a run whose files have the same sizes and
modification times. The file may be deleted at any time, which costs time and nothing else. One that is damaged, or was
written by other code than this, counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import zlib
from collections.abc import Collection, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import evidence
from evidence.plain_files import read_plain
from tools.errors import LogError
from tools.logs.figures import Outcome
from tools.logs.run import Run
from tools.logs.sources import RunFigures

FILE_NAME = ".figures.json"
_REFERENCE = Path(__file__).resolve().parents[2] / "logs" / "reference"  # stays as it was committed
# A run's files as text (see Run.files), what is known of its figures: a name to an Outcome.
Entry = list[str | dict[str, Outcome]]


class Store:
    """What is known of the figures of the runs below one logs folder.

    Args:
        logs: where the file is read, and written by `save`; None: figures are kept in memory only.
        folders: all run folders below `logs`; of others nothing is written down any more.
    """

    def __init__(self, logs: Path | None = None, folders: Sequence[Path] = ()):
        self._logs, self._folders = logs, folders
        self._saved = 0  # how many figures the file has; -1: others than these

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        """Run folder, relative to the logs folder -> its files, what is known of its figures."""
        if not self._logs:
            return {}
        try:
            head, _, content = read_plain(self._logs / FILE_NAME).partition(b"\n")
            found = json.loads(content) if head == _head(content) else {}
        except (LogError, ValueError, RecursionError):
            return {}
        entries = {name: entry for name, entry in found.items() if _sound(entry)} if isinstance(found, dict) else {}
        self._saved = _count(entries)
        return entries

    def figures(self, run: Run) -> RunFigures:
        """A run's figures; those that are not known are measured when somebody asks for them."""
        # The files before their content: what is written in between is seen the next time.
        name = self._name(run.folder)
        files, entry = str(run.files), self._entries.get(name)
        if entry is None or entry[0] != files:
            entry = self._entries[name] = [files, {}]
            self._saved = -1
        return RunFigures(run, entry[1])

    def measure_all(self, runs: Sequence[Run], names: Collection[str]) -> Iterator[Run]:
        """The runs in order, each when these figures are known."""
        for run in runs:
            for name in (*names, "cause") if run.needs_cause else names:
                run.figures.outcome(name)
            yield run

    def _name(self, folder: Path) -> str:
        return str(folder).removeprefix(f"{self._logs}/")

    def save(self) -> None:
        """Write down what is known, if any of it is new.

        The file is replaced as a whole: of two commands at once the later one's counts, and none reads half a file. A
        folder that cannot be written to stays as it is.
        """
        count = _count(self._entries)
        if not self._logs or count == self._saved or self._logs.resolve().is_relative_to(_REFERENCE):
            return
        if self._logs in self._folders:  # the logs folder is itself a run's
            return
        names = map(self._name, self._folders)
        content = json.dumps({name: self._entries[name] for name in names if name in self._entries}).encode()
        temporary = self._logs / f"{FILE_NAME}.{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            temporary.write_bytes(_head(content) + b"\n" + content)
            temporary.replace(self._logs / FILE_NAME)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        self._saved = count


def _count(entries: dict[str, Entry]) -> int:
    return sum(len(known) for _, known in entries.values())


def _sound(entry: Any) -> bool:
    """Whether an entry can be what `save` writes: anybody may have written the file into a folder of theirs."""
    match entry:
        case [str(), dict(outcomes)]:
            return isinstance(outcomes.get("cause", ""), str) and all(map(_is_outcome, outcomes.values()))
    return False


def _is_outcome(value: Any) -> bool:
    match value:
        case bool() | float() | str() | [str()]:
            return True
        case int():
            return abs(value) < 2**63
    return False


def _head(content: bytes) -> bytes:
    return b"%s %08x" % (code_version(), zlib.crc32(content))


@cache
def code_version() -> bytes:
    """A digest of the code: whoever changes a parser need not remember that figures are remembered."""
    code = hashlib.blake2b(digest_size=8)
    folders = Path(evidence.__file__).parent, Path(__file__).parent
    for path in sorted(path for folder in folders for path in (*folder.glob("*.py"), *folder.glob("*.csv"))):
        code.update(path.read_bytes())
    return code.hexdigest().encode()
