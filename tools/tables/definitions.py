"""What the blank tables of an exercise's README.md and RESULTS.md ask for, as its tables.toml says.

A row's or column's label names a metric, or selects runs, or both ("GPU Mem (Offload)"). A cell is its table's
conditions merged with its row's and its column's meaning, and must end with exactly one metric. Labels that several
exercises use are in words.toml beside this file; CONTRIBUTING.md describes the format.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.logs.run import Not
from tools.tables.markdown import Table, is_blank, read_tables
from tools.tables.metrics import METRICS, Metric, Where

# What tiny.env changes: no table about tiny runs asks for it.
SIZES = {
    *("model", "train_examples", "examples_per_gpu", "batch_size", "grad_acc", "examples_per_gpu_step", "max_length"),
    *("precision", "epochs"),
}
TINY_CAPTION_END = " (tiny runs)*"
# ": 16 examples per GPU and step", ", 500 examples": tiny runs have other numbers, which stand below the table.
_SIZE_IN_TITLE = re.compile(
    r"(?:, |: )(?:(?!, |: ).)*?\d (?:\w+ )?(?:examples|questions|rows|tokens)\b(?:(?!, |: )[^*])*"
)
_WORDS = Path(__file__).with_name("words.toml")
# What a label may have in place of {model} and so on; of all others a number.
_NUMBER = r"\d[\d,]*"
_TEXTS = {"model": r"[\w.-]+", "config": r"\w+", "precision": "fp32|fp16|bf16", "stage": "[0-3]"}
# How labels write a metric's unit where it is not simply in parentheses.
_UNITS_IN_LABELS = {
    "s": ("(sec)", "(s)", "Seconds "),
    "samples/s": ("amples/s",),
    "steps/s": ("teps/s",),
    "tokens/s": ("okens/s",),
}


@dataclass(frozen=True)
class Meaning:
    """What a label stands for.

    Attributes:
        metric: a key of METRICS or None.
        where: conditions on the run (see Run.facts; stage, offload).
        std: the figure's standard deviation over the repeats, in place of its median.
        tiny: the label in a table about tiny runs: without the size that it names.
    """

    metric: str | None = None
    where: Where = field(default_factory=dict)
    std: bool = False
    tiny: str = ""


@dataclass(frozen=True)
class TableDefaults:
    """Attributes: exercises: the folders whose runs fill the table; where: conditions on all of the table's runs."""

    exercises: tuple[str, ...]
    where: Where


@dataclass(frozen=True)
class Dictionary:
    """A tables.toml.

    Attributes:
        tables: by number.
        labels: a pattern for each, the label as written there, its meaning.
        rungs: as labels name them -> as runs do.
        bases: what ratios compare with: a word, or a rung -> a rung.
        grid: whether `plot` draws the exercise's many short runs as a grid, not curve by curve.
    """

    tables: dict[str, TableDefaults]
    labels: list[tuple[re.Pattern, str, Meaning]]
    rungs: dict[str, str]
    bases: dict[str, str]
    grid: bool


def dictionary_of(folder: Path) -> Dictionary:
    """That of an exercise, whose name is needed though a user may write `.`."""
    return _dictionary((folder / "tables.toml").resolve())


