"""Run folders as a course's jobs leave them (logs/README.md), of any number: input for benchmarks and tests.

    python tools/benchmarks/synthetic_runs.py --runs 10000 FOLDER

Shapes, sizes and oddities are a real cluster's, the figures in them are random: nothing here is a measurement. The
same seed writes the same bytes. About 100 KB a run. Of all runs, 13 % ran on two nodes (a log per node, a fabric
check), 6 % ran out of memory and end in the middle of a line, 5 % have no summary.json, 4 % of the GPU logs are without
units, 4 % report no utilisation, and 3 % were continued by a restarted logger in the same file.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

FIRST_START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
GPU_HEADER = "timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n"
CPU_HEADER = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n"
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
# Exercise, configurations, model, nodes, GPUs per node: the rows and columns of the exercises' tables.
CELLS = [
    *[("baseline", None, "bloom-560m", 1, 1)] * 4,
    *[("deepspeed-single-gpu", f"zero{s}{o}", "bloom-560m", 1, 1) for s in (1, 2, 3) for o in ("", "_offload")],
    *[("deepspeed-multi-gpu", f"zero{s}{o}", "bloom-1b7", 1, 2) for s in (1, 2, 3) for o in ("", "_offload")],
    *[("fsdp", config, "bloom-560m", 1, 4) for config in ("full_shard", "shard_grad_op", "full_shard_offload")],
    *[("fsdp", "full_shard", "bloom-560m", 2, 1), ("custom_model", None, "custom", 2, 1)],
    ("custom_model", None, "custom", 1, 2),
]


@dataclass(frozen=True)
class Oddities:
    """What is unusual about one run's files."""

    out_of_memory: bool
    no_summary: bool
    no_units: bool
    no_utilisation: bool
    restarted: bool


def write_runs(logs: Path, count: int, seed: int = 0, samples: int = 560) -> Iterator[Path]:
    """Write `count` run folders below `logs` and give each when it is there.

    Args:
        samples: mean number of lines of a run's GPU logs and of its psrecord logs.
    """
    for number in range(count):
        yield _write_run(logs, number, random.Random(f"{seed}-{number}"), samples)


