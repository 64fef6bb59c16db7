"""A day whose runs do not fit the GPUs is found out at noon; the sheet must give every line to somebody."""

import re
from collections import Counter

import pytest

from tests.simulated_here import simulated_here
from tools.__main__ import main
from tools.commands.room import Room, Run, slots
from tools.errors import InputError
from tools.plan.predict import Range
from tools.tables.markdown import tables_in


def run(gpus: int, minutes: float) -> Run:
    return Run("", gpus, Range(*[60 * minutes] * 3))


def test_runs_are_packed_onto_nodes_by_their_gpus() -> None:
    assert Room(3, 8, 8).minutes([run(4, 10)], sets=3) == 20  # two beside each other
    assert Room(3, 8, 8).minutes([run(5, 10)], sets=3) == 30  # three GPUs stay idle
    assert Room(1, 12, 8).minutes([run(8, 10), run(4, 15), run(1, 5)], sets=1) == 15
    assert Room(9, 8, 8).sets([run(4, 10)], minutes=30) == 6
    with pytest.raises(InputError, match="needs 16 GPUs of one node; this room has 8"):
        Room(1, 16, 8).minutes([run(16, 10)], sets=1)


@pytest.mark.parametrize("day", ["day-1", "day-2", "day-3"])
def test_sheet_gives_every_must_do_line_to_as_many_groups_as_make_it(day, capsys) -> None:
    with simulated_here():
        assert main(["plan", day, "--groups", "14", "--gpus", "4", "--gpu", "h200"]) == 0
    slots_table, sheet = tables_in(capsys.readouterr().out)
    runs = {name: int(number) for _, name, number, *_ in slots_table.rows}
    given: Counter[str] = Counter()
    for _, _, exercise, lines, *_ in sheet.rows:
        folder = next(one for slot in slots(day) for one in slot.exercises if one.name == exercise)
        every = (folder / "submit.txt").read_text().count("# must-do")
        given[exercise] += every if lines == "all must-do" else len(re.findall(r"\d+", lines))
    assert {names: sum(given[name] for name in names.split(" and ")) for names in runs} == runs
    assert all(int(taken) <= int(there) for *_, there, taken, _ in slots_table.rows)
