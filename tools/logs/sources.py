"""The figures in a run's files: for each kind of file a function from a run to figures by key.

It raises UnavailableError, with the words a cell shows, where none of its figures can exist; a figure that it merely
lacks it leaves out. A damaged file is a LogError. In place of a figure there may be an UnavailableError, too. Several
figures are from one file, which is read once per run.
"""

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

from tools.errors import LogError, UnavailableError
from tools.logs import mfu
from tools.logs.memory_logs import extremes, read_logs, seconds
from tools.logs.run import Run
from workshop.record import nccl_log
from workshop.record.errors import read_plain
from workshop.record.schema import LEAST_ENERGY_S, SUMMARY_RECORD, MistypedError, typed

_EPOCH_OFF = 0.15  # MAX_STEPS may end a few steps before or after an epoch's end
_POWER_MEAN_S = 1.0  # a sample of power.draw is the mean of the second before it

# To the end of the line: a part that another rank's output runs into is not that part.
_TIMERS = re.compile(rb"\[Rank 0\] time \(ms\) ((?:\| \w+: \d{1,9}(?:\.\d+)? ?)+)[\r\n]")
_TIMER = re.compile(rb"(\w+): ([\d.]+)")
_EVALUATION = re.compile(rb"'eval_samples_per_second': '?(\d+(?:\.\d+)?)")


def _need_gpu(run: Run) -> None:
    if run.record.device == "cpu":
        raise UnavailableError("no GPU")


def state_before_fault(run: Run) -> UnavailableError:
    """A word, no number: how the attempt before the last one ended."""
    attempts = run.record.attempts
    return UnavailableError(attempts[-1].state or "not recorded" if attempts else run.state)


def resumed_step(run: Run) -> int | UnavailableError | None:
    """The step that the last attempt began with."""
    attempts = run.record.attempts
    return attempts[-1].resumed_step if attempts else UnavailableError("not resumed")


def attempts_sum(run: Run, name: str) -> float | None:
    """The sum over all attempts; None if an attempt lacks it."""
    numbers = [getattr(attempt, name) for attempt in run.record.attempts]
    return None if None in numbers else sum(numbers)


@cache
def summary(run: Run) -> Mapping[str, Any]:
    """summary.json, with what is computed from it."""
    values = {key: value for key, value in run.summary.items() if value is not None}
    try:
        values = typed(values, SUMMARY_RECORD)
    except MistypedError as error:
        raise LogError(run.folder / "summary.json", None, error.found, error.expected) from error
    if (states_mib := run.record.sharding.optimizer_states_mib) is not None:
        values["optimizer_states_mib"] = states_mib
    steps_per_second, samples_per_second = (values.get(f"train/{name}_per_second") for name in ("steps", "samples"))
    if steps_per_second:
        values["step_time_ms"] = 1000 / steps_per_second
        values["examples_per_step"] = samples_per_second / steps_per_second if samples_per_second else None
    return values


def gpu_summary(run: Run) -> Mapping[str, Any]:
    """summary.json, for figures of a GPU."""
    _need_gpu(run)
    return summary(run)


@cache
def utilisation(run: Run) -> Mapping[str, Any]:
    return mfu.utilisation(run, summary(run))


@cache
def evaluations(run: Run) -> Mapping[str, Any]:
    """Losses after whole epochs; the evaluation at the end of MAX_STEPS is after a part of one."""
    if not (losses := summary(run).get("eval_loss")):
        return {}
    steps, per_epoch = run.settings.get("max_steps"), run.record.steps_per_epoch
    last = min(len(losses), steps / per_epoch if steps and per_epoch else math.inf)
    only = UnavailableError("1 epoch only" if last == 1 else f"{last:.3g} epochs only")
    of_epochs = {f"eval_loss_{epoch}": losses[epoch - 1] if epoch <= last + _EPOCH_OFF else only for epoch in (1, 2, 3)}
    return of_epochs | {"eval_loss_final": losses[-1]}


