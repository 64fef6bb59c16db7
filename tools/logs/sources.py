"""From a run's files to its figures. A source is a function that reads one kind of file: from a run to figures by key.

A source raises UnavailableError, with the words a cell shows, where none of its figures can exist; a figure that it
merely lacks it leaves out. A damaged file is a LogError and costs the figures of that source only. In place of a figure
there may be such an error, too.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, median
from typing import Any

from tools.errors import LogError, UnavailableError
from tools.logs import communication, mfu, trainer_log
from tools.logs.figures import FIGURES, Outcome
from tools.logs.folder import RunFolder
from tools.logs.memory_logs import MemoryLog, read_nvidia_smi, read_psrecord, seconds
from workshop.run_folder import nccl_log
from workshop.run_folder.schema import LEAST_ENERGY_S, SUMMARY_RECORD, MistypedError, check

Found = Mapping[str, Any]
_POWER_MEAN_S = 1.0  # a sample of power.draw is the mean of the second before it
_EPOCH_OFF = 0.15  # where an epoch's last steps do not fill a batch, the Trainer may call its end 0.9


@dataclass
class RunFigures:
    """One run's figures; each is measured when it is asked for first, and each file is parsed once.

    `figures.peak_gpu_mib` is a number, or a bool where figures.csv says so, or None: then `reason` says why.
    """

    run: RunFolder
    _found: dict[str, Found | Exception] = field(default_factory=dict, init=False)

    def __getattr__(self, name: str) -> Any:
        if name not in FIGURES:
            raise AttributeError(f"no figure {name!r} in figures.csv")
        outcome = self.outcome(name)
        return None if isinstance(outcome, str | list) else outcome

    def outcome(self, name: str) -> Outcome:
        """A figure by its name in figures.csv, or why there is none (see Outcome)."""
        value = None
        try:
            for source, key in FIGURES[name].sources:
                if value is None:
                    value = self.figure(source, key)
        except UnavailableError as reason:
            return str(reason)
        except LogError as error:
            return [str(error)]
        return FIGURES[name].missing if value is None else value

    def reason(self, name: str) -> str:
        """Why there is no figure of this name, as a cell shows it."""
        outcome = self.outcome(name)
        return "unreadable log" if isinstance(outcome, list) else outcome

    def files(self, name: str) -> list[str]:
        """The run's files that the figure is from."""
        patterns = " ".join(_SOURCES[source][1] for source, _ in FIGURES[name].sources)
        found = (file for pattern in patterns.split() for file in fnmatch.filter(self.run.files, pattern))
        return list(dict.fromkeys(found))

    def figure(self, source: str, key: str) -> Any:
        """A figure or None; raises UnavailableError or LogError."""
        if source not in self._found:
            try:
                self._found[source] = _SOURCES[source][0](self)
            except (UnavailableError, LogError) as error:
                self._found[source] = error
        found = self._found[source]
        value = found if isinstance(found, Exception) else found.get(key)
        if isinstance(value, Exception):
            raise value
        return value

    def number(self, key: str) -> float | None:
        """A figure of summary.json."""
        return self.figure("summary.json", key)

    @cached_property
    def training(self) -> trainer_log.Training | None:
        """The last training in train.out, because a requeued job appends to it."""
        trainings = [one for path in self.run.paths("train.out", "train.out") for one in trainer_log.read(path)]
        return trainings[-1] if trainings else None


def _run_json(sources: RunFigures) -> Found:
    run = sources.run
    record = run.record
    model, flops = record.get("model") or {}, record.get("flops_per_gpu_per_step")
    settings, seen = record.get("settings") or {}, record.get("sharding") or {}
    numbers = {key: settings.get(key) for key in ("num_layers", "batch_size")} | {
        "world_size": record.get("world_size")
    }
    return {
        **{f"sharding.{key}": value for key, value in seen.items()},
        **{key: None if value is None else float(value) for key, value in numbers.items()},
        **{key: run.facts[key] for key in ("unchanged_model", "hf_trainer")},
        "bubble_percent": None if seen.get("bubble") is None else seen["bubble"] * 100,
        **_attempts(run),
        "steps_per_epoch": record.get("steps_per_epoch"),
        "runtime_s": None if run.state == "running" else run.runtime_s,
        "trained_millions": None if model.get("trained_parameters") is None else model["trained_parameters"] / 1e6,
        "parameters_millions": None if model.get("parameters") is None else model["parameters"] / 1e6,
        "flops_per_step_tflop": None if flops is None else flops / 1e12,
    }


