"""Every figure a table can show: its definition, unit and source, and how it is read from a run.

A figure whose evidence is missing raises `UnavailableError` with the words the cell shows; nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from tools.errors import LogError, UnavailableError
from tools.logs.runs import Run
from tools.tables import communication
from tools.tables.ladder import TEXTBOOK, below
from tools.tables.mfu import utilisation

Where = dict[str, Any]
# The runs that meet the conditions: one, or several that differ in REPEAT only.
Select = Callable[[Where], list[Run]]


@dataclass(frozen=True)
class Metric:
    """One figure.

    Attributes:
        unit: printed after the figure where the label does not name it; "" for none.
        decimals: digits printed after the point.
        definition: one line: what it is and which file it is from.
        value: from the cell's selection to the figure: of repeats the median, for a ratio of each side.
    """

    unit: str
    decimals: int
    definition: str
    value: Callable[[Select, Where], float | bool]


def _of_run(unit: str, decimals: int, definition: str, read: Callable[[Run], float | None], missing: str) -> Metric:
    """A metric of one run, of repeats their median; `missing` is what the cell shows where `read` gives None."""

    def value(select: Select, where: Where) -> float:
        figures = [figure for run in select(where) if (figure := read(run)) is not None]
        if not figures:
            raise UnavailableError(missing)
        return figures[-1] if isinstance(figures[-1], bool) else median(figures)

    return Metric(unit, decimals, definition, value)


def _summary(run: Run, key: str) -> float | None:
    """A figure of summary.json; None if the file or the figure is not there."""
    figure = (run.summary or {}).get(key)
    if figure is not None and (isinstance(figure, bool) or not isinstance(figure, int | float)):
        raise LogError(run.folder / "summary.json", None, f"{key}: {figure!r}", "a number")
    return figure


def _final(run: Run, key: str, summary_key: str) -> float | None:
    """A figure of the Trainer's closing dict: from summary.json, else as printed, where transformers 5 rounds it."""
    figure = _summary(run, summary_key)
    printed = run.training.final if figure is None and run.training else None
    return printed.get(key) if printed else figure


def _eval_losses(run: Run) -> list[float]:
    figures = (run.summary or {}).get("eval_loss") or []
    if not isinstance(figures, list) or not all(isinstance(figure, int | float) for figure in figures):
        raise LogError(run.folder / "summary.json", None, f"eval_loss: {figures!r}", "a list of numbers, one per epoch")
    return figures or ([event["eval_loss"] for event in run.training.evals] if run.training else [])


def eval_loss(epoch: int | None) -> Metric:
    """Loss of the evaluation after `epoch` (counted from 1), or after the last one."""

    def read(run: Run) -> float | None:
        losses = _eval_losses(run)
        if losses and epoch and epoch > len(losses):
            raise UnavailableError(f"{len(losses)} epochs only" if len(losses) > 1 else "1 epoch only")
        return losses[(epoch or 0) - 1] if losses else None

    when = "the last epoch" if epoch is None else f"epoch {epoch}"
    return _of_run("", 4, f"eval_loss of the evaluation after {when} (summary.json or train.out)", read, "no eval")


def _eval_speed(run: Run) -> float | None:
    key = "eval_samples_per_second"
    if (figure := _summary(run, key)) is not None:
        return figure
    printed = [event[key] for event in run.training.evals if key in event] if run.training else []
    return sum(printed) / len(printed) if printed else None


def _gpu(statistic: str) -> Callable[[Run], float | None]:
    def read(run: Run) -> float | None:
        if run.record.get("device") == "cpu":
            raise UnavailableError("no GPU")
        if run.gpu_log is None:
            return None
        figure = getattr(run.gpu_log, statistic)
        if figure is None:
            raise UnavailableError("empty GPU log")
        return figure

    return read


def _on_gpu(key: str) -> Callable[[Run], float | None]:
    def read(run: Run) -> float | None:
        if run.record.get("device") == "cpu":
            raise UnavailableError("no GPU")
        return _summary(run, key)

    return read


def _cpu(logs: str, statistic: str) -> Callable[[Run], float | None]:
    """The node with the most: a node's memory is what a job can run out of."""

    def read(run: Run) -> float | None:
        nodes = getattr(run, logs)
        figures = [figure for log in nodes if (figure := getattr(log, statistic)) is not None]
        if nodes and not figures:
            raise UnavailableError("empty CPU log")
        return max(figures, default=None)

    return read


