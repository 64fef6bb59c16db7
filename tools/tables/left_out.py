"""Runs of an exercise that its tables are not about, and what they would have to be."""

from collections import Counter
from collections.abc import Mapping, Sequence

from evidence.counted import counted
from tools.logs.run import Not, Run
from tools.tables.fill import plan
from tools.tables.markdown import Table
from tools.tables.metrics import Where
from tools.tables.registry import run_conditions


def left_out_lines(tables: Sequence[Table], runs: Sequence[Run], commands: Mapping[str, str]) -> list[str]:
    """Which runs no table is about and why, as a list; `commands`: what to do about a reason."""
    exercises = {table.path.parent.resolve().name for table in tables}
    # Some tables are about several exercises.
    own = [run for run in runs if run.record["exercise"] in exercises] or runs
    return [
        f"- {counted(count, 'run')}: {reason}" + (f"; `{commands[reason]}`" if reason in commands else "")
        for reason, count in left_out(tables, own).items()
    ]


def left_out(tables: Sequence[Table], runs: Sequence[Run]) -> Counter[str]:
    """For each reason why no cell asks for a run, how many of the runs (of the tables' exercises) have it."""
    conditions: dict[str, Where] = {}
    for cell in (cell for table in tables for row in plan(table) for cell in row if cell):
        where = run_conditions(cell.where)
        conditions[str(where)] = where
    return Counter(reason for run in runs if (reason := _reason(run, list(conditions.values()))))


def _reason(run: Run, conditions: Sequence[Where]) -> str:
    """What the cell that is nearest to the run asks for otherwise; nothing where a cell asks for the run."""
    nearest: list[str] | None = None
    for where in conditions:
        if "tiny" in where and run.facts["tiny"] != where["tiny"]:
            return "tiny" if run.facts["tiny"] else "not tiny"
        differing = [key for key, wanted in where.items() if not run.matches({key: wanted})]
        if not differing:
            return ""
        texts = [_difference(key, run.facts[key], where[key]) for key in differing]
        if nearest is None or len(texts) < len(nearest):
            nearest = texts
    return "; ".join(nearest or [])


def _difference(key: str, found: object, wanted: object) -> str:
    """Such as "model bloom-1b1, not bloom-560m" or "profiled"."""
    name = {"world_size": "processes"}.get(key, key.replace("_", " "))
    if isinstance(wanted, bool):
        return f"not {name}" if wanted else name
    return f"{name} {_text(found)}" + ("" if isinstance(wanted, Not) else f", not {_text(wanted)}")


def _text(value: object) -> str:
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
