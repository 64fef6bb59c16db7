"""The planner beside other projects' tables: tokens/s of their FSDP runs, and how layouts compare."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tools.plan import constants
from tools.plan.gpus import GPUS
from tools.plan.layout import Layout
from tools.plan.predict import predict_from
from tools.plan.simulate import steps, without_errors
from tools.plan.workload import Strategy, Workload, of_layout
from workshop.run_folder.printable import markdown


def _shape(model: str, length: int, rows: int, checkpointing: bool = False) -> dict[str, Any]:
    """A micro-batch of the textbook's training, as workshop.simulate.step_on_meta takes it."""
    return {
        **{"model_name": model, "batch_size": rows, "max_length": length, "engine": "half", "precision": "bf16"},
        "gradient_checkpointing": checkpointing,
    }


# Read in these files on 2026-11-22.
_TITAN = (
    "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3",
    "Llama-3.1-8B, 2 x 8,192, selective checkpointing, H100 of 500 W and 2.4 TB/s",
    _shape("llama-3.1-8b", 8192, 2),
)
_FOUNDRY = "llm-foundry, scripts/train/benchmarking/README.md (MPT-7B, here Llama-2-7B)"
_MPT = _shape("llama-2-7b", 2048, 16, checkpointing=True)
_IBM = (
    "fms-fsdp, README.md, 7b: HSDP, no checkpointing, 400 and 800 Gbit/s per node",
    "Llama-2-7B, 2 x 4,096",
    _shape("llama-2-7b", 4096, 2),
)
_KEMPNER = "KempnerForge, benchmarks/mfu_scaling/mfu_scaling_2026-04-05.md, row 4"
_AGAIN = _shape("llama-3.1-8b", 4096, 4, checkpointing=True)
# Source, run, step; GPU, how many in all, strategy, a node's bandwidth (GB/s); tokens/s per GPU, as published.
PUBLISHED = (
    (*_TITAN, "h100-80gb", 8, "full_shard", 400, 5762),
    (*_TITAN, "h100-80gb", 128, "full_shard", 400, 5605),
    (_FOUNDRY, "7B, 6 x 2,048", _shape("llama-2-7b", 2048, 6), "h100-80gb", 8, "full_shard", 400, 10643),
    (_FOUNDRY, "7B, 16 x 2,048, checkpointing", _MPT, "a100-40gb", 16, "full_shard", 200, 3645),
    (*_IBM, "a100-80gb", 128, "hybrid_shard", 50, 3700),
    (*_IBM, "h100-80gb", 96, "hybrid_shard", 100, 7500),
    # 38,983 tokens/s of all four; its two micro-batches per step are here one.
    (_KEMPNER, "8.03B, 4 x 4,096, checkpointing", _AGAIN, "h200", 4, "full_shard", 400, 38_983 / 4),
)


def table() -> str:
    """What the planner says of other projects' measured runs, and how wrong it is; then of layouts."""
    rows = []
    for source, run, shape, gpu, gpus, strategy, fabric_gb_per_s, published in PUBLISHED:
        nodes = max(1, gpus // GPUS[gpu].per_node)
        copies = nodes if strategy == "hybrid_shard" else 1
        fsdp = Strategy("fsdp2", gpus, 1, True, {"version": 2, "dp_replicate_size": copies})
        workload = Workload(shape, fsdp, nodes, fabric_gb_per_s, data_workers=True)
        speed = _tokens_per_second(workload, gpu) / gpus
        error = f"{100 * (speed / published - 1):+.0f}"
        rows.append([source, run, f"{gpus} x {gpu}, {strategy}", f"{published:,.0f}", f"{speed:,.0f}", error])
    titles = ["source", "run", "GPUs", "published (tokens/s per GPU)", "predicted", "error (%)"]
    return f"{markdown(titles, rows)}\n\n{_layouts_table()}"


def _tokens_per_second(workload: Workload, gpu: str, **fast: Any) -> float:
    """Args: fast: of the shape, what is not simulated."""
    (step,) = without_errors(steps([workload.shape]))
    workload = replace(workload, shape=workload.shape | fast)
    return predict_from(step, workload, GPUS[gpu], constants.load()).ranges["tokens_per_second"].expected


# torchtitan's tables of layouts, read on 2026-11-24. Table 5 does not say how many micro-batches and stages: here as
# many as ranks, torchtitan's default; interleaved two stages per rank. Llama-3.1-405B is no shape of workshop/shapes;
# its sizes are in torchtitan/models/llama/__init__.py.
_SIZES = {"hidden_size": 16_384, "intermediate_size": 53_248, "num_hidden_layers": 126, "vocab_size": 128_256}
_SIZES |= {"num_attention_heads": 128, "num_key_value_heads": 8}
_8B, _405B = {"model_name": "llama-3.1-8b"}, {"model_name": "llama", "module": "transformers", "sizes": _SIZES}
_CP = [Layout(8 // cp, 1, cp, 1, 1, 32_768 * cp, 1, 4_096, 1_024, True) for cp in (1, 2, 4, 8)]
_ALL = [Layout(8 // cp, 8, cp, 8, 1, 32_768 * cp, 8, 16_384, 1_024, True) for cp in (1, 2, 4, 8)]
_SCHEDULES = [Layout(8, 8, 1, 8, chunks, 8_192, 8, 16_384, 1_024, True) for chunks in (1, 2)]
# Table, nodes, model, layouts and their tokens/s per GPU.
_LAYOUTS = (
    (2, 1, _8B, _CP, (3_890, 2_540, 1_071, 548)),
    (6, 64, _405B, _ALL, (76, 47, 31, 16)),
    (5, 64, _405B, _SCHEDULES, (100, 128)),
)


def shapes() -> list[dict[str, Any]]:
    """The steps of the published tables."""
    layouts = [layout.shape | model for _, _, model, layouts, _ in _LAYOUTS for layout in layouts]
    return [*(step for _, _, step, *_ in PUBLISHED), *layouts]


def _layouts_table() -> str:
    """How fast a layout is beside the first of its table."""
    rows = []
    for table, nodes, model, layouts, published in _LAYOUTS:
        speeds = []
        for layout, of_theirs in zip(layouts, published, strict=True):
            # Theirs ran compiled and in float8, whose memory cannot be simulated with checkpointing.
            workload = of_layout(model, layout, nodes, fabric_gb_per_s=400)
            speeds.append(_tokens_per_second(workload, "h100-80gb", compile=True, float8="tensorwise"))
            told, predicted = of_theirs / published[0], speeds[-1] / speeds[0]
            cells = [f"{table}, {8 * nodes} GPUs", layout.name, f"{layout.length:,}", f"{layout.micro_batches}"]
            cells += [f"{of_theirs:,}", f"{told:.2f}", f"{predicted:.2f}", f"{100 * (predicted / told - 1):+.0f}"]
            rows.append(cells)
    titles = ["torchtitan's table", "layout", "tokens per row", "micro-batches", "published (tokens/s per GPU)"]
    return markdown([*titles, "over the first", "predicted", "error (%)"], rows)
