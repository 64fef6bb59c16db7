"""From a run folder to its figures, in one direction: parsers -> sources -> RunFigures."""

from __future__ import annotations

from evidence.causes import cause
from tools.errors import LogError, UnavailableError
from tools.logs.figures import DEFINITIONS, RunFigures
from tools.logs.run import Run
from tools.logs.sources import Sources


def measure(run: Run) -> RunFigures:
    """All figures of a run, with the reason for each that is missing; no damaged file raises."""
    sources = Sources(run)
    found, missing, damaged = {}, {}, {}
    for name, definition in DEFINITIONS.items():
        value = None
        try:
            for source, key in definition.sources:
                if value is None:
                    value = sources.figure(source, key)
        except UnavailableError as reason:
            missing[name] = str(reason)
        except LogError as error:
            missing[name], damaged[name] = "unreadable log", str(error)
        if value is not None:
            found[name] = value
    return RunFigures(missing=missing, damaged=damaged, cause=_cause(run), **found)


def _cause(run: Run) -> str:
    if run.record.get("state") == "completed" or run.record.get("reason") or "train.out" not in run.names:
        return ""
    found = cause(run.folder / "train.out")
    return f"train.out:{found.line}: {found.text}" if found else ""
