"""Every figure that a table can show, by the name that labels and `runs --figures` use for it: METRICS.

tools/logs/figures.csv defines them. Here is how a cell gets one from the runs it selects; figures that compare runs are
a function each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from tools.errors import InputError, UnavailableError
from tools.logs.figures import DEFINITIONS, FIGURES, Metric
from tools.logs.run import Not, Run

# Conditions on a run; beside them `bases`, which say what a ratio compares with (tables.toml).
Where = dict[str, Any]
# The runs that meet the conditions: one, or several that differ in REPEAT only.
Select = Callable[[Where], list[Run]]
Value = Callable[[Select, Where], float | bool]

EQUAL_LOSS = 1e-5
_ALONE = {"nodes": 1, "gpus_per_node": 1, "world_size": 1}


def of_run(name: str, missing: str = "", convert: Callable[[float], float] = lambda figure: figure) -> Value:
    """A figure of one run, converted, of repeats the median; `missing`: in place of the figure's own word.

    Its value raises InputError for a damaged file, with the place in it.
    """

    def value(select: Select, where: Where) -> float | bool:
        outcomes = [run.figures.outcome(name) for run in select(where)]
        found = []
        for outcome in outcomes:
            if isinstance(outcome, list):
                raise InputError(*outcome)
            if not isinstance(outcome, str):
                found.append(outcome)
        if not found:
            raise UnavailableError(missing if missing and outcomes[-1] == FIGURES[name].missing else outcomes[-1])
        if isinstance(found[-1], bool):
            return found[-1]
        return median(map(convert, found)) if len(found) > 1 else convert(found[0])

    return value


_REAL_TOKENS = of_run("real_tokens_per_second")
_SAMPLES = of_run("samples_per_second")
_RUNTIME = of_run("train_runtime_s")


def ratio(
    of: Value, reference: Where | Callable[[Where], Where], sign: int = 1, scale: float = 1, equal_work: bool = False
) -> Value:
    """scale x the figure here over that of another run.

    Args:
        reference: in which conditions the other one differs; or a function from the conditions here to those there.
        sign: -1: the other way round, where less is better.
        equal_work: no figure if the two trained on other amounts of data: MAX_STEPS=25 on four GPUs is four times the
            work of MAX_STEPS=25 on one.
    """

    def value(select: Select, where: Where) -> float:
        other = reference(where) if callable(reference) else where | reference
        if equal_work:
            positions = [select(one)[-1].figures.positions_trained for one in (where, other)]
            # The last step of an epoch is filled up.
            if all(positions) and not 1 / 1.1 < positions[0] / positions[1] < 1.1:
                raise UnavailableError("unequal work")
        here, there = of(select, where), of(select, other)
        if not (here and there):
            raise UnavailableError("no factor defined from 0")
        return (here / there) ** sign * scale

    return value


def offload_change_percent(of: Value, sign: int, equal_work: bool = False) -> Value:
    """sign x (offload - no offload) / no offload x 100, of two runs that differ in offload only."""
    factor = ratio(of, {"offload": False}, equal_work=equal_work)
    return lambda select, where: sign * (factor(select, where | {"offload": True}) - 1) * 100


def _base(where: Where, name: str) -> str:
    """The rung that a ratio compares with, or the exercise whose run it does."""
    bases = where["bases"]
    if name not in bases:
        raise InputError(f"tables.toml: [bases]: no {name!r}; found {', '.join(bases) or 'nothing'}")
    return bases[name]


def _on_rung(name: str) -> Callable[[Where], Where]:
    """The same on the rung that this base names."""
    return lambda where: where | {"rung": _base(where, name)}


def _at_rung(name: str) -> Callable[[Where], Where]:
    """That rung at its own batch size and loss, on the same machine."""
    own = ("batch_size", "loss", "loss_chunk")
    return lambda where: (
        {key: where[key] for key in where if key not in own} | {"rung": _base(where, name), "loss": Not(["liger"])}
    )


def _one_gpu(where: Where) -> Where:
    """This rung and model on one GPU, without any method."""
    same = {key: where[key] for key in ("model", "tiny") if key in where}
    return {"rung": where["rung"], "exercise": _base(where, "one_gpu"), "world_size": 1} | same


def per_gpu(of: Value) -> Value:
    """The figure over the number of GPUs."""

    def value(select: Select, where: Where) -> float:
        figure, gpus = of(select, where), select(where)[-1].facts["world_size"]
        if not gpus:
            raise UnavailableError("no world_size")
        return figure / gpus

    return value


def shards(key: str) -> Value:
    """What a method can do: seen in any of its runs, or in none of those on several GPUs."""
    observed = of_run(f"shards_{key}")

    def value(select: Select, where: Where) -> float | bool:
        try:
            return observed(select, where | {f"shards_{key}": True})
        except UnavailableError:
            return observed(select, where | {"several_gpus": True})

    return value


def loss_difference(select: Select, where: Where) -> float:
    """The largest difference of a step's loss from that of the run to which nothing happened."""
    here, undisturbed = (select(one)[-1].steps for one in (where, where | {"fault": "none"}))
    if here is None or undisturbed is None or here.step.tolist() != undisturbed.step.tolist():
        raise UnavailableError("other steps")
    if not here.step.size:
        raise UnavailableError("no steps")
    return float(abs(here.loss - undisturbed.loss).max())


def _gb(mib: float) -> float:
    """10^9 bytes, which a published table has."""
    return mib * 2**20 / 1e9


# The metrics that are not simply a figure of one run.
_VALUES: dict[str, Value] = {
    "memory_allocated": of_run("peak_allocated_mib", "no summary"),
    "memory_allocated_gb": of_run("peak_allocated_mib", "no summary", _gb),
    "gpu_memory_smi_gb": of_run("mean_gpu_mib", convert=_gb),
    "memory_savings": offload_change_percent(of_run("peak_gpu_mib"), -1),
    "runtime_change": offload_change_percent(_RUNTIME, 1, equal_work=True),
    # Not of runtimes: the first step alone, which loads kernels, can take as long as fifty others.
    "efficiency": ratio(of_run("step_time_ms"), {"world_size": 2}, sign=-1, scale=100),
    "samples_scale_factor": ratio(_SAMPLES, _ALONE),
    "runtime_scale_factor": ratio(_RUNTIME, _ALONE, sign=-1, equal_work=True),
    "share_of_ddp": ratio(_SAMPLES, {"config": "ddp"}, scale=100),
    "gain_over_rung_below": ratio(_REAL_TOKENS, lambda where: _on_rung(where["rung"])(where)),
    "gain_over_textbook": ratio(_REAL_TOKENS, _on_rung("textbook")),
    "gain_over_bf16": ratio(_REAL_TOKENS, _on_rung("top")),
    "real_tokens_per_gpu": per_gpu(_REAL_TOKENS),
    "share_of_stream": ratio(_REAL_TOKENS, _at_rung("stream"), scale=100),
    "share_of_top": ratio(_REAL_TOKENS, _at_rung("top"), scale=100),
    # Not of samples: packed for several GPUs a row holds other numbers of examples.
    "share_of_one_gpu": per_gpu(ratio(_REAL_TOKENS, _one_gpu, scale=100)),
    "loss_difference": loss_difference,
    "loss_equal": lambda select, where: loss_difference(select, where) <= EQUAL_LOSS,
    **{f"shards_{key}": shards(key) for key in ("parameters", "gradients", "optimizer")},
}
METRICS: dict[str, Metric] = {
    one.name: replace(one, value=_VALUES[one.name] if one.name in _VALUES else of_run(one.figure))
    for one in DEFINITIONS
}
