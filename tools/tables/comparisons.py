"""Figures that compare runs: one function per figure, which selects the runs and computes it."""

import math
from collections.abc import Callable

from tools.errors import UnavailableError
from tools.logs.figures import OF_ONE_RUN, YES_OR_NO, Figure, over_repeats, value_of
from tools.logs.run import NoneOf, Run, Where
from workshop.record.exercises import FURTHER, REPO

Select = Callable[[Where], list[Run]]  # the runs that meet conditions (tools/tables/fill.py)
Value = Callable[[Select, Where], float | bool]
Reference = Callable[[Where], Where]  # from a cell's conditions to those of the other run

EQUAL_LOSS = 1e-5
# The speed ladder's rungs from the lowest up, then its peers and variants, by their names in labels: "1 bf16",
# "variant: float8", "peer: trl padded".
_FILES = sorted(REPO.glob(f"{FURTHER}/speed-ladder/rungs/*.env"), key=lambda path: (path.stem.find("_"), path.stem))
RUNGS = {
    path.stem.replace("_", ": " if path.stem[0].isalpha() else " ", 1).replace("_", " "): path.stem for path in _FILES
}
_LADDER = [rung for rung in RUNGS.values() if rung[0].isdigit()]
_ALONE = {"nodes": 1, "gpus_per_node": 1, "world_size": 1}


class Comparison(Figure):
    """A figure that compares runs: its function gets what selects runs, and the conditions of a cell."""


def ratio(name: str, reference: Where | Reference, sign: int = 1, scale: float = 1, equal_work: bool = False) -> Value:
    """scale x the figure here over that of another run.

    Args:
        reference: in which conditions the other one differs, or its conditions.
        sign: -1: the other way round, where less is better.
        equal_work: no figure if the two trained on other amounts of data: MAX_STEPS=25 on four GPUs is four times the
            work of MAX_STEPS=25 on one.
    """

    def value(select: Select, where: Where) -> float:
        other = reference(where) if callable(reference) else where | reference
        if equal_work:
            positions = [value_of(select(which)[-1], "positions_trained") for which in (where, other)]
            # The last step of an epoch is filled up.
            if all(positions) and not 1 / 1.1 < positions[0] / positions[1] < 1.1:
                raise UnavailableError("unequal work")
        here, there = (over_repeats(select(which), name) for which in (where, other))
        if not (here and there):
            raise UnavailableError("no factor defined from 0")
        return (here / there) ** sign * scale

    return value


def offload_change_percent(name: str, sign: int, equal_work: bool = False) -> Value:
    """sign x (offload - no offload) / no offload x 100, of two runs that differ in offload only."""
    factor = ratio(name, lambda where: where | {"config": where["config"].removesuffix("_offload")}, 1, 1, equal_work)
    return lambda select, where: sign * (factor(select, where | {"config": f"{where['config']}_offload"}) - 1) * 100


def _rung_below(where: Where) -> Where:
    """The same conditions on the rung below, of the lowest on itself; variants and peers have none."""
    below = dict(zip(_LADDER, [_LADDER[0], *_LADDER], strict=False))
    return where | {"rung": below.get(where["rung"], "none")}


def _at_rung(rung: str) -> Where:
    """That rung with its own batch size and loss."""
    return {"rung": rung, "batch_size": NoneOf(), "loss_chunk": NoneOf(), "loss": NoneOf(["liger"])}


def _one_gpu(where: Where) -> Where:
    """This rung and model on one GPU, without any method."""
    same = {key: where[key] for key in ("rung", "model", "tiny") if key in where}
    return same | {"exercise": "speed-ladder", "world_size": 1}


def per_gpu(of: Value) -> Value:
    """The figure over the number of GPUs."""

    def value(select: Select, where: Where) -> float:
        figure, gpus = of(select, where), select(where)[-1].world_size
        if not gpus:
            raise UnavailableError("no world_size")
        return figure / gpus

    return value


def shards(key: str) -> Value:
    """Whether any run of a method shards; "no" needs runs on several GPUs."""

    def value(select: Select, where: Where) -> float | bool:
        try:
            return over_repeats(select(where | {f"sharding.{key}": True}), f"shards_{key}")
        except UnavailableError:
            return over_repeats(select(where | {"several_gpus": True}), f"shards_{key}")

    return value


def loss_difference(select: Select, where: Where) -> float:
    """The largest difference of a step's loss from that of the undisturbed run on such a GPU, with the same data."""
    run = select(where)[-1]
    same = {name: run.fact(name) for name in ("gpu_names", "dataset")}
    here, undisturbed = run.steps, select(where | same | {"fault": "none"})[-1].steps
    if not (here and undisturbed) or here.step != undisturbed.step:
        raise UnavailableError("other steps")
    differences = [abs(loss - usual) for loss, usual in zip(here.loss, undisturbed.loss, strict=True)]
    return math.nan if any(map(math.isnan, differences)) else max(differences)