@cache
def steps(run: Run) -> Mapping[str, Any]:
    if not (log := run.steps):
        return {}
    warmup = summary(run).get("warmup_steps", 0)
    first, later = log.step_time_s[:warmup], log.step_time_s[warmup:]
    last = log.loss[-max(1, len(log.loss) // 10) :]
    return {
        "steps": max(log.step),
        "compilation_s": sum(first) - len(first) * median(later) if later else None,
        "positions": sum(log.tokens),
        "second_loss": log.loss[1] if len(log.loss) > 1 else None,
        "last_loss": sum(last) / len(last),
    }


@cache
def timers(run: Run) -> Mapping[str, Any]:
    if "train.out" not in run.files or not run.timed:
        return {}
    warmup = summary(run).get("warmup_steps", 0)
    parts_ms = read_timers(run.folder / "train.out").items()
    return {name: median(times_ms[warmup:]) for name, times_ms in parts_ms if times_ms[warmup:]}


def read_timers(path: Path | str) -> dict[str, list[float]]:
    """DeepSpeed's name of each part of a step to its time (ms) in each step, in order; {} if DeepSpeed printed none.

    With "wall_clock_breakdown" (TIMERS=true) rank 0 prints after each step, summed over the step's micro-batches:

        [Rank 0] time (ms) | optimizer_step: 211.64
        [Rank 0] time (ms) | fwd: 141.28 | bwd: 194.50 | bwd_inner: 132.07 | bwd_allreduce: 62.38 | step: 679.87

    A name that ends in `_microstep` is of one micro-batch. To time a part DeepSpeed waits for the GPU, so nothing
    overlaps and the sum is more than a step takes without timers. A line that is garbled or cut off is left out.
    """
    parts_ms: dict[str, list[float]] = {}
    for line in _TIMERS.findall(read_plain(path)):
        for name, time_ms in _TIMER.findall(line):
            if not name.endswith(b"_microstep"):
                parts_ms.setdefault(name.decode(), []).append(float(time_ms))
    return parts_ms


def evaluation_speeds(run: Run) -> list[float]:
    """Examples per second of each evaluation, as the Trainer printed them into train.out."""
    text = read_plain(run.folder / "train.out") if "train.out" in run.files else b""
    return [float(speed) for speed in _EVALUATION.findall(text)]


@cache
def gpu_memory(run: Run) -> Mapping[str, Any]:
    """The mean is over the samples of all nodes."""
    _need_gpu(run)
    logs = read_logs(run, "gpu_memory").values()
    return extremes([[mib for log in logs for mib in log.mib]] if logs else [], "empty GPU log")


@cache
def gpu_power(run: Run) -> Mapping[str, Any]:
    """Watts of a GPU: the largest sample, and the mean while the timed steps ran."""
    _need_gpu(run)
    samples = [
        (log.start_s + time_s, watts)
        for log in read_logs(run, "gpu_memory").values()
        for time_s, watts in zip(log.time_s, log.watts, strict=False)
        if not math.isnan(watts)
    ]
    power = {"peak_w": max(watts for _, watts in samples)} if samples else {}
    times = [summary(run).get(name) for name in ("timed_start", "timed_end")]
    if not (samples and all(times)):
        return power
    start_s, end_s = (seconds(run.folder / "summary.json", None, stamp) for stamp in times)
    timed = [watts for time_s, watts in samples if start_s + _POWER_MEAN_S <= time_s <= end_s]
    return power | {"mean_w": fmean(timed) if timed else UnavailableError("no sample")}


@cache
def energy(run: Run) -> Mapping[str, Any]:
    """Joules of the timed steps by NVML's counter."""
    values = gpu_summary(run)
    if values.get("timed_s", LEAST_ENERGY_S) < LEAST_ENERGY_S:
        raise UnavailableError(f"under {LEAST_ENERGY_S} s")
    return values


@cache
def cpu_memory(run: Run, kind: str = "cpu_memory") -> Mapping[str, Any]:
    return extremes([log.mib for log in read_logs(run, kind).values()], "empty CPU log")


@cache
def fabric(run: Run) -> Mapping[str, Any]:
    if "nccl.log" not in run.files:
        return {}
    log = nccl_log.read(run.folder / "nccl.log")
    if log.world_size != run.world_size:
        raise UnavailableError(f"a world of {log.world_size}, not {run.world_size}")
    return {"allreduce_gb_per_s": log.allreduce_gb_per_s}