def _attempts(run: RunFolder) -> Found:
    """What a fault cost a run that went on; a word for the state, which is no figure."""
    attempts = run.record.get("attempts") or []
    lost = {name: [attempt.get(name) for attempt in attempts] for name in ("steps_lost", "seconds_lost")}
    return {
        "fault_state": UnavailableError(attempts[-1].get("state") or "not recorded" if attempts else run.state),
        "resumed_step": attempts[-1].get("resumed_step") if attempts else UnavailableError("not resumed"),
        **{name: None if None in numbers else float(sum(numbers)) for name, numbers in lost.items()},
    }


def _summary(sources: RunFigures) -> Found:
    """A mistyped value costs only itself."""
    path, found = sources.run.folder / "summary.json", dict(sources.run.summary)
    for key, value in found.items():
        try:
            check({key: value}, SUMMARY_RECORD)
        except MistypedError as error:
            found[key] = LogError(path, None, error.found, error.expected)
    return found


def _summary_of_gpu(sources: RunFigures) -> Found:
    _require_gpu(sources)
    mean_mib = sources.number("avg_mem_total_MB")
    names = ("avg_gpu_util_%", "peak_mem_alloc_mib", "peak_mem_reserved_mib")
    return {name: sources.number(name) for name in names} | {
        "avg_mem_total_gb": None if mean_mib is None else mean_mib * 2**20 / 1e9
    }


def _require_gpu(sources: RunFigures) -> None:
    if sources.run.record.get("device") == "cpu":
        raise UnavailableError("no GPU")


def _train_out(sources: RunFigures) -> Found:
    """The Trainer's closing dict as printed, where transformers 5 rounds it."""
    if (training := sources.training) is None:
        return {}
    key = "eval_samples_per_second"
    speeds = [event[key] for event in training.evals if key in event]
    return (training.final or {}) | ({key: sum(speeds) / len(speeds)} if speeds else {})


def _evaluations(sources: RunFigures) -> Found:
    """Losses after whole epochs; the evaluation at the end of MAX_STEPS is after a part of one."""
    record, losses = sources.run.record, sources.figure("summary.json", "eval_loss")
    if losses:
        steps, per_epoch = (record.get("settings") or {}).get("max_steps"), record.get("steps_per_epoch")
        last = steps / per_epoch if steps and per_epoch else len(losses)
        evaluations = [(min(number, last), loss) for number, loss in enumerate(losses, 1)]
    else:
        evals = sources.training.evals if sources.training else []
        evaluations = [(event["epoch"], event["eval_loss"]) for event in evals]
    if not evaluations:
        return {}
    last, final = evaluations[-1]
    only = UnavailableError("1 epoch only" if last == 1 else f"{last:.3g} epochs only")
    found: dict[str, Any] = {"eval_loss_final": final}
    for epoch in (1, 2, 3):
        nearest, loss = min(evaluations, key=lambda one: abs(one[0] - epoch))
        if abs(nearest - epoch) <= _EPOCH_OFF:
            found[f"eval_loss_{epoch}"] = loss
        elif last < epoch:
            found[f"eval_loss_{epoch}"] = only
    return found


