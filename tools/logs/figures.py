"""The figures of a run. Each is a line of figures.csv: its name, where it is read, how tables name and show it.

A source is a function that reads one kind of file: from a run to figures by key. It raises UnavailableError, with the
words a cell shows, where none of its figures can exist; a figure that it merely lacks it leaves out. A damaged file is
a LogError and costs all figures of that source. In place of a figure there may be an UnavailableError, too.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from tools.errors import LogError, UnavailableError
from tools.logs import communication, mfu
from tools.logs.memory_logs import extremes, read_logs, seconds
from tools.logs.run import Run
from workshop.record import nccl_log
from workshop.record.safe_open import read_plain
from workshop.record.schema import LEAST_ENERGY_S, SUMMARY_RECORD, MistypedError, typed

Found = Mapping[str, Any]
_COMPARISON = "comparison"  # as a source: the figure compares runs (tools/tables/comparisons.py)
A_WORD, _YES_OR_NO = "a word", "yes or no"  # in place of decimals
_EPOCH_OFF = 0.15  # MAX_STEPS may end a few steps before or after an epoch's end
_POWER_MEAN_S = 1.0  # a sample of power.draw is the mean of the second before it

# To the end of the line: a part that another rank's output runs into is not that part.
_TIMERS = re.compile(rb"\[Rank 0\] time \(ms\) ((?:\| \w+: \d{1,9}(?:\.\d+)? ?)+)[\r\n]")
_TIMER = re.compile(rb"(\w+): ([\d.]+)")
_EVALUATION = re.compile(rb"'eval_samples_per_second': '?(\d+(?:\.\d+)?)")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A line of figures.csv.

    Attributes:
        name: in tables.toml, `--figures`, csv and page.
        unit: named by its labels; "" for none.
        decimals: digits after the point; "yes or no"; "a word", which its source says in place of a figure.
        source, key, divisor: in the file "run.json:model.parameters/1e6", or "comparison" if it compares runs.
        missing: what a cell shows where the source does not have it.
        labels: of rows and columns that mean it; the first is its title.
        definition: one line: what it is and which file it is from.
    """

    name: str
    unit: str
    decimals: int | str
    source: str
    key: str
    divisor: float
    missing: str
    labels: tuple[str, ...]
    definition: str

    @property
    def title(self) -> str:
        return self.labels[0] if self.labels else self.name.replace("_", " ")

    def written(self, value: float | bool) -> str:
        """A figure as printed: thousands separators and the decimals, no unit."""
        if isinstance(value, bool):
            return "yes" if value else "no"
        return f"{value:,.{self.decimals}f}"


def _figure(line: dict[str, str]) -> Figure:
    source, key, divisor = re.fullmatch(r"([^:]+)(?::(.+?)(?:/([\d.e]+))?)?", line["source"]).groups()
    decimals = line["decimals"] if line["decimals"] in (A_WORD, _YES_OR_NO) else int(line["decimals"])
    labels = tuple(line["labels"].split("; ")) if line["labels"] else ()
    own = {"source": source, "key": key, "divisor": float(divisor or 1), "decimals": decimals, "labels": labels}
    return Figure(**line | own)


with Path(__file__).with_name("figures.csv").open(encoding="utf-8", newline="") as _file:
    FIGURES = {one.name: one for one in map(_figure, csv.DictReader(_file))}
OF_ONE_RUN = {name: one for name, one in FIGURES.items() if one.source != _COMPARISON}


def measure(run: Run, name: str) -> float | bool:
    """A run's figure. Each is measured when it is asked for first, and each file is parsed once.

    Raises:
        UnavailableError: there is none; its text is what a cell shows.
        LogError: a file that it is from is damaged.
    """
    asked = FIGURES[name]
    value = read_source(run, asked.source).get(asked.key)
    if value is None:
        raise UnavailableError(asked.missing)
    if isinstance(value, Exception):
        raise value
    return value if asked.divisor == 1 else value / asked.divisor


