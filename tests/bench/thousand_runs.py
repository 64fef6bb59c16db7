"""How long the tools need for the runs of a course: 1,000 copies of the reference runs, as if made one after the other.

    python tests/bench/thousand_runs.py
    python tests/bench/thousand_runs.py --runs 100

Prints a Markdown table of wall times.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

from tqdm import tqdm

REPO = Path(__file__).resolve().parents[2]
FIRST_START = datetime(2026, 1, 5, 9, tzinfo=UTC)


def write_runs(logs: Path, count: int) -> Iterator[Path]:
    """So many run folders, a minute apart; the reference runs in turn."""
    sources = sorted(path.parent for path in (REPO / "logs" / "reference").glob("**/run.json"))
    for number, source in enumerate(islice(cycle(sources), count)):
        record = json.loads((source / "run.json").read_text())
        start = FIRST_START + timedelta(minutes=number)
        if end := record.get("end_time"):
            length = datetime.fromisoformat(end) - datetime.fromisoformat(record["start_time"])
            record["end_time"] = (start + length).isoformat()
        folder = logs / record["exercise"] / f"{start:%Y%m%d-%H%M%S}-j{number}"
        shutil.copytree(source, folder)
        (folder / "run.json").write_text(json.dumps(record | {"start_time": start.isoformat()}))
        yield folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="thousand-runs-") as folder:
        logs, page = Path(folder, "logs"), str(Path(folder, "page"))
        for _ in tqdm(write_runs(logs, options.runs), total=options.runs, unit="run"):
            pass
        commands = {
            "`fill`, every exercise": [["fill", path.name] for path in sorted(logs.iterdir())],
            "`runs --figures`": [["runs", "--figures", "peak_gpu_mib,peak_cpu_mib,train_loss"]],
            "`watch --once`": [["watch", "--once"]],
            "`page`": [["page", "--output", page]],
        }
        print(f"{options.runs:,} runs, {os.cpu_count()} cores, load before {os.getloadavg()[0]:.1f}\n")
        print("| | time (s) |\n|---|---|")
        for name, calls in commands.items():
            start_s = time.perf_counter()
            for words in calls:
                command = [sys.executable, "-m", "tools", *words, "--logs", str(logs)]
                subprocess.run(command, cwd=REPO, stdout=subprocess.DEVNULL, check=True)
            print(f"| {name} | {time.perf_counter() - start_s:.2f} |", flush=True)


if __name__ == "__main__":
    main()
