"""A name in somebody's log is no formula in the reader's spreadsheet."""

import pytest

from workshop.run_folder.printable import spreadsheet_text


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "-", "=HYPERLINK(1)", "-1=2"])
def test_text_that_a_spreadsheet_would_compute_gets_a_quote(text: str) -> None:
    assert spreadsheet_text(text) == f"'{text}"


@pytest.mark.parametrize("value", [-1.5, 3, None, "-1.5", "+3", "-1,234.5", "-2e-05", "bloom-560m", "a=b", ""])
def test_number_and_plain_text_stay(value: object) -> None:
    assert spreadsheet_text(value) is value
