"""Figures that compare runs: a function each, from a cell's selection of runs to the figure.

Figures of one run are fields of RunFigures (tools/logs/figures.py).
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from tools.errors import InputError, UnavailableError
from tools.logs.figures import DEFINITIONS
from tools.logs.run import Run
from tools.tables.ladder import STREAM, TEXTBOOK, TOP, below

Where = dict[str, Any]
# The runs that meet the conditions: one, or several that differ in REPEAT only.
Select = Callable[[Where], list[Run]]
Value = Callable[[Select, Where], float | bool]

_ALONE = {"nodes": 1, "gpus_per_node": 1, "world_size": 1}


class DamagedLogError(InputError):
    """A figure's file is damaged; the text says where."""


def of_run(name: str, missing: str = "", convert: Callable[[float], float] = lambda figure: figure) -> Value:
    """A field of RunFigures, converted, of repeats their median; `missing`: in place of the field's own word."""

    def value(select: Select, where: Where) -> float | bool:
        runs = select(where)
        for run in runs:
            if name in run.figures.damaged:
                raise DamagedLogError(run.figures.damaged[name])
        found = [figure for run in runs if (figure := getattr(run.figures, name)) is not None]
        if not found:
            figures = runs[-1].figures
            raise UnavailableError(missing if missing and name not in figures.missing else figures.reason(name))
        return found[-1] if isinstance(found[-1], bool) else median(map(convert, found))

    return value


_REAL_TOKENS = of_run("real_tokens_per_second")
_SAMPLES = of_run("samples_per_second")
_RUNTIME = of_run("train_runtime_s")


def ratio(of: Value, reference: Where | Callable[[Where], Where], sign: int = 1, scale: float = 1) -> Value:
    """scale x the figure here over that of the run that differs in `reference`, which may depend on the conditions.

    Args:
        sign: -1: the other way round, where less is better.
    """

    def value(select: Select, where: Where) -> float:
        here = of(select, where)
        there = of(select, where | (reference(where) if callable(reference) else reference))
        if not (here and there):
            raise UnavailableError("no factor defined from 0")
        return (here / there) ** sign * scale

    return value


def change_percent(of: Value, sign: int) -> Value:
    """sign x (offload - no offload) / no offload x 100, of two runs that differ in offload only."""

    def value(select: Select, where: Where) -> float:
        without = of(select, where | {"offload": False})
        if not without:
            raise UnavailableError("no change defined from 0")
        return sign * (of(select, where | {"offload": True}) - without) / without * 100

    return value


def _require_equal_work(select: Select, *sides: Where) -> None:
    """Raises: UnavailableError: the two sides trained on other amounts of data; their runtimes say nothing together:
    MAX_STEPS=25 on four GPUs is four times the work of MAX_STEPS=25 on one.
    """
    positions = [select(where)[-1].figures.positions_trained for where in sides]
    # The last step of an epoch is filled up.
    if all(positions) and not 1 / 1.1 < positions[0] / positions[1] < 1.1:
        raise UnavailableError("unequal work")


def runtime_scale_factor(select: Select, where: Where) -> float:
    """The runtime alone over the one here, of equal work."""
    _require_equal_work(select, where, where | _ALONE)
    return ratio(_RUNTIME, _ALONE, sign=-1)(select, where)


def runtime_change(select: Select, where: Where) -> float:
    """What offload does to the runtime, in percent, of equal work."""
    _require_equal_work(select, where | {"offload": False}, where | {"offload": True})
    return change_percent(_RUNTIME, 1)(select, where)


def _condition(where: Where, key: str) -> Any:
    """What a cell asks for. One run's figures have no cell, and none that compares runs."""
    if key not in where:
        raise UnavailableError("compares runs")
    return where[key]


def share_of_rung(rung: str) -> Value:
    """Real tokens per second over those of a rung at its own batch size, on the same machine, in percent."""

    def value(select: Select, where: Where) -> float:
        there = {key: wanted for key, wanted in where.items() if key != "batch_size"} | {"rung": rung}
        reference = _REAL_TOKENS(select, there)
        if not reference:
            raise UnavailableError("no share defined of 0")
        return _REAL_TOKENS(select, where) / reference * 100

    return value


def share_of_one_gpu(select: Select, where: Where) -> float:
    """Samples per second of this many GPUs over as many times those of one GPU alone, without any method."""
    here = _SAMPLES(select, where)
    same = {key: _condition(where, key) for key in ("model", "rung")}
    alone = _SAMPLES(select, same | {"exercise": "speed-ladder", "world_size": 1})
    if not alone:
        raise UnavailableError("no share defined of 0")
    return here / (alone * _condition(where, "world_size")) * 100


def shards(key: str) -> Value:
    """What a method can do: seen in any of its runs, or in none of those on several GPUs."""
    observed = of_run(f"shards_{key}")

    def value(select: Select, where: Where) -> float | bool:
        try:
            return observed(select, where | {f"shards_{key}": True})
        except UnavailableError:
            return observed(select, where | {"several_gpus": True})

    return value


# Metric: unit, decimals, definition, function.
COMPARISONS: dict[str, tuple[str, int, str, Value]] = {
    "memory_savings": (
        *("%", 1, "(no offload - offload) / no offload x 100 of the peak GPU memory"),
        change_percent(of_run("peak_gpu_mib"), -1),
    ),
    "runtime_change": (
        *("%", 1, "(offload - no offload) / no offload x 100 of the train runtime, of equal work"),
        runtime_change,
    ),
    # Not of runtimes: the first step alone, which loads kernels, can take as long as fifty others.
    "efficiency": (
        *("%", 1, "step time on 2 GPUs / step time on this many x 100, at the same rule"),
        ratio(of_run("step_time_ms"), {"world_size": 2}, sign=-1, scale=100),
    ),
    "samples_scale_factor": (
        *("", 2, "samples/s over samples/s of the same configuration on one GPU"),
        ratio(_SAMPLES, _ALONE),
    ),
    "runtime_scale_factor": (
        *("", 2, "train runtime of the same configuration on one GPU over the one here, of equal work"),
        runtime_scale_factor,
    ),
    "share_of_ddp": (
        *("%", 1, "samples/s over those of plain data parallelism, all else equal"),
        ratio(_SAMPLES, {"config": "ddp"}, scale=100),
    ),
    "gain_over_rung_below": (
        *("", 2, "real tokens/s over those of the rung below; of a variant: of 9"),
        ratio(_REAL_TOKENS, lambda where: {"rung": below(_condition(where, "rung"))}),
    ),
    "gain_over_textbook": (
        *("", 2, "real tokens/s over those of rung 0, on the same machine"),
        ratio(_REAL_TOKENS, {"rung": TEXTBOOK}),
    ),
    "share_of_stream": (
        *("%", 1, "real tokens/s over those of rung 10, which computes all logits, on the same machine, x 100"),
        share_of_rung(STREAM),
    ),
    "share_of_top": (
        *("%", 1, "real tokens/s over those of the top rung, on the same machine, x 100"),
        share_of_rung(TOP),
    ),
    "share_of_one_gpu": (
        *("%", 1),
        "samples/s over the number of GPUs times the samples/s of the speed ladder's run of this rung and model on one "
        "GPU, x 100",
        share_of_one_gpu,
    ),
    **{
        f"shards_{key}": ("", 0, DEFINITIONS[f"shards_{key}"].text, shards(key))
        for key in ("parameters", "gradients", "optimizer")
    },
}
