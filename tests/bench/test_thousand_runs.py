"""The script that says how long the tools need for a course's runs works, whatever the times are."""

import re
import subprocess
import sys

from tests.launching import REPO


def test_script_prints_a_row_per_command() -> None:
    command = [sys.executable, "tests/bench/thousand_runs.py", "--runs", "4"]
    printed = subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True, timeout=300).stdout
    assert printed.startswith("4 runs, ")
    assert len(re.findall(r"^\| .+ \| [\d.]+ \|$", printed, re.MULTILINE)) == 4