_SPEED = "real_tokens_per_second"
_TOP = "11_labelled"  # the rung that figures call the top
# fmt: off
_COMPARISONS = [
    Comparison("memory_savings_percent", offload_change_percent("peak_gpu_mib", -1), "Mem Savings (%)", unit="%",
        decimals=1, definition="(no offload - offload) / no offload x 100 of the peak GPU memory"),
    Comparison("runtime_change_percent", offload_change_percent("train_runtime_s", 1, equal_work=True),
        "Runtime change (%)", unit="%", decimals=1,
        definition="(offload - no offload) / no offload x 100 of the train runtime, of equal work"),
    # Not of runtimes: the first step alone, which loads kernels, can take as long as fifty others.
    Comparison("efficiency_percent", ratio("step_time_ms", {"world_size": 2}, sign=-1, scale=100), "Efficiency (%)",
        unit="%", decimals=1, definition="step time on 2 GPUs / step time on this many x 100, at the same rule"),
    Comparison("samples_scale_factor", ratio("samples_per_second", _ALONE), "Samples/s Scale Factor", decimals=2,
        definition="samples/s over samples/s of the same configuration on one GPU"),
    Comparison("runtime_scale_factor", ratio("train_runtime_s", _ALONE, sign=-1, equal_work=True),
        "Runtime Scale Factor", decimals=2,
        definition="train runtime of the same configuration on one GPU over the one here, of equal work"),
    Comparison("share_of_ddp", ratio("samples_per_second", {"config": "ddp"}, scale=100), "Of DDP (%)", unit="%",
        decimals=1, definition="samples/s over those of plain data parallelism, all else equal"),
    Comparison("gain_over_rung_below", ratio(_SPEED, _rung_below), "Gain over the rung below", decimals=2,
        definition="real tokens/s over those of the rung below"),
    Comparison("gain_over_textbook", ratio(_SPEED, {"rung": "0_textbook"}), "Gain over the textbook", decimals=2,
        definition="real tokens/s over those of rung 0, on the same machine"),
    Comparison("gain_over_bf16", ratio(_SPEED, {"rung": _TOP}), "Gain over bf16", decimals=2,
        definition="real tokens/s over those of rung 11, which computes in bf16, on the same machine"),
    Comparison("gain_over_trl", ratio(_SPEED, {"rung": "peer_trl_exact"}), "Times TRL", decimals=2,
        definition="real tokens/s over those of TRL's default packing by FlexAttention, all else equal"),
    Comparison("real_tokens_per_gpu", per_gpu(lambda select, where: over_repeats(select(where), _SPEED)),
        "Real tokens/s per GPU", unit="tokens/s", definition="real tokens/s over the number of GPUs"),
    Comparison("share_of_stream", ratio(_SPEED, _at_rung("10_stream"), scale=100), "Of rung 10 (%)", unit="%",
        decimals=1,
        definition="real tokens/s over those of rung 10, which computes all logits, on the same machine, x 100"),
    Comparison("share_of_top", ratio(_SPEED, _at_rung(_TOP), scale=100), "Of rung 11 (%)", unit="%", decimals=1,
        definition="real tokens/s over those of rung 11, on the same machine, x 100"),
    # Not of samples: packed for several GPUs a row holds other numbers of examples.
    Comparison("share_of_one_gpu", per_gpu(ratio(_SPEED, _one_gpu, scale=100)), "Of n times one GPU (%)", unit="%",
        decimals=1, definition="real tokens/s over the number of GPUs times the real tokens/s of the speed ladder's "
        "run of this rung and model on one GPU, x 100"),
    Comparison("loss_difference", loss_difference, "Largest loss difference", decimals=7,
        definition="largest difference of a step's loss from that of the undisturbed run, FAULT=none (steps.csv)"),
    Comparison("loss_equal", lambda select, where: loss_difference(select, where) <= EQUAL_LOSS, "Loss equal",
        decimals=YES_OR_NO, definition="that difference is at most 0.00001, which fp32 on CPUs keeps (steps.csv)"),
    *(Comparison(**vars(OF_ONE_RUN[f"shards_{key}"]) | {"of": shards(key)})
        for key in ("parameters", "gradients", "optimizer")),
]
# fmt: on
FIGURES = OF_ONE_RUN | {figure.name: figure for figure in _COMPARISONS}
