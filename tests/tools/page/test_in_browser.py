"""The page in a real Chromium, without network."""

import pytest
from playwright.sync_api import expect

from tests.tools.page.conftest import PLANTED, PLANTED_NAME, run_page, serious

pytestmark = pytest.mark.slow


def test_planted_scripts_do_not_run_and_are_shown_as_text(look, made):
    failed, completed = sorted((path.stem for path in (made / "runs").glob("*planted*")), key=len)
    for name in (f"runs/{failed}.html", "index.html", f"runs/{completed}.html"):
        page = look(name)
        if name == "index.html":
            page.fill("#words", PLANTED_NAME)
        assert page.evaluate("window.planted") is None
        assert page.locator("img").count() == 0
        assert page.evaluate("[...document.scripts].filter(one => !one.src).length") == 0
        assert PLANTED_NAME in page.inner_text("body")
        if name == f"runs/{failed}.html":
            assert PLANTED in page.inner_text("pre >> nth=0") and PLANTED in page.inner_text(".cause")
            expect(page.locator("[data-chart=gpu_memory]")).to_contain_text(PLANTED_NAME)


def test_run_has_its_curves_and_their_peak(look):
    page = look(run_page("j2"))
    assert page.locator(".charts figcaption").all_inner_texts()[:2] == ["Training loss", "Step time"]
    assert page.evaluate("Math.max(...document.querySelector('[data-chart=step_time]').data[0].y)") == 9


@pytest.mark.parametrize("name", ["index.html", run_page("j3")])
def test_page_is_accessible_in_light_and_dark_and_nothing_leaves_the_screen_of_a_phone(look, name):
    page = look(name, provoked=True, viewport={"width": 360, "height": 740})  # the check tries to fetch
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.set_viewport_size({"width": 1280, "height": 800})
    # Of rows that are all alike the first ones: the check looks at every cell.
    repeated = "tbody tr:nth-child(n+20)"
    page.evaluate(f"document.querySelectorAll('{repeated}').forEach(one => one.remove())")
    assert serious(page) == []


def test_list_shows_few_runs_at_first_and_those_with_every_word_of_the_filter(look):
    page = look("index.html")
    rows = page.locator("#runs tbody tr:visible")
    every = rows.count()
    page.evaluate("most = 10; filter()")  # a page of 100 runs takes long to make
    assert rows.count() == 10 and f"{every - 10} more match" in page.inner_text("#count")
    page.click("#more")
    assert rows.count() == every and page.locator("#more").is_hidden()
    page.fill("#words", "h200x4 full_shard completed")
    found = rows.all_inner_texts()
    assert found and all(word in text for text in found for word in ("h200x4", "full_shard", "completed"))
