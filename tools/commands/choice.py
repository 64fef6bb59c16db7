"""The closing task: what the planner says of its cards (choose/cards.py), and the form of a group (choose/form.md)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from choose.cards import CARDS, Card
from tools.errors import InputError
from tools.logs.figures import OF_ONE_RUN, Figure, text_of, value_of
from tools.logs.run import Run
from tools.plan.candidates import Candidate, Question
from tools.plan.ranking import best_of_each, rank
from tools.tables.fill import Cell, FilledTable
from tools.tables.forms import Prediction
from tools.tables.markdown import Grid, is_blank, markdown, read_tables
from tools.tables.table import Table
from workshop.record.exercises import REPO

FORM = REPO / "choose" / "form.md"


def _planned(name: str, title: str, unit: str, decimals: int) -> Figure:
    return Figure(name, lambda _: None, title, unit=unit, decimals=decimals)


_COLUMNS = {
    "GPU (GiB)": _planned("gpu_gib", "GPU (GiB)", "GiB", 1),
    "CPU (GiB)": _planned("cpu_gib", "CPU (GiB)", "GiB", 0),
    "Tokens/s/GPU": _planned("tokens_per_second_per_gpu", "Tokens/s/GPU", "tokens/s", 0),
    "States (MiB)": OF_ONE_RUN["states_mib"],
    "Step time (ms)": OF_ONE_RUN["step_time_ms"],
}
_UNREAD = {title: Cell("first name the strategy or the run", None, one) for title, one in _COLUMNS.items()}


@cache
def _ranked(question: Question) -> list[Candidate]:
    return best_of_each(rank(question))


def strategies(card: Card) -> dict[str, Candidate]:
    """The best candidate of each strategy, by the planner's names, as `plan model --all` shows them."""
    told = {} if card.fabric_gb_per_s is None else {"fabric_gb_per_s": card.fabric_gb_per_s}
    question = Question(card.model, card.gpus, card.nodes, card.gpu, node_gib=card.node_gib, **told)
    return {one.strategy: one for one in _ranked(question)}


def _figures(card: Card, one: Candidate) -> dict[str, float]:
    """By the columns of the form."""
    found = one.prediction
    per_gpu = found.ranges["tokens_per_second"].expected / card.gpus
    return dict(zip(_COLUMNS, (found.needed_mib / 1024, found.least_cpu_gib, per_gpu), strict=False))


def cards_table() -> str:
    """What is printed on the cards."""
    titles = ["Card", "Model", "Parameters", "GPUs", "GPU (GiB)", "After `plan model`"]
    rows = []
    for number, card in enumerate(CARDS, 1):
        found = next(iter(strategies(card).values())).prediction
        nodes = f", {card.nodes} nodes" if card.nodes > 1 else ""
        memory = f"{found.gpu.memory_mib / 1024:.1f}"
        gpus = f"{card.gpus} x {card.gpu}{nodes}"
        rows.append([str(number), card.model, f"{found.parameters:,}", gpus, memory, f"`{card.question}`"])
    return markdown(titles, rows)


def key_table() -> str:
    """The answer key: of each card the states, and what the planner says of accepted and rejected strategies."""
    titles = ["Card", "16 P (GiB)", "Strategy", "Accepted", *list(_COLUMNS)[:3], "GPU-hours", "Verdict", "Why"]
    rows = []
    for number, card in enumerate(CARDS, 1):
        found = strategies(card)
        states = f"{16 * next(iter(found.values())).prediction.parameters / 2**30:,.1f}"
        for name, why in (card.accepted | card.rejected).items():
            cells = [_COLUMNS[title].written(value) for title, value in _figures(card, found[name]).items()]
            hours = f"{found[name].gpu_hours:,.2f}"
            answer = "yes" if name in card.accepted else "no"
            rows.append([str(number), states, name, answer, *cells, hours, verdict(card, name), why])
    return markdown(titles, rows)


def verdict(card: Card, name: str) -> str:
    """Whether a strategy fits; for a rejected one that fits, how much dearer it is than the cheapest accepted one."""
    found = strategies(card)
    one = found[name]
    if one.prediction.limit:
        return f"no: {one.prediction.limit}"
    alike = [found[other].gpu_hours for other in card.accepted if found[other].trains == one.trains]
    price = f", {one.gpu_hours / min(alike):.1f} times the hours" if name in card.rejected else ""
    return one.prediction.verdict + price


