"""One run: what its folder says, and its figures."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tools.logs.folder import RunFolder
from tools.logs.sources import RunFigures
from workshop.run_folder.schema import STATES

SHOWN_STATES = (*STATES, "lost", "unreadable")


class Not(tuple):
    """A condition on a run: a fact is none of these values."""


class Run(RunFolder):
    """A run folder and what its logs measured."""

    @cached_property
    def figures(self) -> RunFigures:
        """Each is measured when somebody asks for it first."""
        return RunFigures(self)

    def matches(self, where: dict[str, Any]) -> bool:
        return all(
            self.facts[key] not in wanted if isinstance(wanted, Not) else self.facts[key] == wanted
            for key, wanted in where.items()
        )


def duration(seconds: float) -> str:
    """The time as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
