"""Which CSV reader for many small GPU logs: time per log of pyarrow, polars and numpy, one by one and joined.

    pip install polars && python tools/benchmarks/csv_readers.py        # polars is compared only where it is installed

The logs are as the launcher writes them, with units (synthetic_runs.py); wanted are two columns of the six
as numbers. polars takes no blanks around a number, so for it blanks are deleted together with the units, which for
pyarrow become blanks. Reading the files is not in it; the readers take turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from synthetic_runs import write_runs

from tools.logs import batch, textcsv
from tools.logs.gpu_columns import CONTRACT

BLANKS = bytes.maketrans(b"MiB%", b"    ")
MEMORY, BUSY = CONTRACT.index("memory.used"), CONTRACT.index("utilization.gpu")


def with_pyarrow(lines: bytes) -> None:
    found = batch.numbers(lines.translate(BLANKS), CONTRACT, ["memory.used", "utilization.gpu"], [])
    assert found is not None


def with_polars(lines: bytes) -> None:
    import polars

    plain = io.BytesIO(lines.translate(None, b" MiB%"))
    types = {f"column_{MEMORY + 1}": polars.Float64, f"column_{BUSY + 1}": polars.Float64}
    polars.read_csv(plain, has_header=False, columns=[MEMORY, BUSY], quote_char=None, schema_overrides=types)


def with_numpy(lines: bytes) -> None:
    text = lines.translate(BLANKS).decode()
    np.loadtxt(io.StringIO(text), delimiter=",", usecols=(MEMORY, BUSY))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=64, help="number of logs")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    bodies = []
    with tempfile.TemporaryDirectory() as folder:
        for run in write_runs(Path(folder), 2 * options.logs):
            log = textcsv.read_bytes(next(run.glob("gpu_memory*.csv")))
            if len(bodies) < options.logs and b"N/A" not in log and log.count(b"timestamp") == 1:
                bodies.append(log[log.find(b"\n") + 1 :])
    bodies = [body for body in bodies if body.endswith(b"%\n")]
    joined = b"".join(bodies)
    readers: dict[str, Callable[[bytes], None]] = {"pyarrow": with_pyarrow, "numpy.loadtxt": with_numpy}
    if importlib.util.find_spec("polars"):
        readers["polars"] = with_polars
    times_us: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.repeats):
        for name, read in readers.items():
            for how, pieces in (("one by one", bodies), ("joined", [joined])):
                start = time.perf_counter()
                for piece in pieces:
                    read(piece)
                seconds = time.perf_counter() - start
                times_us.setdefault((name, how), []).append(seconds / len(bodies) * 1e6)
    print(f"{len(bodies)} logs of {len(joined) / len(bodies) / 1000:.0f} kB; median of {options.repeats}, per log\n")
    print("| reader | one by one (µs) | joined (µs) |\n|---|---|---|")
    for name in readers:
        print(
            f"| {name} | "
            + " | ".join(f"{statistics.median(times_us[name, how]):.0f}" for how in ("one by one", "joined"))
            + " |"
        )


if __name__ == "__main__":
    main()
