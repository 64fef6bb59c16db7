import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium on this machine")
def test_benchmark_prints_the_page_s_size_and_a_row_per_measurement():
    command = [sys.executable, "tools/benchmarks/page_at_scale.py", "--runs", "3", "--repeats", "1"]
    printed = subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True, timeout=500).stdout
    assert re.match(r"3 runs and \d+ reference runs: [\d,]+ files, [\d.]+ MB\n", printed)
    assert len(re.findall(r"^\| .+? \| [\d.]+ \| [\d.]+ to [\d.]+ \|$", printed, re.MULTILINE)) == 9