@cache
def _dictionary(path: Path) -> Dictionary:
    """Raises InputError: it is no TOML, or a label names an unknown metric."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from error
    below = content.get("rungs", {})
    rungs = {rung.replace("variant_", "variant: ").replace("peer_", "peer: ").replace("_", " "): rung for rung in below}
    tables = {}
    for block in content.get("tables", []):
        exercises, shared = block.pop("exercises", [path.parent.name]), block.pop("where", {})
        tables |= {number: TableDefaults(tuple(exercises), _where(shared | own)) for number, own in block.items()}
    labels = []
    for label, means in content.get("labels", {}).items():
        metric, std = means.pop("metric", None), means.pop("std", False)
        if metric not in (None, *METRICS):
            raise InputError(f"{path}: {label!r}: unknown metric {metric!r}; `python -m tools fill --explain` has all")
        labels.append((_pattern(label, rungs), label, Meaning(metric, _where(means), std)))
    return Dictionary(tables, labels, rungs, below | content.get("bases", {}), content.get("grid", False))


def _where(written: dict[str, Any]) -> Where:
    """Conditions as TOML has them: a value, { not = [values] } or { unset = true }."""
    return {
        key: wanted if not isinstance(wanted, dict) else Not(wanted["not"]) if "not" in wanted else None
        for key, wanted in written.items()
    }


def _pattern(label: str, rungs: Iterable[str]) -> re.Pattern:
    """Of a label with {names} of what stands there and with [sizes], which tables about tiny runs do not have."""
    texts = _TEXTS | {"rung": "|".join(rungs)}
    found = ""
    for part in re.split(r"(\{\w+\}|[\[\]])", label.casefold()):
        if part.startswith("{"):
            found += f"(?P<{part[1:-1]}>{texts.get(part[1:-1], _NUMBER)})"
        else:
            found += {"[": "(?:", "]": ")?"}.get(part) or re.escape(part)
    return re.compile(found)


def normalised(label: str) -> str:
    """A label as it is looked up: markup, case and spacing do not change its meaning."""
    return " ".join(re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", label).split()).casefold()


_METRIC_OF = {normalised(label): name for name, metric in METRICS.items() for label in metric.labels}


def meaning(folder: Path, label: str) -> Meaning | None:
    """What a label of a table in this folder stands for, or None if it stands for nothing."""
    name = normalised(label)
    for dictionary in (dictionary_of(folder), _dictionary(_WORDS)):
        for pattern, written, found in dictionary.labels:
            if match := pattern.fullmatch(name):
                texts = {key: text for key, text in match.groupdict().items() if text}
                groups = {key: _condition(dictionary, key, text) for key, text in texts.items()}
                tiny = re.sub(r"\[.*?\]", "", written).format_map(texts) or "tiny" if "[" in written else label
                return replace(found, where=found.where | groups, tiny=tiny)
    return Meaning(_METRIC_OF[name], tiny=label) if name in _METRIC_OF else None


def _condition(dictionary: Dictionary, key: str, text: str) -> str | int:
    if key == "rung":
        return dictionary.rungs[text]
    return text if key in _TEXTS and key != "stage" else int(text.replace(",", ""))


def run_conditions(where: Where) -> Where:
    """Conditions on a run's facts: a stage and whether there is offload are together the name of a configuration."""
    where = {key: wanted for key, wanted in where.items() if key != "bases"}
    stage, offload = where.pop("stage", None), where.pop("offload", False)
    return where if stage is None else where | {"config": f"zero{stage}{'_offload' if offload else ''}"}


def definitions(folder: Path) -> list[Table]:
    """The blank tables of the README.md and the RESULTS.md in a folder, by their numbers: 9, 10, 10b."""
    documents = (folder / name for name in ("README.md", "RESULTS.md"))
    found = [table for path in documents if path.exists() for table in read_tables(path) if table.blank]
    return sorted(found, key=lambda table: (int(re.match(r"\d+", table.number)[0]), table.number))


def defaults_of(table: Table) -> TableDefaults:
    """Raises InputError if the folder's tables.toml does not have the table's number."""
    known = dictionary_of(table.path.parent).tables
    if table.number not in known:
        place, path, numbers = f"{table.path}:{table.header_line}", table.path.parent / "tables.toml", ", ".join(known)
        raise InputError(f"{place}: Table {table.number} is unknown; {path} has the tables {numbers or 'none'}")
    return known[table.number]


def exercises_of(tables: Iterable[Table]) -> list[str]:
    """The exercises whose runs fill the tables, each once."""
    return list(dict.fromkeys(name for table in tables for name in defaults_of(table).exercises))


@dataclass(frozen=True)
class Plan:
    """What a blank cell is about.

    Attributes:
        metric, where: what it shows, and conditions on the run; `bases`: what ratios compare with.
        unit_named: a label names the metric's unit.
        std: of several repeats the standard deviation, not the median.
    """

    metric: Metric
    where: Where
    unit_named: bool
    std: bool


