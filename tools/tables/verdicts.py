"""What `check` says of the cells that a participant filled in."""

from collections import Counter
from dataclasses import dataclass

from tools.tables.fill import FilledTable

RIGHT, ANOTHER_RUN, WRONG, BLANK = "right", "of an equal run", "wrong", "not filled in"
VERDICTS = (RIGHT, ANOTHER_RUN, WRONG, BLANK)


@dataclass(frozen=True)
class Judgement:
    """Attributes: verdict: RIGHT, ANOTHER_RUN, WRONG or BLANK; text: what to say about the cell, "" for nothing."""

    table: str
    line: int
    row: str
    column: str
    verdict: str
    text: str


Checked = list[tuple[FilledTable, list[Judgement]]]


def verdicts(checked: Checked) -> Counter[str]:
    """How many cells have each verdict."""
    return Counter(cell.verdict for _, cells in checked for cell in cells)


@dataclass(frozen=True)
class Grade:
    """One participant's file.

    Attributes:
        file: as given.
        name: whose it is.
        checked: its tables as the runs fill them, each with the judgement of its cells.
        problem: why it could not be checked, "" for nothing.
    """

    file: str
    name: str
    checked: Checked
    problem: str = ""

    @property
    def count(self) -> Counter[str]:
        return verdicts(self.checked)

    @property
    def tables(self) -> str:
        """Their numbers."""
        return " ".join(table.table.number for table, _ in self.checked)
