"""One page of a few runs and some reference runs, and a real Chromium to look at it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.tools.conftest import GPU_LOG, RECORD, write_run
from tools.commands.page import REFERENCE, build
from tools.logs.runs import find_runs

_PATIENCE_MS = 60_000  # a machine may have other work
# What would run if one text reached a page as HTML. A folder's name cannot hold a slash.
PLANTED_NAME = "<img src=x onerror=window.planted=1>"
PLANTED = f"\"'>{PLANTED_NAME}<script>window.planted=1</script></pre>{{{{7*7}}}}"
STEPS = "step,step_time_s,tokens,real_tokens,loss,epoch\n" + "".join(
    f"{step},{0.25 if step != 200 else 9},2048,700,{9 / step},{step / 100}\n" for step in range(1, 301)
)
SETTINGS = {"model_name": "bigscience/bloom-560m", "batch_size": 4, "train_size": 500, "fp16": True}
PLANTED_RECORD = {
    **dict.fromkeys(("host", "note", "slurm_job_id", "git_commit", "precision"), PLANTED),
    **{"experiment": PLANTED_NAME, "state": "failed", "reason": PLANTED, "gpu_names": [PLANTED]},
    **{"settings": {PLANTED: PLANTED, "rung": PLANTED}, "versions": {"torch": PLANTED}},
    **{"model": {"name": PLANTED_NAME}, "submission": f"TRAIN_SIZE='{PLANTED}' x.slurm"},
}
RECORDS = {
    "20261121-094500-j1": {"settings": SETTINGS},
    "20261121-104500-j2": {"settings": SETTINGS | {"batch_size": 8}, "submission": "BATCH_SIZE=8 baseline.slurm"},
    "20261121-114500-j3": {
        **{"exercise": "deepspeed-single-gpu", "config": "zero1", "settings": SETTINGS},
        **{"state": "oom", "exit_code": 1, "reason": "torch.OutOfMemoryError: CUDA out of memory."},
    },
}


def run_page(job: str) -> str:
    return f"runs/baseline-{next(name for name in RECORDS if name.endswith(job))}.html"


def serious(page: Page) -> list[tuple[str, str]]:
    """What keeps people from using the page, in light and in dark: the rule, and the first element that breaks it."""
    found = []
    for scheme, options in (("light", None), ("dark", {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=scheme)
        violations = Axe().run(page, options=options).response["violations"]
        found += [one for one in violations if one["impact"] in ("serious", "critical")]
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found]


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's folder."""
    folder = tmp_path_factory.mktemp("made")
    logs = folder / "logs"
    for name, record in RECORDS.items():
        write_run(logs, name, record, **{"steps.csv": STEPS})
    planted = {"train.out": f"{PLANTED}\n" * 3, f"gpu_memory-{PLANTED_NAME}.csv": GPU_LOG, "profile.txt": PLANTED}
    write_run(logs, PLANTED_NAME, RECORD | PLANTED_RECORD, **planted)
    write_run(logs, f"completed{PLANTED_NAME}", RECORD | PLANTED_RECORD | {"state": "completed"}, **planted)
    reference = find_runs(REFERENCE / "h200x1", REFERENCE / "h200x4")
    build(find_runs(logs), reference, [logs], folder / "page")
    return folder / "page"


@pytest.fixture
def look(chromium: Browser, made: Path) -> Iterator[Callable[..., Page]]:
    """look("index.html", color_scheme="dark") -> the page in a browser without network, its charts drawn.

    Errors in the browser fail the test unless it is `provoked`.
    """
    contexts, complaints = [], []

    def open_page(name: str, provoked: bool = False, **options) -> Page:
        context = chromium.new_context(offline=True, **options)
        context.set_default_timeout(_PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if not provoked:
            page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("request", lambda one: None if one.url.startswith("file:") else complaints.append(one.url))
        page.goto(f"{made.as_uri()}/{name}")
        expect(page.locator(".chart:not(:has(.main-svg))")).to_have_count(0, timeout=_PATIENCE_MS)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == [], "errors in the browser, or something was to be loaded from a network"