def plan(table: Table) -> list[list[Plan | None]]:
    """What every blank cell is about.

    Raises:
        InputError: a label means nothing, or a cell's labels give no metric or two; names file, line and label.
    """
    # Runs on a rung are an exercise's runs made faster. A profiler, DeepSpeed's timers and other runs on the GPU make
    # steps slower. Such runs are in no table that does not ask for them.
    where = {"rung": None, "profiled": False, "timed": False, "shared_gpu": False} | defaults_of(table).where
    if table.tiny:  # of several processes as many as a laptop has, which has no GPU that runs could share
        several = {"world_size"} if where.get("world_size") != 1 else set()
        where = {key: wanted for key, wanted in where.items() if key not in {*SIZES, *several, "shared_gpu"}}
    where |= {"tiny": table.tiny, "bases": dictionary_of(table.path.parent).bases}
    labels = table.label_columns
    columns = [_meaning(table, label, table.header_line) for label in table.header[labels:]]
    planned = []
    for row, line in zip(table.rows, table.lines, strict=True):
        meanings = [_meaning(table, label, line) for label in row[:labels]]
        cells: list[Plan | None] = [None] * labels
        for position, (text, column) in enumerate(zip(row[labels:], columns, strict=True), labels):
            names = [*row[:labels], table.header[position]]
            cells.append(_plan(f"{table.path}:{line}", where, names, [*meanings, column]) if is_blank(text) else None)
        planned.append(cells)
    return planned


def _meaning(table: Table, label: str, line: int) -> Meaning:
    found = meaning(table.path.parent, label)
    if found is None:
        where = table.path.parent / "tables.toml"
        raise InputError(f"{table.path}:{line}: Table {table.number}: nothing fills the label {label!r}; see {where}")
    return found


def _plan(place: str, where: Where, labels: list[str], meanings: list[Meaning]) -> Plan:
    metrics = {one.metric for one in meanings if one.metric}
    if len(metrics) != 1:
        found = "no metric" if not metrics else f"two metrics ({', '.join(sorted(metrics))})"
        raise InputError(f"{place}: the labels {' / '.join(map(repr, labels))} give {found}")
    metric = METRICS[metrics.pop()]
    units = _UNITS_IN_LABELS.get(metric.unit, (f"({metric.unit})", f"({metric.unit},"))
    unit_named = any(unit in label for unit in units for label in labels)
    for one in meanings:
        where = where | one.where
    return Plan(metric, where, unit_named, any(one.std for one in meanings))


def tiny_view(table: Table) -> Table:
    """The table for tiny runs (tiny.env): the same figures, without the sizes of the real training.

    Rows and columns that then ask for nothing new are left out.
    """
    labels = table.label_columns
    model = re.compile(re.escape(defaults_of(table).where.get("model") or "(no model)"), re.IGNORECASE)

    def titled(text: str) -> str:
        return model.sub("tiny", _SIZE_IN_TITLE.sub("", text))

    columns = [titled(label) for label in table.header[:labels]]
    columns += [_meaning(table, label, table.header_line).tiny for label in table.header[labels:]]
    kept = [place for place, label in enumerate(columns) if place < labels or columns.index(label) == place]
    rows: dict[tuple[str, ...], tuple[list[str], int]] = {}
    for row, line in zip(table.rows, table.lines, strict=True):
        key = tuple(_meaning(table, label, line).tiny for label in row[:labels])
        rows.setdefault(key, ([*key, *(row[place] for place in kept[labels:])], line))
    return replace(
        table,
        caption=titled(table.caption).removesuffix("*") + TINY_CAPTION_END,
        header=[columns[place] for place in kept],
        separator="|" + "---|" * len(kept),
        rows=[row for row, _ in rows.values()],
        lines=[line for _, line in rows.values()],
        tiny=True,
    )


def tiny_views(tables: Sequence[Table]) -> list[Table]:
    """Those of all tables, without one whose cells are all in an earlier one."""
    found, known = [], set()
    for view in map(tiny_view, tables):
        cells = {(cell.metric.definition, str(cell.where)) for row in plan(view) for cell in row if cell}
        if not cells <= known:
            found.append(view)
            known |= cells
    return found
