"""The planner beside other projects' tables: tokens/s of their FSDP runs, and how layouts compare."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.plan import constants
from tools.plan.gpus import GPUS
from tools.plan.layout import Layout
from tools.plan.predict import predict_from
from tools.plan.simulate import step_of
from tools.plan.workload import Strategy, Workload
from tools.plan.workload_of import of_layout
from workshop.run_folder.printable import markdown

FILE = Path(__file__).with_name("published.toml")
PUBLISHED = tomllib.loads(FILE.read_text())["runs"]


def _shape(run: dict[str, Any]) -> dict[str, Any]:
    """A micro-batch of the textbook's training, as workshop.simulate.step_on_meta takes it."""
    sizes = {"model_name": run["model"], "batch_size": run["rows"], "max_length": run["length"]}
    return sizes | {"engine": "half", "precision": "bf16", "gradient_checkpointing": run.get("checkpointing", False)}


def table() -> str:
    """What the planner says of other projects' measured runs, and how wrong it is; then of layouts."""
    rows = []
    for run in PUBLISHED:
        gpu, gpus, published = run["gpu"], run["gpus"], run["tokens_per_s_per_gpu"]
        nodes = max(1, gpus // GPUS[gpu].per_node)
        config = {"version": 2, "dp_replicate_size": nodes if run["strategy"] == "hybrid_shard" else 1}
        fsdp = Strategy("fsdp2", gpus, 1, True, config)
        workload = Workload(_shape(run), fsdp, nodes, run["fabric_gb_per_s"], data_workers=True)
        speed = _tokens_per_second(workload, gpu) / gpus
        cells = [run["source"], run["name"], f"{gpus} x {gpu}, {run['strategy']}", f"{published:,.0f}"]
        rows.append([*cells, f"{speed:,.0f}", f"{100 * (speed / published - 1):+.0f}"])
    titles = ["source", "run", "GPUs", "published (tokens/s per GPU)", "predicted", "error (%)"]
    return f"{markdown(titles, rows)}\n\n{_layouts_table()}"


def _tokens_per_second(workload: Workload, gpu: str, **fast: Any) -> float:
    """Args: fast: of the shape, what is not simulated."""
    step = step_of(workload.shape)
    workload = replace(workload, shape=workload.shape | fast)
    return predict_from(step, workload, GPUS[gpu], constants.load()).ranges["tokens_per_second"].expected


# torchtitan's table 2, read on 2026-11-24: layouts of 8 GPUs, and their tokens/s per GPU.
_LAYOUTS = [Layout(8 // cp, 1, cp, 1, 1, 32_768 * cp, 1, 4_096, 1_024, True) for cp in (1, 2, 4, 8)]
_OF_LAYOUTS = (3_890, 2_540, 1_071, 548)
_MODEL = {"model_name": "llama-3.1-8b"}


def shapes() -> list[dict[str, Any]]:
    """The steps of the published tables."""
    return [*map(_shape, PUBLISHED), *(layout.shape | _MODEL for layout in _LAYOUTS)]


def _layouts_table() -> str:
    """How fast a layout is beside the first of its table."""
    rows = []
    # Theirs ran compiled and in float8, whose memory cannot be simulated with checkpointing.
    fast = {"compile": True, "float8": "tensorwise"}
    workloads = [of_layout(_MODEL, layout, 1, fabric_gb_per_s=400) for layout in _LAYOUTS]
    speeds = [_tokens_per_second(workload, "h100-80gb", **fast) for workload in workloads]
    for layout, of_theirs, speed in zip(_LAYOUTS, _OF_LAYOUTS, speeds, strict=True):
        told, predicted = of_theirs / _OF_LAYOUTS[0], speed / speeds[0]
        cells = ["2, 8 GPUs", layout.name, f"{layout.length:,}", f"{layout.micro_batches}"]
        cells += [f"{of_theirs:,}", f"{told:.2f}", f"{predicted:.2f}", f"{100 * (predicted / told - 1):+.0f}"]
        rows.append(cells)
    titles = ["torchtitan's table", "layout", "tokens per row", "micro-batches", "published (tokens/s per GPU)"]
    return markdown([*titles, "over the first", "predicted", "error (%)"], rows)