def _write_run(logs: Path, number: int, rng: random.Random, samples: int) -> Path:
    exercise, config, model, nodes, gpus = CELLS[number % len(CELLS)]
    odd = Oddities(*(rng.random() < share for share in (0.06, 0.05, 0.04, 0.04, 0.03)))
    start = FIRST_START + timedelta(seconds=60 * number)
    folder = logs / exercise / f"{start:%Y%m%d-%H%M%S}-j{100_000 + number}"
    folder.mkdir(parents=True)
    lines = max(4, int(samples * rng.uniform(0.4, 1.6)))
    numbers = np.random.default_rng(rng.getrandbits(64))
    steps = max(2, lines // 4)
    files = {
        "run.json": json.dumps(_record(exercise, config, model, nodes, gpus, start, lines, odd), indent=2) + "\n",
        "train.out": _train_out(numbers, steps, odd),
        "steps.csv": _steps(numbers, steps),
    }
    if not (odd.no_summary or odd.out_of_memory):
        files["summary.json"] = json.dumps(_summary(numbers), indent=2) + "\n"
    for node in range(nodes):
        suffix = f"-node{node + 1}" if nodes > 1 else ""
        files[f"gpu_memory{suffix}.csv"] = _gpu_log(numbers, start, lines // nodes, gpus, odd)
        files[f"cpu_memory{suffix}.txt"] = _cpu_log(numbers, lines // nodes, 1.002)
        files[f"cpu_pss{suffix}.txt"] = _cpu_log(numbers, lines // nodes // 5, 5.011)
    if nodes > 1:
        files["nccl.log"] = _fabric(numbers, nodes)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def _record(exercise, config, model, nodes: int, gpus: int, start: datetime, lines: int, odd: Oddities) -> dict:
    settings = {"experiment_name": exercise, "model_name": f"bigscience/{model}", "max_length": 512, "train_size": 500}
    settings |= {"batch_size": 4, "grad_acc": 4, "num_epochs": 3, "fp16": True, "bf16": False, "use_fsdp": gpus > 1}
    return {
        "exercise": exercise,
        "experiment": exercise,
        "config": config,
        "command": ["python", "train.py"],
        "host": "node1",
        "nodes": nodes,
        "gpus_per_node": gpus,
        "emulated_nodes": False,
        "slurm_job_id": "1",
        "git_commit": "0" * 40,
        "git_dirty": False,
        "git_diff": "",
        "start_time": start.isoformat(),
        "state": "oom" if odd.out_of_memory else "completed",
        "settings": settings,
        "world_size": nodes * gpus,
        "model": {"name": model, "parameters": 559_214_592},
        "precision": "fp16",
        "sharding": {"method": "ddp", "parameters": False, "gradients": False, "optimizer": False},
        "device": "cuda",
        "gpu_names": ["GPU"] * gpus,
        "train_examples": 500,
        "eval_examples": 100,
        "steps_per_epoch": 32,
        "exit_code": int(odd.out_of_memory),
        **({"reason": f"train.out:9: {OUT_OF_MEMORY}"} if odd.out_of_memory and not odd.restarted else {}),
        "end_time": (start + timedelta(seconds=lines)).isoformat(),
    }


def _summary(numbers: np.random.Generator) -> dict:
    keys = ["train_runtime_s", "train_loss", "train_samples_per_second", "train_steps_per_second"]
    keys += ["eval_samples_per_second", "train/samples_per_second", "train/steps_per_second"]
    keys += ["train/tokens_per_second", "train/real_tokens_per_second", "avg_mem_alloc_MB", "avg_mem_total_MB"]
    keys += ["avg_gpu_util_%", "std_gpu_util_%", "peak_mem_alloc_mib", "peak_mem_reserved_mib", "exact_match", "f1"]
    return dict(zip(keys, numbers.uniform(1, 100, len(keys)).tolist(), strict=True)) | {"eval_loss": [3.0, 2.5, 2.25]}


def _train_out(numbers: np.random.Generator, steps: int, odd: Oddities) -> str:
    lines = ["[INFO] Running in WANDB offline mode\n"]
    for step, loss in enumerate(numbers.uniform(1, 9, steps).tolist(), 1):
        bar = f"\r {100 * step // steps:3}%|###   | {step}/{steps} [00:46<01:33,  2.31it/s]"
        lines.append(f"{bar}{{'loss': '{loss:.4g}', 'grad_norm': '5.1', 'epoch': '{3 * step / steps:.4g}'}}\n")
    if odd.out_of_memory:
        lines.append(f"{OUT_OF_MEMORY}\n")
    else:
        for epoch in (1, 2, 3):
            speeds = "'eval_runtime': '2.5', 'eval_samples_per_second': '39.4'"
            lines.append(f"{{'eval_loss': '{4 / epoch:.4g}', {speeds}, 'epoch': '{epoch}'}}\n")
        lines.sort(key=_epoch)  # an evaluation is printed at its epoch's end
        speeds = "'train_samples_per_second': '11.5', 'train_steps_per_second': '0.7'"
        lines.append(f"{{'train_runtime': '{steps * 0.5:.4g}', {speeds}, 'train_loss': '2.5', 'epoch': '3'}}\n")
    return "".join(lines)


def _epoch(line: str) -> float:
    return float(line.split("'epoch': '")[1].split("'")[0]) if "'epoch'" in line else 0.0


def _steps(numbers: np.random.Generator, steps: int) -> str:
    times, losses = numbers.uniform(0.2, 0.5, steps).tolist(), numbers.uniform(1, 9, steps).tolist()
    real = numbers.integers(2000, 8000, steps).tolist()
    rows = (
        f"{i},{t},8192,{r},{loss},{i / 32:.4g}\n"
        for i, (t, r, loss) in enumerate(zip(times, real, losses, strict=True), 1)
    )
    return "step,step_time_s,tokens,real_tokens,loss,epoch\n" + "".join(rows)


def _gpu_log(numbers: np.random.Generator, start: datetime, lines: int, gpus: int, odd: Oddities) -> str:
    used = numbers.integers(0, 80_000, lines).tolist()
    busy = ["[N/A]"] * lines if odd.no_utilisation else numbers.integers(0, 101, lines).tolist()
    mib, percent = ("", "") if odd.no_units else (" MiB", " %" if not odd.no_utilisation else "")
    rows = [GPU_HEADER]
    stamp = ""
    for i, (memory, share) in enumerate(zip(used, busy, strict=True)):
        if i % gpus == 0:
            stamp = f"{start + timedelta(seconds=i // gpus):%Y/%m/%d %H:%M:%S}.994"
        rows.append(f"{stamp}, {i % gpus}, NVIDIA H200, {memory}{mib}, 143771{mib}, {share}{percent}\n")
    if odd.restarted:
        rows.insert(lines // 2, GPU_HEADER)
    if odd.out_of_memory:
        rows[-1] = rows[-1][: lines % 60]
    return "".join(rows)


def _cpu_log(numbers: np.random.Generator, lines: int, interval_s: float) -> str:
    real, cpu = numbers.uniform(500, 9000, lines).tolist(), numbers.uniform(0, 900, lines).tolist()
    rows = (
        f"{i * interval_s:12.3f} {c:12.3f} {r:12.3f} {4 * r:12.3f}\n"
        for i, (c, r) in enumerate(zip(cpu, real, strict=True))
    )
    return CPU_HEADER + "".join(rows)


def _fabric(numbers: np.random.Generator, nodes: int) -> str:
    ranks = [f"#  Rank  {r} Group  0 Pid  1 on  node{r + 1} device  0 [0x00] NVIDIA H200\n" for r in range(nodes)]
    gb_per_s = numbers.uniform(5, 50)
    figures = f"{4294967296 / gb_per_s / 1e3:.1f} {gb_per_s:.2f} {gb_per_s:.2f} N/A"
    row = f" 4294967296 1073741824 float sum -1 {figures} {figures}\n"
    return "# Collective test starting: all_reduce_perf\n" + "".join(ranks) + row


def main() -> None:
    from tqdm import tqdm

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the runs go; it must not hold any yet")
    parser.add_argument("--runs", type=int, default=10_000)
    options = parser.parse_args()
    for _ in tqdm(write_runs(options.folder, options.runs), total=options.runs, unit="run", mininterval=1):
        pass


if __name__ == "__main__":
    main()
