"""Run folders and repositories to read, made as small as a test needs them."""

import json
import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from workshop.record.exercises import REPO

RECORD = {
    **{"exercise": "baseline", "experiment": "baseline", "config": None, "command": ["python", "train.py"]},
    **{"start_time": "2026-11-21T09:45:00+00:00", "end_time": "2026-11-21T09:50:00+00:00", "state": "completed"},
    **{"exit_code": 0, "host": "node1", "nodes": 1, "gpus_per_node": 1, "world_size": 1, "device": "cuda"},
    **{"model": {"name": "bloom-560m"}, "train_examples": 500, "steps_per_epoch": 32},
}
TRAIN_OUT = """\
  0%|          | 0/96 [00:00<?, ?it/s]\r 33%|███▎      | 32/96 [00:46<01:33]{'loss': '1.9', 'epoch': '1'}
"""
SUMMARY = {
    **{"train_loss": 0.7039, "eval_loss": [1.2965, 1.581, 1.779], "exact_match": 41.0, "f1": 55.125},
    **{"train_runtime_s": 130.5, "train_samples_per_second": 11.5, "eval_samples_per_second": 39.4},
    **{"train/samples_per_second": 11.8, "train/steps_per_second": 0.7375},
    **{"peak_mem_alloc_mib": 19597.4, "avg_gpu_util_%": 88.25},
}
GPU_LOG = """\
timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
2026/11/21 09:45:01.000, 0, Tesla V100-SXM2-32GB, 0, 32768, 0
2026/11/21 09:45:02.000, 0, Tesla V100-SXM2-32GB, 21658, 32768, 100
2026/11/21 09:45:03.000, 0, Tesla V100-SXM2-32GB, 20000, 32768, 80
2026/11/21 09:45:04.000, 0, Tesla V100-SXM2-32GB, 2, 32768, 0
"""
CPU_LOG = """\
# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)
       0.000        0.000     1000.500     2000.000
       1.000      100.000     8000.250    16000.000
"""
STEPS = """\
step,step_time_s,tokens,real_tokens,loss,epoch
1,0.50,2048,700,2.5,0.25
2,0.25,2048,650,2.25,0.5
"""
EVIDENCE = {"train.out": TRAIN_OUT, "gpu_memory.csv": GPU_LOG, "cpu_memory.txt": CPU_LOG, "steps.csv": STEPS}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def write_run(
    logs: Path, name: str, record: dict[str, Any] | None = None, summary: dict | None = SUMMARY, **files: str | None
) -> Path:
    """A run folder below `logs`; the record's keys are changed as given, `...` leaves one out; a file given as None is
    left out; summary.json is given as an object.
    """
    merged = RECORD | (record or {})
    folder = logs / str(merged["experiment"]) / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({k: v for k, v in merged.items() if v is not ...}))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    for file, text in (EVIDENCE | files).items():
        if text is not None:
            (folder / file).write_text(text)
    return folder


def age(folder: Path, seconds: float) -> Path:
    """The run folder, each of whose files is now so old."""
    for path in folder.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)
    return folder


@pytest.fixture
def make_run(logs: Path):
    """make_run("20261121-094500-j1", {"config": "zero1"}, **{"train.out": None}) -> run folder."""
    return partial(write_run, logs)


@pytest.fixture
def make_readme(tmp_path: Path):
    """Writes baseline/README.md with the given text beside the baseline's tables.py; gives its path."""

    def make(text: str) -> Path:
        (tmp_path / "baseline").mkdir(exist_ok=True)
        (tmp_path / "baseline/README.md").write_text(text)
        shutil.copy(REPO / "baseline/tables.py", tmp_path / "baseline")
        return tmp_path / "baseline/README.md"

    return make
