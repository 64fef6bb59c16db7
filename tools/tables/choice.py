"""Which of several runs a cell shows, and what is said about the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evidence.counted import counted
from tools.errors import UnavailableError
from tools.logs.run import Run
from tools.tables.metrics import Where

NOT_MEASURED = "not measured"
_TRY = 0.5  # a run on less than this part of the examples of one of the same shape only tried something
_MOST_NOTES = 3  # of more newer runs only the number


@dataclass(frozen=True)
class Choice:
    """Attributes: runs: one for each REPEAT; equal: all that could have been chosen; notes: on newer, unlike ones."""

    runs: list[Run]
    equal: list[Run]
    notes: list[str]


def choose(runs: Sequence[Run], where: Where) -> Choice:
    """For each REPEAT the newest completed of the matching runs, else the newest of them; a short try only if alone.

    Args:
        runs: oldest first.

    Raises:
        UnavailableError: no run matches.
    """
    found: dict[int, list[Run]] = {}
    for run in filter(lambda run: run.matches(where), runs):
        found.setdefault(run.facts["repeat"], []).append(run)
    if not found:
        raise UnavailableError(NOT_MEASURED)
    chosen, equal, notes = [], [], []
    for repeat in sorted(found):
        alike = _alike(found[repeat])
        chosen.append(alike[-1])
        equal += alike
        newer = found[repeat][found[repeat].index(alike[-1]) + 1 :]
        notes += [f"{run.folder}: {_why_not(run)}; {alike[-1].folder} is shown" for run in newer[-_MOST_NOTES:]]
        if len(newer) > _MOST_NOTES:
            notes.append(f"{len(newer)} runs are newer than {alike[-1].folder}, which is shown")
    return Choice(chosen, equal, notes)


def _alike(runs: list[Run]) -> list[Run]:
    """The runs that stand for the real run: the completed ones if any, without short tries."""
    completed = [run for run in runs if run.state == "completed"] or runs
    most: dict[tuple, int] = {}
    for run in completed:
        most[_shape(run)] = max(most.get(_shape(run), 0), run.examples_asked or 0)
    return [
        run for run in completed if run.examples_asked is None or max(0, run.examples_asked) >= most[_shape(run)] * _TRY
    ]


def _shape(run: Run) -> tuple:
    """What a try and the real run have in common; of tiny runs also the data: the quickstart's are no real run's."""
    data = (run.record.get("settings") or {}).get("dataset") if run.facts["tiny"] else None
    return data, *(run.facts[name] for name in ("exercise", "config", "model", "world_size", "nodes"))


def _why_not(run: Run) -> str:
    if run.state != "completed":
        return f"newer, but {run.outcome}"
    return f"newer, but a try: it trained on {counted(run.examples_asked, 'example')}"


def note_on_owners(runs: Sequence[Run]) -> str:
    """Whose runs were to choose from, if they are several people's or lie in several folders."""
    places = dict.fromkeys((run.owner, run.folder.parent.parent) for run in runs)
    owners = {owner for owner, _ in places}
    if len(places) < 2:
        return ""
    of = f"{len(owners)} people" if len(owners) > 1 else f"{len(places)} folders"
    whose = ", ".join(f"{owner} ({place})" if len(owners) > 1 else str(place) for owner, place in places)
    return f"runs of {of}: {whose}; each cell shows the newest, --owner and --logs choose"
