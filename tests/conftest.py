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

# The longest first, so that no process is left alone with one of them at the end; the rest follows file by file.
LONGEST = (
    *("slurm/test_jobs", "slurm/test_job_faults", "foreign/test_foreign_models", "workshop/job/", "further/", "fsdp/"),
    *("tools/plan/", "test_readmes", "test_trainings_on_ranks", "test_chapters", "hub/", "deepspeed/", "slurm/"),
    *("workshop/kernels/", "workshop/simulate/", "workshop/test_launch", "custom_model/"),
)

# In `make test-all` only: a whole training, launchers on several processes whose configurations ranks have trained, a
# browser, the site, what is killed many times, and under its launcher the killed rank of test_faults.py.
SLOW = (
    "workshop/test_launch.py::test_quickstart_learns",
    "further/lora/test_lora.py::test_quality_experiment",
    "custom_model/test_custom_launchers.py::test_one_host",
    "tools/page/test_in_browser.py",
    "test_readmes.py::test_site",
    "further/speed-ladder/test_speed_ladder.py::test_launcher_trains_on_the_rung_and_configuration_given",
    "further/resilience/test_faults.py::test_training_killed_ten_times",
    "further/resilience/test_drill_launcher.py::test_killed_rank",
    "workshop/job/test_processes.py::test_ranks_do_not_outlive_their_launcher[node,",
    "workshop/data/test_without_hub.py::test_model_from_the_package_index",
)

# Tests send Ctrl-C to what they start. A shell that starts them in the background has all its children ignore it, and
# what is ignored is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)

# For what the tests start, their own processes beside each other included.
os.environ["PYTHONPATH"] = os.pathsep.join([str(REPO / "tests/startup"), *filter(None, [os.environ.get("PYTHONPATH")])])

if "PYTEST_XDIST_WORKER" in os.environ:
    # Each test has one processor; threads that wait for a busy one would only take it from the other test.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        starts = [item.nodeid.startswith(f"tests/{start}") for start in LONGEST]
        return starts.index(True) if any(starts) else len(starts)

    items.sort(key=place)  # stable: tests of one file stay in order
    for item in items:
        if item.nodeid.startswith(tuple(f"tests/{start}" for start in SLOW)):
            item.add_marker("slow")


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
