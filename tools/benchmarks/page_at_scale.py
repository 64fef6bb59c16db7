"""How long `python -m tools page` takes for 1,000 runs, how large the page is, and how soon a browser shows it.

    python tools/benchmarks/page_at_scale.py
    python tools/benchmarks/page_at_scale.py --runs 100 --repeats 3

The runs are synthetic (synthetic_runs.py), the reference runs are the repository's. Each repeat reads every log again.
The browser is Chromium without a window, started anew for each page: its load event is when the text is there and can
be used, `charts` when the first chart is drawn. The CPU time of the page's own process until all is shown depends less
on what else the machine does. Prints a Markdown table of medians with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
from pathlib import Path

import psutil
from playwright.sync_api import Browser, sync_playwright
from synthetic_runs import write_runs
from tools_at_scale import timed_s, tools
from tqdm import tqdm

PATIENCE_MS = 120_000
# The moment at which the first chart is there, which may be long before anybody outside of a busy page hears of it.
NOTE_CHART = """new MutationObserver((_, observer) => {
  if (!document.querySelector(".chart .main-svg")) return;
  window.firstChart = performance.now();
  observer.disconnect();
}).observe(document, { childList: true, subtree: true });"""
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def shown_s(browser: Browser, page: Path, charts: bool) -> dict[str, float]:
    """Seconds from opening a page to its load event and to its first chart."""
    context = browser.new_context()
    context.add_init_script(NOTE_CHART)
    tab = context.new_page()
    tab.goto(page.as_uri(), timeout=PATIENCE_MS)
    found = {"load event": tab.evaluate(LOADED) / 1000}
    if charts:
        tab.wait_for_selector(".chart .main-svg", timeout=PATIENCE_MS)
        found["charts"] = tab.evaluate("window.firstChart") / 1000
        found["all, CPU time"] = page_cpu_s()
    context.close()
    return found


def page_cpu_s() -> float:
    """CPU time of the browser's processes that draw pages; there is only one page."""
    processes = [one for one in psutil.Process().children(recursive=True) if "--type=renderer" in one.cmdline()]
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def measure(logs: Path, page: Path, repeats: int) -> dict[str, list[float]]:
    """Seconds by what was measured, one per repeat."""
    times_s: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        for _ in tqdm(range(repeats), unit="repeat"):
            (logs / ".figures.json").unlink(missing_ok=True)
            shutil.rmtree(page, ignore_errors=True)
            wall_s, cpu_s = timed_s(lambda: tools("page", "--logs", str(logs), "--output", str(page)))
            found = {"the command": wall_s, "the command's CPU time": cpu_s}
            pages = {"the list of runs": "index.html", "tables": "tables.html", "a run": next(page.glob("runs/*")).name}
            for name, file in pages.items():
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                shown = shown_s(browser, next(page.rglob(file)), charts=name != "tables")
                browser.close()
                found |= {f"{name}: {what}": seconds for what, seconds in shown.items()}
            for what, seconds in found.items():
                times_s.setdefault(what, []).append(seconds)
    return times_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="page-at-scale-") as folder:
        logs, page = Path(folder) / "logs", Path(folder) / "page"
        logs.mkdir()
        for _ in tqdm(write_runs(logs, options.runs), total=options.runs, unit="run", mininterval=5):
            pass
        load = os.getloadavg()[0]
        times_s = measure(logs, page, options.repeats)
        files = [path for path in page.rglob("*") if path.is_file()]
        size_mb = sum(path.stat().st_size for path in files) / 1e6
        pages = len(list((page / "runs").iterdir()))
    print(f"{options.runs:,} runs and {pages - options.runs} reference runs: {len(files):,} files, {size_mb:.1f} MB")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load before {load:.1f}")
    print("\n| | median (s) | range (s) |\n|---|---|---|")
    for what, seconds in times_s.items():
        print(f"| {what} | {statistics.median(seconds):.2f} | {min(seconds):.2f} to {max(seconds):.2f} |")


if __name__ == "__main__":
    main()