def read_source(run: Run, source: str) -> Found:
    """All that a source has, by key; raises as `measure` does."""
    if source not in run.parsed:
        try:
            if source in _OF_GPU and run.record.device == "cpu":
                raise UnavailableError("no GPU")
            run.parsed[source] = _SOURCES[source](run)
        except (UnavailableError, LogError) as error:
            run.parsed[source] = error
    found = run.parsed[source]
    if isinstance(found, Exception):
        raise found
    return found


def figure(run: Run, name: str) -> Any:
    """A run's figure; None where there is none or its file is damaged."""
    try:
        return measure(run, name)
    except (UnavailableError, LogError):
        return None


def shown(run: Run, name: str) -> str:
    """A run's figure as printed, without its unit, or the words for why there is none."""
    if run.state != "completed":
        return run.outcome
    try:
        return FIGURES[name].written(measure(run, name))
    except UnavailableError as missing:
        return str(missing)
    except LogError:
        return "unreadable log"


def over_repeats(runs: Sequence[Run], name: str, std: bool = False) -> float | bool:
    """The median over runs that differ in REPEAT only, or their standard deviation. Raises as `measure` does."""
    found, missing = [], UnavailableError(FIGURES[name].missing)
    for run in runs:
        try:
            found.append(measure(run, name))
        except UnavailableError as error:
            missing = error
    if not found:
        raise missing
    if std and len(found) == 1:
        raise UnavailableError("one run only")
    return stdev(found) if std else found[-1] if isinstance(found[-1], bool) else median(found)


def _run_json(run: Run) -> Found:
    """Facts, and the cost of faults in resumed runs; the state before a fault is a word, no number."""
    attempts = run.record.attempts
    lost = {name: [getattr(attempt, name) for attempt in attempts] for name in ("steps_lost", "seconds_lost")}
    return {
        **{one.key: run.fact(one.key) for one in FIGURES.values() if one.source == "run.json"},
        "world_size": run.record.world_size,  # not what was asked for
        "runtime_s": None if run.state == "running" else run.runtime_s,
        "fault_state": UnavailableError(attempts[-1].state or "not recorded" if attempts else run.state),
        "resumed_step": attempts[-1].resumed_step if attempts else UnavailableError("not resumed"),
        **{name: None if None in numbers else sum(numbers) for name, numbers in lost.items()},
    }


def _summary(run: Run) -> Found:
    """summary.json, with what is computed from it."""
    found = {key: value for key, value in run.summary.items() if value is not None}
    try:
        found = typed(found, SUMMARY_RECORD)
    except MistypedError as error:
        raise LogError(run.folder / "summary.json", None, error.found, error.expected) from error
    if (states_mib := run.record.sharding.optimizer_states_mib) is not None:
        found["optimizer_states_mib"] = states_mib
    steps_per_second, samples_per_second = (found.get(f"train/{name}_per_second") for name in ("steps", "samples"))
    if steps_per_second:
        found["step_time_ms"] = 1000 / steps_per_second
        found["examples_per_step"] = samples_per_second / steps_per_second if samples_per_second else None
    return found


def _evaluations(run: Run) -> Found:
    """Losses after whole epochs; the evaluation at the end of MAX_STEPS is after a part of one."""
    if not (losses := read_source(run, "summary.json").get("eval_loss")):
        return {}
    steps, per_epoch = run.settings.get("max_steps"), run.record.steps_per_epoch
    last = min(len(losses), steps / per_epoch if steps and per_epoch else math.inf)
    only = UnavailableError("1 epoch only" if last == 1 else f"{last:.3g} epochs only")
    of_epochs = {f"eval_loss_{epoch}": losses[epoch - 1] if epoch <= last + _EPOCH_OFF else only for epoch in (1, 2, 3)}
    return of_epochs | {"eval_loss_final": losses[-1]}