def _change_percent(metric: Metric, sign: int) -> Callable[[Select, Where], float]:
    """sign x (offload - no offload) / no offload x 100, of two runs that differ in offload only."""

    def value(select: Select, where: Where) -> float:
        without = metric.value(select, where | {"offload": False})
        if not without:
            raise UnavailableError("no change defined from 0")
        return sign * (metric.value(select, where | {"offload": True}) - without) / without * 100

    return value


def _in_gb(read: Callable[[Run], float | None]) -> Callable[[Run], float | None]:
    """From MiB to GB, 10^9 bytes."""

    def converted(run: Run) -> float | None:
        figure = read(run)
        return None if figure is None else figure * 2**20 / 1e9

    return converted


def _recorded(*keys: str, scale: float = 1.0) -> Callable[[Run], float | None]:
    """A number of run.json, `keys` from the outside in, divided by `scale`."""

    def read(run: Run) -> float | None:
        found: Any = run.record
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return None if found is None else found / scale

    return read


def _allreduce(run: Run) -> float | None:
    if run.fabric is None:
        return None
    expected = run.facts["world_size"]
    if run.fabric.world_size != expected:
        raise UnavailableError(f"a world of {run.fabric.world_size}, not {expected}")
    return run.fabric.allreduce_gb_per_s


_ALONE = {"nodes": 1, "gpus_per_node": 1, "world_size": 1}


def _ratio(metric: Metric, reference: Where, sign: int = 1, scale: float = 1) -> Callable[[Select, Where], float]:
    """scale x the figure here over that of the run that differs in `reference`.

    Args:
        sign: -1: the other way round, where less is better.
    """

    def value(select: Select, where: Where) -> float:
        here, there = metric.value(select, where), metric.value(select, where | reference)
        if not (here and there):
            raise UnavailableError("no factor defined from 0")
        return (here / there) ** sign * scale

    return value


def _require_equal_work(*sides: list[Run]) -> None:
    """Raises: UnavailableError: the two sides trained on other amounts of data; their runtimes say nothing together:
    MAX_STEPS=25 on four GPUs is four times the work of MAX_STEPS=25 on one.
    """
    tokens = [repeats[-1].steps.tokens.sum() for repeats in sides if repeats[-1].steps is not None]
    if len(tokens) == 2 and not 1 / 1.1 < tokens[0] / tokens[1] < 1.1:  # the last step of an epoch is filled up
        raise UnavailableError("unequal work")


def _runtime_scale_factor(select: Select, where: Where) -> float:
    """The runtime alone over the one here, of equal work."""
    _require_equal_work(select(where), select(where | _ALONE))
    return _ratio(_TRAIN_RUNTIME, _ALONE, sign=-1)(select, where)


def _runtime_change(select: Select, where: Where) -> float:
    """What offload does to the runtime, in percent, of equal work."""
    _require_equal_work(*(select(where | {"offload": offload}) for offload in (False, True)))
    return _change_percent(_TRAIN_RUNTIME, 1)(select, where)


def _condition(where: Where, key: str) -> Any:
    """What a cell asks for. One run's figures have no cell, and none that compares runs."""
    if key not in where:
        raise UnavailableError("compares runs")
    return where[key]


def _gain(reference: Callable[[str], str]) -> Callable[[Select, Where], float]:
    """Real tokens per second of the cell's rung over those of the rung that `reference` gives."""

    def value(select: Select, where: Where) -> float:
        here = _REAL_TOKENS.value(select, where)
        there = _REAL_TOKENS.value(select, where | {"rung": reference(_condition(where, "rung"))})
        if not there:
            raise UnavailableError("no gain defined from 0")
        return here / there

    return value


def _share_of_one_gpu(select: Select, where: Where) -> float:
    """Samples per second of this many GPUs over as many times those of one GPU alone, without any method."""
    here = _SAMPLES_PER_SECOND.value(select, where)
    same = {key: _condition(where, key) for key in ("model", "rung")}
    alone = _SAMPLES_PER_SECOND.value(select, same | {"exercise": "speed-ladder", "world_size": 1})
    if not alone:
        raise UnavailableError("no share defined of 0")
    return here / (alone * _condition(where, "world_size")) * 100


