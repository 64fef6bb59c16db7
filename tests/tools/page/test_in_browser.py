"""The page in a real Chromium, without network."""

import re

import pytest
from playwright.sync_api import expect

from tests.tools.page.conftest import PLANTED, PLANTED_NAME, run_page, serious

A, B = (run_page(job).removeprefix("runs/").removesuffix(".html") for job in ("j1", "j2"))
COMPARE = f"compare.html#a={A}&b={B}"


def test_planted_scripts_do_not_run_and_are_shown_as_text(look, made):
    failed, completed = sorted((path.stem for path in (made / "runs").glob("*planted*")), key=len)
    for name in (f"runs/{failed}.html", "index.html", "tables.html", f"compare.html#a={failed}&b={completed}"):
        page = look(name)
        if name == "index.html":
            page.select_option("#f-config", PLANTED)
            page.locator(".scatterlayer .point").hover(force=True)
            expect(page.locator(".hoverlayer")).to_contain_text(PLANTED)
        assert page.evaluate("window.planted") is None
        assert page.locator("img").count() == 0
        assert page.evaluate("[...document.scripts].filter(one => !one.src).length") == 0
        if name != "tables.html":
            assert PLANTED_NAME in page.inner_text("body")
        if name.startswith("runs/"):
            assert PLANTED in page.inner_text("pre >> nth=0") and PLANTED in page.inner_text(".cause")
            expect(page.locator("[data-chart=gpu_memory]")).to_contain_text(PLANTED_NAME)


def test_script_that_escapes_the_templates_would_still_not_run(look):
    page = look("figures.html", provoked=True)
    blocked = page.evaluate(
        """() => new Promise(resolve => {
          document.addEventListener("securitypolicyviolation", event => resolve(event.violatedDirective));
          const script = document.createElement("script");
          script.textContent = "window.planted = 1";
          document.body.append(script);
        })"""
    )
    assert blocked.startswith("script-src") and page.evaluate("window.planted") is None


def test_filter_leaves_the_runs_asked_for_in_the_list_and_in_the_chart(look):
    page = look("index.html")
    shown = page.locator("#runs tbody tr:visible")
    assert shown.count() == 5 and page.locator(".scatterlayer .point").count() == 3
    page.select_option("#f-kind", "reference")
    page.select_option("#f-exercise", "fsdp")
    assert set(page.locator("#runs tbody tr:visible td:nth-child(5)").all_inner_texts()) == {"fsdp"}
    assert page.locator(".scatterlayer .point").count() >= 10
    page.fill("#f-text", "no such run")
    assert shown.count() == 0
    expect(page.locator("#scatter")).to_contain_text("run that is shown has both")
    page.click("text=Show all")
    assert shown.count() == page.locator("#runs tbody tr").count() > 20


def test_list_is_not_clipped_and_a_phone_shows_the_state(look):
    page = look("index.html")
    page.select_option("#f-kind", "reference")
    for width in (360, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        box = page.locator("#runs th", has_text="State").bounding_box()
        assert box["x"] + box["width"] <= width
        hidden = "(one => one.scrollWidth - one.clientWidth)(document.querySelector('#runs').parentElement)"
        assert page.evaluate(hidden) == 0 or width == 360


def test_point_of_the_chart_names_its_run_and_opens_it_with_its_curves_and_their_peak(look):
    page = look("index.html")
    page.fill("#f-text", "j2")
    page.locator(".scatterlayer .point").hover(force=True)
    expect(page.locator(".hoverlayer")).to_contain_text("20261121-104500-j2")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(re.compile("runs/baseline-20261121-104500-j2.html$"))
    page.wait_for_selector("[data-chart=step_time] .main-svg")
    assert page.locator(".charts figcaption").all_inner_texts()[:2] == ["Training loss", "Step time"]
    longest = page.evaluate("Math.max(...document.querySelector('[data-chart=step_time]').data[0].y)")
    assert longest == 9
    assert "largest 9" in page.get_attribute("[data-chart=step_time]", "aria-label")


def test_cell_of_several_runs_leads_to_a_list_of_them(look, made):
    ids = [path.stem for path in (made / "runs").glob("h200x4-fsdp*")][:2]
    page = look(f"index.html#runs={','.join(ids)}")
    assert page.locator("#runs tbody tr:visible").count() == 2
    assert "runs of one cell" in page.inner_text("#count")


def test_two_runs_are_compared_in_settings_figures_and_curves(look):
    page = look("index.html")
    for run in (A, B):
        page.check(f"[aria-label='compare {run.removeprefix('baseline-')}']")
    page.click("text=Compare two runs")
    page.wait_for_selector("#t-figures td")
    assert re.search(r"batch_size\s+8\s+4", page.inner_text("#t-differences"))
    assert "train_size" not in page.inner_text("#t-differences")
    assert re.search(r"Peak GPU Memory[ \w]* \(MiB\)\s+21,658\s+21,658\s+1\n", page.inner_text("#t-figures"))
    page.wait_for_selector("#charts figure:nth-child(4) .main-svg")
    page.reload()
    page.wait_for_selector("#t-figures td")


@pytest.mark.parametrize("name", ["index.html", "tables.html", "figures.html", run_page("j3"), COMPARE])
def test_page_is_accessible_in_light_and_dark_and_nothing_leaves_the_screen_of_a_phone(look, name):
    page = look(name, provoked=True, viewport={"width": 360, "height": 740})  # the check tries to fetch
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.set_viewport_size({"width": 1280, "height": 800})
    # Of tables and rows that are all alike the first ones: the check looks at every cell.
    repeated = "section[id^=table]:nth-of-type(n+5), tbody tr:nth-child(n+20)"
    page.evaluate(f"document.querySelectorAll('{repeated}').forEach(one => one.remove())")
    assert serious(page) == []


def test_keyboard_alone_reaches_the_content_and_orders_the_list(look):
    page = look("index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.focus("#runs th:nth-child(2) button")
    page.keyboard.press("Enter")
    first = page.locator("#runs tbody tr:visible th").first
    assert page.get_attribute("#runs th:nth-child(2)", "aria-sort") == "ascending"
    before = first.inner_text()
    page.keyboard.press("Enter")
    assert first.inner_text() != before


def test_dark_page_has_dark_charts_and_its_paper_is_white(look):
    page = look(run_page("j2"), color_scheme="dark")
    axis, body = page.locator(".chart .xtitle").first, page.locator("body")
    expect(axis).to_have_css("fill", "rgb(228, 232, 235)")
    expect(body).not_to_have_css("background-color", "rgb(255, 255, 255)")
    dull = """() => [...document.querySelectorAll(".chart .trace")].filter(one => {
      for (let above = one; above; above = above.parentElement)
        if (getComputedStyle(above).filter.startsWith("brightness")) return false;
      return true;
    }).length"""
    assert page.locator(".chart .trace").count() > 0 and page.evaluate(dull) == 0, "lines in the colours for white"
    page.emulate_media(media="print")
    expect(axis).to_have_css("fill", "rgb(28, 33, 38)")
    expect(body).to_have_css("background-color", "rgb(255, 255, 255)")
    assert not page.is_visible("header nav")
    width = page.evaluate(
        """async () => {
          dispatchEvent(new Event("beforeprint"));
          await new Promise(resolve => setTimeout(resolve, 200));
          return Math.max(...[...document.querySelectorAll(".main-svg")].map(one => one.clientWidth));
        }"""
    )
    assert 0 < width <= 660