def _steps(run: Run) -> Found:
    if not (log := run.steps):
        return {}
    warmup = read_source(run, "summary.json").get("warmup_steps", 0)
    first, later = log.step_time_s[:warmup], log.step_time_s[warmup:]
    return {
        "steps": float(log.step.max()),
        "time_s": float(log.step_time_s.sum()),
        "compilation_s": float(first.sum() - len(first) * median(later)) if later.size else None,
        "positions": float(log.tokens.sum()),
        "examples": None if log.samples is None else float(log.samples.sum()),
        "second_loss": float(log.loss[1]) if log.loss.size > 1 else None,
        "last_loss": float(log.loss[-max(1, log.loss.size // 10) :].mean()),
    }


def _steps_to_score(run: Run) -> Found:
    """The step at which exact match reaches 48 %, on the line between two counts; untrained models answer nothing."""
    by_step = read_source(run, "summary.json").get("exact_match_by_step", {})
    try:
        counts = sorted((typed(int(step), int), typed(percent, float)) for step, percent in by_step.items())
    except ValueError:
        raise LogError(run.folder / "summary.json", None, f"exact_match_by_step: {by_step}", "% by step") from None
    step, percent = 0, 0.0
    for next_step, next_percent in counts:
        if next_percent >= 48:
            return {"steps_to_48": step + (next_step - step) * (48 - percent) / (next_percent - percent)}
        step, percent = next_step, next_percent
    return {}


def _timers(run: Run) -> Found:
    if "train.out" not in run.files or not run.timed:
        return {}
    warmup = read_source(run, "summary.json").get("warmup_steps", 0)
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


def _gpu_log(run: Run) -> Found:
    """The mean is over the samples of all nodes."""
    logs = read_source(run, "nvidia-smi").values()
    return extremes([[mib for log in logs for mib in log.mib]] if logs else [], "empty GPU log")


def _power(run: Run) -> Found:
    """Watts of a GPU: the largest sample, and the mean while the timed steps ran."""
    samples = [
        (log.start_s + time_s, watts)
        for log in read_source(run, "nvidia-smi").values()
        for time_s, watts in zip(log.time_s, log.watts, strict=False)
        if not math.isnan(watts)
    ]
    found = {"peak_w": max(watts for _, watts in samples)} if samples else {}
    times = [read_source(run, "summary.json").get(name) for name in ("timed_start", "timed_end")]
    if not (samples and all(times)):
        return found
    start_s, end_s = (seconds(run.folder / "summary.json", None, stamp) for stamp in times)
    timed = [watts for time_s, watts in samples if start_s + _POWER_MEAN_S <= time_s <= end_s]
    return found | {"mean_w": fmean(timed) if timed else UnavailableError("no sample")}


def _energy(run: Run) -> Found:
    """Joules of the timed steps by NVML's counter."""
    summary = read_source(run, "summary.json")
    if summary.get("timed_s", LEAST_ENERGY_S) < LEAST_ENERGY_S:
        raise UnavailableError(f"under {LEAST_ENERGY_S} s")
    return summary


def _cpu_log(kind: str) -> Callable[[Run], Found]:
    return lambda run: extremes([log.mib for log in read_logs(run, kind).values()], "empty CPU log")


def _fabric(run: Run) -> Found:
    if "nccl.log" not in run.files:
        return {}
    log = nccl_log.read(run.folder / "nccl.log")
    if log.world_size != run.world_size:
        raise UnavailableError(f"a world of {log.world_size}, not {run.world_size}")
    return {"allreduce_gb_per_s": log.allreduce_gb_per_s}


_OF_GPU = ("summary.json/gpu", "gpu_memory", "gpu_power", "energy")
_SOURCES: dict[str, Callable[[Run], Found]] = {
    "run.json": _run_json,
    "summary.json": _summary,
    "summary.json/gpu": lambda run: read_source(run, "summary.json"),
    "computed": lambda run: read_source(run, "summary.json"),
    "evaluations": _evaluations,
    "steps.csv": _steps,
    "answers": _steps_to_score,
    "timers": _timers,
    "nvidia-smi": lambda run: read_logs(run, "gpu_memory"),
    "gpu_memory": _gpu_log,
    "gpu_power": _power,
    "energy": _energy,
    "cpu_memory": _cpu_log("cpu_memory"),
    "cpu_pss": _cpu_log("cpu_pss"),
    "fabric": _fabric,
    "collectives": communication.counted_traffic,
    "predicted": communication.predicted_traffic,
    "mfu": lambda run: mfu.utilisation(run, read_source(run, "summary.json")),
}