def _examples_per_step(run: Run) -> float | None:
    samples, steps = _summary(run, "train/samples_per_second"), _summary(run, "train/steps_per_second")
    return samples / steps if samples and steps else None


def _step_time_ms(run: Run) -> float | None:
    steps_per_second = _summary(run, "train/steps_per_second")
    return 1000 / steps_per_second if steps_per_second else None


def _last_loss(run: Run) -> float | None:
    if run.steps is None or not run.steps.loss.size:
        return None
    return float(run.steps.loss[-max(1, run.steps.loss.size // 10) :].mean())


def _step_part(name: str, what: str) -> Metric:
    """A part of the step by DeepSpeed's timers, median over the steps behind the warm-up."""

    def read(run: Run) -> float | None:
        times_ms = run.timers.parts_ms.get(name, []) if run.timers else []
        behind = times_ms[int(_summary(run, "warmup_steps") or 0) :]
        return median(behind) if behind else None

    definition = f"{what}: median of DeepSpeed's timer {name} behind the warm-up, on rank 0 (train.out, TIMERS=true)"
    return _of_run("ms", 1, definition, read, "no timers")


def _shards(key: str) -> Metric:
    """What a method can do: seen in any of its runs, or in none of those on several GPUs."""
    observed = _sharding(key, f"each rank holds only a part of the {key} in a run of the method on several GPUs")

    def value(select: Select, where: Where) -> float | bool:
        try:
            return observed.value(select, where | {f"shards_{key}": True})
        except UnavailableError:
            return observed.value(select, where | {"several_gpus": True})

    return Metric("", 0, observed.definition, value)


def _sharding(key: str, meaning: str) -> Metric:
    definition = f"{meaning} (run.json, sharding.{key}, observed in the run)"

    def read(run: Run) -> bool | None:
        observed = (run.record.get("sharding") or {}).get(key)
        return observed if isinstance(observed, bool) else None

    return _of_run("", 0, definition, read, "no sharding record")


def _fact(name: str, definition: str) -> Metric:
    return _of_run("", 0, definition, lambda run: run.facts[name], "not recorded")


_PEAK_GPU = _of_run(
    "MiB", 0, "largest memory.used of any GPU of the node(s) (gpu_memory*.csv)", _gpu("peak_mib"), "no GPU log"
)
_TRAIN_RUNTIME = _of_run(
    "s",
    1,
    "the Trainer's train_runtime, with evaluation and saving between the epochs (summary.json or train.out)",
    lambda run: _final(run, "train_runtime", "train_runtime_s"),
    "no train_runtime",
)

_SAMPLES_PER_SECOND = _of_run(
    "samples/s",
    2,
    "training examples per second over all GPUs, from synchronised step times; warm-up, evaluation and saving are "
    "not in it (summary.json, train/samples_per_second)",
    lambda run: _summary(run, "train/samples_per_second"),
    "no step times",
)

_REAL_TOKENS = _of_run(
    "tokens/s",
    0,
    "tokens that are not padding per second over all GPUs, warm-up, evaluation and saving not in it (summary.json, "
    "train/real_tokens_per_second)",
    lambda run: _summary(run, "train/real_tokens_per_second"),
    "no step times",
)

_STEP_TIME = _of_run(
    "ms",
    1,
    "1000 / optimizer steps per second (summary.json, train/steps_per_second)",
    _step_time_ms,
    "no step times",
)

METRICS: dict[str, Metric] = {
    "train_loss": _of_run(
        "",
        4,
        "the Trainer's train_loss: mean over all steps (summary.json or train.out)",
        lambda run: _final(run, "train_loss", "train_loss"),
        "no train_loss",
    ),
    "eval_loss_1": eval_loss(1),
    "eval_loss_2": eval_loss(2),
    "eval_loss_3": eval_loss(3),
    "eval_loss_final": eval_loss(None),
    "samples_per_second": _SAMPLES_PER_SECOND,
    "forward_part": _step_part("fwd", "forward passes of a step's micro-batches"),
    "backward_part": _step_part("bwd", "their backward passes"),
    "reduce_part": _step_part("bwd_allreduce", "of the backward passes, the gradients reduced and offloaded last"),
    "update_part": _step_part("step", "everything behind them: search for overflow, norm, optimizer, new weights"),
    "optimizer_part": _step_part("optimizer_step", "of the update, the optimizer and its copies"),
    "steps_per_second": _of_run(
        "steps/s",
        3,
        "optimizer steps per second, as above (summary.json, train/steps_per_second)",
        lambda run: _summary(run, "train/steps_per_second"),
        "no step times",
    ),
    "eval_samples_per_second": _of_run(
        "samples/s", 2, "the Trainer's, mean over the evaluations (summary.json or train.out)", _eval_speed, "no eval"
    ),
    "steps_per_epoch": _of_run(
        "",
        0,
        "ceil(examples / (micro-batch x GPUs x accumulation)) (run.json)",
        lambda run: run.record.get("steps_per_epoch"),
        "no steps_per_epoch",
    ),
    "memory_allocated": _of_run(
        "MiB",
        0,
        "peak of PyTorch's allocator, allocated (not reserved), largest rank (summary.json, peak_mem_alloc_mib)",
        _on_gpu("peak_mem_alloc_mib"),
        "no summary",
    ),
    "gpu_utilization": _of_run(
        "%",
        1,
        "mean over all samples of all ranks during training, zeros included (summary.json, avg_gpu_util_%)",
        _on_gpu("avg_gpu_util_%"),
        "no summary",
    ),
    "exact_match": _of_run(
        "%",
        2,
        "official SQuAD v1.1 score of greedy answers (summary.json)",
        lambda run: _summary(run, "exact_match"),
        "no EM/F1",
    ),
    "f1": _of_run("%", 2, "as exact_match (summary.json)", lambda run: _summary(run, "f1"), "no EM/F1"),
    "train_exact_match": _of_run(
        "%",
        2,
        "the same of questions that were trained on (summary.json, GENERATE_TRAIN_SIZE)",
        lambda run: _summary(run, "train_exact_match"),
        "no EM/F1",
    ),
    "train_f1": _of_run("%", 2, "as above (summary.json)", lambda run: _summary(run, "train_f1"), "no EM/F1"),
    "examples_trained": _of_run(
        "",
        0,
        "training examples in all steps; one that was trained on twice counts twice (steps.csv, samples)",
        lambda run: float(run.steps.samples.sum()) if run.steps and run.steps.samples is not None else None,
        "no step times",
    ),
    "optimizer_steps": _of_run(
        "",
        0,
        "updates of the weights (steps.csv)",
        lambda run: float(run.steps.step.max()) if run.steps and run.steps.step.size else None,
        "no step times",
    ),
    "time_in_steps": _of_run(
        "s",
        0,
        "sum of the steps' times, with the first ones; evaluation and saving are not in it (steps.csv)",
        lambda run: float(run.steps.step_time_s.sum()) if run.steps and run.steps.step.size else None,
        "no step times",
    ),
    "last_loss": _of_run(
        "",
        4,
        "training loss, mean over the last tenth of the steps (steps.csv)",
        _last_loss,
        "no step times",
    ),
    "peak_gpu": _PEAK_GPU,
    "mean_gpu": _of_run(
        "MiB", 0, "mean memory.used over all samples of all GPUs (gpu_memory*.csv)", _gpu("mean_mib"), "no GPU log"
    ),
    "min_gpu": _of_run("MiB", 0, "smallest memory.used of any GPU (gpu_memory*.csv)", _gpu("min_mib"), "no GPU log"),
    "peak_cpu": _of_run(
        "MiB",
        0,
        "peak of the processes' summed RSS on the node with the most; shared pages count once per process "
        "(cpu_memory*.txt, psrecord)",
        _cpu("rss_logs", "peak_mib"),
        "no CPU log",
    ),
    "mean_cpu": _of_run("MiB", 0, "mean of the same (cpu_memory*.txt)", _cpu("rss_logs", "mean_mib"), "no CPU log"),
    "peak_cpu_pss": _of_run(
        "MiB",
        0,
        "peak proportional set size on the node with the most; shared pages count once (cpu_pss*.txt)",
        _cpu("pss_logs", "peak_mib"),
        "no PSS log",
    ),
    "mean_cpu_pss": _of_run("MiB", 0, "mean of the same (cpu_pss*.txt)", _cpu("pss_logs", "mean_mib"), "no PSS log"),
    "train_runtime": _TRAIN_RUNTIME,
    "total_runtime": _of_run(
        "s",
        0,
        "whole job, start_time to end_time: loading, training, evaluation, saving (run.json)",
        lambda run: run.runtime_s,
        "no end_time",
    ),
    "memory_savings": Metric(
        "%", 1, "(no offload - offload) / no offload x 100 of the peak GPU memory", _change_percent(_PEAK_GPU, -1)
    ),
    "runtime_change": Metric(
        "%", 1, "(offload - no offload) / no offload x 100 of the train runtime, of equal work", _runtime_change
    ),
    "world_size": _of_run(
        "", 0, "training processes, one per GPU (run.json)", _recorded("world_size"), "no world_size"
    ),
    "samples_per_second_trainer": _of_run(
        "samples/s",
        2,
        "the Trainer's own: training examples over the whole runtime: warm-up, evaluation and saving count "
        "too (summary.json or train.out, train_samples_per_second)",
        lambda run: _final(run, "train_samples_per_second", "train_samples_per_second"),
        "no train_runtime",
    ),
    "gpu_memory_smi_gb": _of_run(
        "GB",
        2,
        "mean memory.used over all samples of all GPUs, once a second from start to end of the job (gpu_memory*.csv)",
        _in_gb(_gpu("mean_mib")),
        "no GPU log",
    ),
    "gpu_memory_callback_gb": _of_run(
        "GB",
        2,
        "memory in use on the device at the end of every training step, mean over steps and ranks (summary.json, "
        "avg_mem_total_MB)",
        _in_gb(_on_gpu("avg_mem_total_MB")),
        "no summary",
    ),
    "num_layers": _of_run("", 0, "NUM_LAYERS (run.json)", _recorded("settings", "num_layers"), "no NUM_LAYERS"),
    "batch_size": _of_run(
        "", 0, "BATCH_SIZE, per GPU (run.json)", _recorded("settings", "batch_size"), "no BATCH_SIZE"
    ),
    "parameters": _of_run(
        "M",
        1,
        "parameters of the model, in millions (run.json)",
        _recorded("model", "parameters", scale=1e6),
        "no model",
    ),
    "flops_per_step": _of_run(
        "TFLOP",
        2,
        "10^12 floating-point operations of the matrix products of one GPU in one step, forward and backward, from the "
        "shapes (run.json, flops_per_gpu_per_step)",
        _recorded("flops_per_gpu_per_step", scale=1e12),
        "no FLOPs",
    ),
    # Not of runtimes: the first step alone, which loads kernels, can take as long as fifty others.
    "efficiency": Metric(
        "%",
        1,
        "step time on 2 GPUs / step time on this many x 100, at the same rule",
        _ratio(_STEP_TIME, {"world_size": 2}, sign=-1, scale=100),
    ),
    "allreduce_bandwidth": _of_run(
        "GB/s",
        2,
        "bus bandwidth of the all-reduce of the largest message over all GPUs as one world, before training (nccl.log)",
        _allreduce,
        "no fabric check",
    ),
    "step_time": _STEP_TIME,
    "memory_allocated_gb": _of_run(
        "GB",
        2,
        "peak of PyTorch's allocator, allocated, largest rank, in 10^9 bytes (summary.json, peak_mem_alloc_mib)",
        _in_gb(_on_gpu("peak_mem_alloc_mib")),
        "no summary",
    ),
    "samples_scale_factor": Metric(
        "", 2, "samples/s over samples/s of the same configuration on one GPU", _ratio(_SAMPLES_PER_SECOND, _ALONE)
    ),
    "runtime_scale_factor": Metric(
        "",
        2,
        "train runtime of the same configuration on one GPU over the one here, of equal work",
        _runtime_scale_factor,
    ),
    "share_of_ddp": Metric(
        "%",
        1,
        "samples/s over those of plain data parallelism, all else equal",
        _ratio(_SAMPLES_PER_SECOND, {"config": "ddp"}, scale=100),
    ),
    "median_tokens_per_second": _of_run(
        "tokens/s",
        0,
        "median over the steps of tokens of all GPUs / step time, warm-up steps left out (summary.json)",
        lambda run: _summary(run, "train/median_tokens_per_second"),
        "no step times",
    ),
    "peak_allocated": _of_run(
        "MiB",
        0,
        "largest peak over the ranks of what PyTorch's tensors took (summary.json, peak_mem_alloc_mib)",
        _on_gpu("peak_mem_alloc_mib"),
        "not recorded",
    ),
    "peak_reserved": _of_run(
        "MiB",
        0,
        "the same of what PyTorch's allocator held, used or not (summary.json, peak_mem_reserved_mib)",
        _on_gpu("peak_mem_reserved_mib"),
        "not recorded",
    ),
    "real_tokens_per_second": _REAL_TOKENS,
    "tokens_per_second": _of_run(
        "tokens/s",
        0,
        "the same with padding (summary.json, train/tokens_per_second)",
        lambda run: _summary(run, "train/tokens_per_second"),
        "no step times",
    ),
    "mfu": _of_run(
        "%",
        1,
        "model FLOPs utilisation: (6 x parameters + 12 x layers x hidden size x row length) x tokens/s with padding "
        "over the GPUs' data sheet peak (run.json, summary.json, tools/tables/gpu_peaks.py)",
        lambda run: utilisation(run, head_only_where_needed=False) * 100,
        "no step times",
    ),
    "mfu_done": _of_run(
        "%",
        1,
        "the same, the head's operations counted only where logits were computed",
        lambda run: utilisation(run, head_only_where_needed=True) * 100,
        "no step times",
    ),
    "examples_per_step": _of_run(
        "",
        0,
        "training examples in an optimizer step, mean; a packed row holds several (summary.json)",
        _examples_per_step,
        "no step times",
    ),
    "gain_over_rung_below": Metric(
        "", 2, "real tokens/s over those of the rung below; of a variant: of 9", _gain(below)
    ),
    "gain_over_textbook": Metric(
        "", 2, "real tokens/s over those of rung 0, on the same machine", _gain(lambda rung: TEXTBOOK)
    ),
    "share_of_one_gpu": Metric(
        "%",
        1,
        "samples/s over the number of GPUs times the samples/s of the speed ladder's run of this rung and model on one "
        "GPU, x 100",
        _share_of_one_gpu,
    ),
    "all_reduces": _of_run(
        "",
        0,
        "all-reduce calls of a rank in one optimizer step, small ones too (collectives.csv)",
        communication.calls("all-reduce"),
        "not counted",
    ),
    "all_gathers": _of_run(
        "",
        0,
        "all-gather calls of a rank in one optimizer step, small ones too (collectives.csv)",
        communication.calls("all-gather"),
        "not counted",
    ),
    "reduce_scatters": _of_run(
        "",
        0,
        "reduce-scatter calls of a rank in one optimizer step, small ones too (collectives.csv)",
        communication.calls("reduce-scatter"),
        "not counted",
    ),
    "other_collectives": _of_run(
        "",
        0,
        "calls of the same step that are none of these three (collectives.csv)",
        communication.calls(),
        "not counted",
    ),
    "sent_bytes": _of_run(
        "MiB",
        2,
        "what a rank sends in the step: of every call the message x (n-1)/n, of an all-reduce twice, for a ring of n "
        "ranks (collectives.csv)",
        communication.sent_mib,
        "not counted",
    ),
    "sent_between_nodes": _of_run(
        "MiB",
        2,
        "of it what one node sends to the next, if each half of the ranks is a node (collectives.csv)",
        communication.between_nodes_mib,
        "not counted",
    ),
    "predicted_bytes": _of_run(
        "MiB",
        2,
        "what a rank would send by the ZeRO paper's formulas, from the parameters, the precision, the accumulation and "
        "the number of ranks (run.json)",
        communication.predicted_mib,
        "no parameters",
    ),
    "shards_parameters": _shards("parameters"),
    "shards_gradients": _shards("gradients"),
    "shards_optimizer": _shards("optimizer"),
    "cpu_offload": _sharding("cpu_offload", "a run with states in CPU memory between their uses completed"),
    "unchanged_model": _fact(
        "unchanged_model",
        "a run of the method had a model all of whose classes were PyTorch's and transformers' (run.json, "
        "sharding.own_modules, observed in the run)",
    ),
    "hf_trainer": _fact(
        "hf_trainer",
        "a run of the method was driven by transformers' Trainer or a class made from it (run.json, trainer_classes, "
        "observed in the run)",
    ),
}