# ---- a group's form ----


def definitions() -> dict[str, Grid]:
    asked = Table(lambda row, column: None)  # what is right is in `filled`
    return {table.number: replace(table, definition=asked) for table in read_tables(FORM)}


def filled(copies: list[Grid], text: str, runs: list[Run]) -> list[FilledTable]:
    """The form's tables with what the planner and the runs say of the group's strategies and folders.

    Raises InputError: no card, or an unknown strategy or run folder.
    """
    number = re.search(r"^Card: *(\d+) *$", text, re.MULTILINE)
    if not number or not 1 <= int(number[1]) <= len(CARDS):
        raise InputError(f"{copies[0].path}: no card; expected a line `Card: 1` to `Card: {len(CARDS)}`")
    card, known, found, strategy_of = CARDS[int(number[1]) - 1], definitions(), [], {}
    names = {name.casefold(): name for name in strategies(card)}
    for copy in copies:
        definition, chosen, expected = known[copy.number], {}, {}
        for line, (label, written, *_) in zip(copy.lines, copy.rows, strict=True):
            name = written.strip("` ")
            chosen[label] = names.get(name.casefold(), name)
            if not is_blank(name):
                expected[label] = _expected(f"{copy.path}:{line}", copy, card, chosen[label], runs)
        rows = {label: expected.get(label, _UNREAD) for label, *_ in definition.rows}
        cells = {
            (label, title): row[title] for label, row in rows.items() for title in definition.header if title in row
        }
        notes, tolerance_percent, source = [], 0, ""
        if "Strategy" in copy.header:  # figures of the planner, which a group rounds to two digits
            tolerance_percent, source, strategy_of = 5, f"`python -m tools plan model {card.question}`", chosen
        else:
            notes = list(_other_strategies(strategy_of, expected))
        found.append(FilledTable(replace(definition, path=copy.path), cells, notes, tolerance_percent, source))
    return found


def _other_strategies(strategy_of: dict[str, str], stand_ins: dict[str, dict[str, Cell]]) -> Iterator[str]:
    """Where a stand-in is not of the choice's strategy; the planner's names are those of the configurations."""
    for label, cells in stand_ins.items():
        (run,) = cells["States (MiB)"].runs
        adapters = {"lora": "LoRA ", "qlora": "QLoRA "}.get(run.adapters, "")
        ran, chosen = f"{adapters}{run.record.config or 'one GPU'}", strategy_of.get(label, "")
        if not is_blank(chosen) and chosen.partition(",")[0] != ran:
            yield f"{label} is {chosen}, but its run was {ran}"


def _expected(place: str, copy: Grid, card: Card, chosen: str, runs: list[Run]) -> dict[str, Cell]:
    """By column what is right for the strategy, or for the run in the folder of this name."""
    if "Strategy" in copy.header:
        if not (one := strategies(card).get(chosen)) or one.error:
            known = "; ".join(strategies(card))
            raise InputError(f"{place}: strategy {chosen!r}; expected one of {known}")
        values = _figures(card, one)
        return {title: Cell(_COLUMNS[title].written(value), value, _COLUMNS[title]) for title, value in values.items()}
    run = next((run for run in runs if run.folder.name == Path(chosen).name), None)
    if not run:
        raise InputError(f"{place}: found no run in the folder {chosen!r}; --logs says where the runs are")
    own = {title: one for title, one in _COLUMNS.items() if one.name in OF_ONE_RUN}
    return {title: Cell(text_of(run, one.name), value_of(run, one.name), one, (run,)) for title, one in own.items()}


def predictions(copies: Sequence[Grid]) -> Iterator[Prediction]:
    """The group's, each in the column before that of its figure."""
    for copy in copies:
        for choice, *written in copy.rows:
            for title, yours in zip(copy.header[1:], written, strict=True):
                figure_title, predicted, unit = title.partition(", predicted")
                if predicted:
                    yield f"{choice}, {figure_title}", yours, [(copy.number, choice, figure_title + unit)]