def _steps(sources: RunFigures) -> Found:
    log = sources.run.steps
    if log is None or not log.step.size:
        return {}
    return {
        "steps": float(log.step.max()),
        "time_s": float(log.step_time_s.sum()),
        "positions": float(log.tokens.sum()),
        "examples": None if log.samples is None else float(log.samples.sum()),
        "last_loss": float(log.loss[-max(1, log.loss.size // 10) :].mean()),
    }


def _timers(sources: RunFigures) -> Found:
    paths = sources.run.paths("train.out", "train.out")
    if not paths or not sources.run.facts["timed"]:
        return {}
    warmup = sources.figure("summary.json", "warmup_steps") or 0
    return {
        name: median(times_ms[warmup:])
        for name, times_ms in trainer_log.read_timers(paths[0]).items()
        if times_ms[warmup:]
    }


def _gpu_log(sources: RunFigures) -> Found:
    _require_gpu(sources)
    logs = [read_nvidia_smi(path) for path in sources.run.paths("gpu_memory", ".csv")]
    if len(logs) > 1:  # the mean is over the samples of all nodes
        logs = [MemoryLog([mib for log in logs for mib in log.mib])]
    return _extremes(logs, "empty GPU log")


def _power(sources: RunFigures) -> Found:
    """Watts of a GPU: the largest sample, and the mean while the timed steps ran."""
    _require_gpu(sources)
    logs = [read_nvidia_smi(path, with_time=True) for path in sources.run.paths("gpu_memory", ".csv")]
    samples = [
        (log.start_s + time_s, watts)
        for log in logs
        for time_s, watts in zip(log.time_s, log.watts, strict=False)
        if not math.isnan(watts)
    ]
    found = {"peak_w": max(watts for _, watts in samples)} if samples else {}
    times = [sources.figure("summary.json", name) for name in ("timed_start", "timed_end")]
    if not (samples and all(times)):
        return found
    start_s, end_s = (seconds(sources.run.folder / "summary.json", None, stamp) for stamp in times)
    timed = [watts for time_s, watts in samples if start_s + _POWER_MEAN_S <= time_s <= end_s]
    if not timed:
        return found | {"mean_w": UnavailableError("no sample")}
    mean_w, gpus = fmean(timed), sources.run.facts["world_size"]
    timed_s, energy_j = sources.number("timed_s"), sources.number("energy_j")
    percent = 100 * mean_w * gpus * timed_s / energy_j if gpus and timed_s and energy_j else None
    return found | {"mean_w": mean_w, "energy_percent": percent}


def _energy(sources: RunFigures) -> Found:
    """Joules of the timed steps by NVML's counter."""
    _require_gpu(sources)
    timed_s = sources.number("timed_s")
    if timed_s is not None and timed_s < LEAST_ENERGY_S:
        raise UnavailableError(f"under {LEAST_ENERGY_S} s")
    return {name: sources.number(name) for name in ("energy_j", "real_tokens_per_joule")}


def _cpu_log(prefix: str) -> Callable[[RunFigures], Found]:
    return lambda sources: _extremes(
        [read_psrecord(path) for path in sources.run.paths(prefix, ".txt")], "empty CPU log"
    )


def _extremes(logs: list[MemoryLog], if_empty: str) -> Found:
    """The extremes of the log with the most: a job can run out of one node's memory, not of all nodes' sum."""
    filled = [figures for log in logs if (figures := log.figures())]
    if logs and not filled:
        raise UnavailableError(if_empty)
    return {name: max(figures[name] for figures in filled) for name in (filled[0] if filled else ())}


def _fabric(sources: RunFigures) -> Found:
    paths = sources.run.paths("nccl.log", "nccl.log")
    if not paths:
        return {}
    log, expected = nccl_log.read(paths[0]), sources.run.facts["world_size"]
    if log.world_size != expected:
        raise UnavailableError(f"a world of {log.world_size}, not {expected}")
    return {"allreduce_gb_per_s": log.allreduce_gb_per_s}


def _computed(sources: RunFigures) -> Found:
    steps_per_second, samples_per_second = (sources.number(f"train/{name}_per_second") for name in ("steps", "samples"))
    if not steps_per_second:
        return {}
    return {
        "step_time_ms": 1000 / steps_per_second,
        "examples_per_step": samples_per_second / steps_per_second if samples_per_second else None,
    }


# What reads each source, and the files that it reads.
_SOURCES: dict[str, tuple[Callable[[RunFigures], Found], str]] = {
    "run.json": (_run_json, "run.json"),
    "summary.json": (_summary, "summary.json"),
    "summary.json/gpu": (_summary_of_gpu, "summary.json"),
    "train.out": (_train_out, "train.out"),
    "evaluations": (_evaluations, "summary.json train.out"),
    "steps.csv": (_steps, "steps.csv"),
    "timers": (_timers, "train.out"),
    "gpu_memory": (_gpu_log, "gpu_memory*.csv"),
    "gpu_power": (_power, "gpu_memory*.csv summary.json"),
    "energy": (_energy, "summary.json"),
    "cpu_memory": (_cpu_log("cpu_memory"), "cpu_memory*.txt"),
    "cpu_pss": (_cpu_log("cpu_pss"), "cpu_pss*.txt"),
    "fabric": (_fabric, "nccl.log"),
    "computed": (_computed, "summary.json"),
    "collectives": (lambda sources: communication.counted(sources.run), "collectives.csv"),
    "predicted": (lambda sources: communication.predicted(sources.run), "run.json"),
    "mfu": (lambda sources: mfu.utilisation(sources.run, sources.number), "run.json summary.json"),
}
