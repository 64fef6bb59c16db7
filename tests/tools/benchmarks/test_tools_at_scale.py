import re
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[3]


def run(*words: str) -> str:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True, timeout=300).stdout


def test_benchmark_prints_a_row_per_measurement_with_its_ratio_to_reading():
    printed = run("tools/benchmarks/tools_at_scale.py", "--runs", "40", "--repeats", "1")
    assert printed.startswith("40 runs, ")
    rows = re.findall(r"^\| (.+?) \| [\d.]+ \| [\d.]+ to [\d.]+ \| ([\d.]+) \| [\d.]+ \|$", printed, re.MULTILINE)
    assert rows[0] == ("every file read once", "1.00")
    assert len(rows) == 5
    assert re.search(r"is parsed: \d+ MiB", printed)


def test_command_in_the_tools_readme_is_that_of_the_benchmark():
    readme = (REPO / "tools/README.md").read_text()
    section = readme.split("## At the size of a course")[1]
    assert "python tools/benchmarks/tools_at_scale.py" in section
    runs = re.search(r"([\d,]+) runs, [\d,]+ files, [\d,]+ MB", section)
    assert runs and int(runs[1].replace(",", "")) >= 1_000
