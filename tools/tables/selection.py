"""Selects the runs of a table's cells."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.errors import UnavailableError
from tools.logs.run import Run, Where
from workshop.record.printable import counted

NOT_MEASURED = "not measured"
_SHORT = 0.5  # a run with less than this share of a similar one's examples is a short test run


@dataclass
class Selection:
    """The runs of a table's cells. Called with a cell's conditions, it gives a completed run for each REPEAT.

    Attributes:
        runs: all that the table may show, oldest first.
        used: those of the present cell.
        notes: on runs that are not shown.
        chosen: by conditions: many cells are about the same runs.
    """

    runs: Sequence[Run]
    used: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    chosen: dict[str, list[Run]] = field(default_factory=dict)

    def __call__(self, where: Where) -> list[Run]:
        """Raises UnavailableError: no run matches, completed, or ran in the precision asked for."""
        if (key := str(where)) not in self.chosen:
            self.chosen[key] = self._choose(where)
        found = self.chosen[key]
        self.used += found
        completed = [run for run in found if run.state == "completed"]
        if not completed:
            raise UnavailableError(found[-1].outcome)
        for run in completed:
            if run.record.precision != where.get("precision", run.record.precision):
                raise UnavailableError(f"ran in {run.record.precision}")
        return completed

    def _choose(self, where: Where) -> list[Run]:
        """For each REPEAT the newest completed run that matches, else the newest; a short test run only without others.

        Raises UnavailableError: no run matches.
        """
        found: dict[int, list[Run]] = {}
        for run in filter(lambda run: run.matches(where), self.runs):
            found.setdefault(run.repeat, []).append(run)
        if not found:
            raise UnavailableError(NOT_MEASURED)
        chosen = []
        for _, same in sorted(found.items()):
            candidates = [run for run in same if run.state == "completed"] or same
            chosen.append(next(run for run in reversed(candidates) if not _is_short(run, candidates)))
            if (newest := same[-1]) is not chosen[-1]:
                why = newest.outcome
                if newest.state == "completed":
                    why = f"a short test run: it trained on {counted(newest.examples_asked, 'example')}"
                self.notes.append(f"{newest.folder}: newer, but {why}; {chosen[-1].folder} is shown")
        return chosen


def _is_short(run: Run, candidates: Sequence[Run]) -> bool:
    """Whether a similar one among the candidates was to process more than twice as many examples."""
    if (asked := run.examples_asked) is None:
        return False
    longer = (one for one in candidates if max(0, asked) < _SHORT * (one.examples_asked or 0))
    return any(_shape(one) == _shape(run) for one in longer)


def _shape(run: Run) -> tuple:
    """What runs of one length share; for tiny runs also the data: the quickstart trains on more than tiny.env."""
    data = run.settings.get("dataset") if run.tiny else None
    return data, run.record.exercise, run.record.config, run.model, run.world_size, run.record.nodes
