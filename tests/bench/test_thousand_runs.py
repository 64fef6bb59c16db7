"""The script that says how long the tools need for a course's runs works, whatever the times are."""

import re
import subprocess
import sys

from tests.bench.thousand_runs import write_runs
from tests.launching import REPO
from tools.logs.runs import find_runs


def test_script_prints_a_row_per_command() -> None:
    command = [sys.executable, "tests/bench/thousand_runs.py", "--runs", "20"]
    printed = subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True, timeout=300).stdout
    assert printed.startswith("20 runs, ")
    assert len(re.findall(r"^\| .+ \| [\d.]+ \|$", printed, re.MULTILINE)) == 4


def test_runs_are_read_and_each_has_a_time_of_its_own(tmp_path) -> None:
    written = list(write_runs(tmp_path, 40))
    runs = find_runs(tmp_path)
    assert [run.folder for run in runs] == written and not any(run.problem for run in runs)
    assert len({run.start for run in runs}) == 40
