"""An instructor opens forty strangers' files as one page: in a browser, or printed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.tools.conftest import write_run
from tools.__main__ import main
from tools.tables.repository import ROOT

_NAME = "<img src=x onerror=window.planted=1>"
_BLANK = (ROOT / "baseline/README.md").read_text()
# Of Table 1: the first is what the run has; the figure of the second everybody gets wrong.
_CELLS = {"ada": ("0.7039", "9.9"), "grace": ("", "8.8"), _NAME: ("0.9", "7.7")}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("grades")
    write_run(folder / "logs", "r1")
    table = re.search(r"\*\*Table 1\*\* .*?\n\n(?:\|.*\n)+", _BLANK)[0]
    for name, (loss, evaluation) in _CELLS.items():
        own = table.replace("(mean) | ? |", f"(mean) | {loss} |").replace(
            "(Epoch 1) | ? |", f"(Epoch 1) | {evaluation} |"
        )
        (folder / f"{name}.md").write_text(own)
    (folder / "eve.md").write_text("<script>window.planted = 1</script>")
    (folder / "bob.md").write_text(table.replace("Value", "<b>Figure</b>"))
    with pytest.MonkeyPatch.context() as patch, (folder / "page.html").open("w") as page:
        patch.setattr("sys.stdout", page)
        assert main(["grade", *map(str, folder.glob("*.md")), "--logs", str(folder / "logs"), "--format", "html"]) == 1
    return (folder / "page.html").read_text()


@pytest.fixture
def page(text: str, chromium: Browser, tmp_path: Path) -> Iterator[Page]:
    (tmp_path / "grades.html").write_text(text)
    context = chromium.new_context(offline=True, viewport={"width": 360, "height": 740})
    opened, asked = context.new_page(), []
    opened.on("request", lambda one: asked.append(one.url))
    opened.goto((tmp_path / "grades.html").as_uri())
    assert len(asked) == 1, "the page is one file"
    yield opened
    context.close()


def test_cell_that_everybody_got_wrong_is_first_and_no_file_that_cannot_be_checked_is_lost_or_runs(page: Page) -> None:
    first = page.locator("#missed + div tbody tr").first.inner_text()
    name = "Table 1: Training and evaluation summary, Eval Loss (Epoch 1)"
    assert first.split("\n")[0].split("\t") == [name, "3", "3"]
    marks = page.locator("#table-1 .matrix tr", has_text="Train Loss (mean)").locator("td").all_inner_texts()
    people = page.locator("#table-1 .matrix .person").all_inner_texts()
    found = {name: mark.split("\n")[-1] for name, mark in zip(people, marks, strict=True)}
    assert found == {"ada": "right", "grace": "not filled in", _NAME: "wrong"}
    rows = page.locator("#people + div tbody tr").all_inner_texts()
    problems = {row.split("\t")[0]: row.split("\t")[-1] for row in rows}
    assert problems["eve"].startswith("no tables found") and problems["bob"].startswith("line 3: the columns of")
    assert _NAME in problems
    assert page.evaluate("window.planted") is None and page.locator("img, script").count() == 0
