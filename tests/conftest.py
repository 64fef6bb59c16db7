"""How the tests share a machine: three at a time (`make test`), but a file's, which share trainings, in one process."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launching import REPO
from tests.planted_keys import KEYS, leaked
from tests.trainings_on_ranks import Ranks

# Tests send Ctrl-C to what they start. A shell that starts them in the background has all its children ignore it, and
# what is ignored is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)

# For what the tests start, their own processes beside each other included.
os.environ["PYTHONPATH"] = os.pathsep.join([str(REPO / "tests/startup"), *filter(None, [os.environ.get("PYTHONPATH")])])

if "PYTEST_XDIST_WORKER" in os.environ:
    # Each test has one processor; threads that wait for a busy one would only take it from the other test.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start long files first, so that no process is left alone with one at the end, and the tools' last."""
    tools = REPO / "tests/tools"
    items.sort(key=lambda item: (not item.get_closest_marker("long"), item.path.is_relative_to(tools)))  # stable


os.environ |= KEYS


@pytest.fixture(scope="session", autouse=True)
def no_key_in_any_run_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever the tests of a session launch, of all exercises, writes no key of its environment down."""
    yield
    assert leaked(tmp_path_factory.getbasetemp()) == []


@pytest.fixture(scope="session")
def optimizers_compiled() -> None:
    """DeepSpeed's optimizers, compiled before the tests: minutes of it do not belong into a test's time and memory."""
    code = "import sys; from workshop.kernels.operators import EXERCISES, missing; sys.exit(missing(EXERCISES) or 0)"
    check = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True)
    if check.returncode:
        pytest.fail(f"not compiled, run `make operators`: {check.stderr.strip().splitlines()[-1]}")


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Trains in processes that need not import PyTorch first."""
    with Ranks() as started:
        yield started


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser; skips where there is none, and fails with REQUIRE_CHROMIUM=1, so that CI cannot lose its tests."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        message = "no chromium on this machine (Debian: apt-get install chromium)"
        pytest.fail(message) if os.environ.get("REQUIRE_CHROMIUM") == "1" else pytest.skip(message)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def sample_logs() -> Path:
    """Real logs by others, kept outside the repository."""
    if "SHARDLAB_TEST_DATA" not in os.environ:
        pytest.skip("set SHARDLAB_TEST_DATA to the folder of real sample data to run this test")
    return Path(os.environ["SHARDLAB_TEST_DATA"]) / "logs"
