"""Where a run's figures come from: one function per source, from a run to figures by key.

A source raises UnavailableError, with the words a cell shows, where none of its figures can exist; a figure that it
merely lacks it leaves out. A damaged file is a LogError and costs the figures of that source only. In place of a figure
there may be such an error, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from evidence.schema import MistypedError, SummaryRecord, check
from tools.errors import LogError, UnavailableError
from tools.logs import communication, deepspeed_timers, mfu, nccl_log, nvidia_smi, psrecord, trainer_log
from tools.logs.run import Run

Found = Mapping[str, Any]


class Sources:
    """The sources of one run; each file is parsed once, and only if a figure needs it."""

    def __init__(self, run: Run):
        self.run = run
        self._found: dict[str, Found | Exception] = {}

    def figure(self, source: str, key: str) -> Any:
        """A figure or None; raises UnavailableError or LogError."""
        if source not in self._found:
            try:
                self._found[source] = _SOURCES[source](self)
            except (UnavailableError, LogError) as error:
                self._found[source] = error
            except OSError as error:
                path = Path(error.filename or self.run.folder)
                self._found[source] = LogError(path, None, error.strerror or str(error), "a file that can be read")
        found = self._found[source]
        value = found if isinstance(found, Exception) else found.get(key)
        if isinstance(value, Exception):
            raise value
        return value

    def number(self, key: str) -> float | None:
        """A figure of summary.json."""
        return self.figure("summary.json", key)

    def paths(self, prefix: str, suffix: str) -> list[Path]:
        """A log's file, or that of each node: gpu_memory.csv, gpu_memory-HOST.csv."""
        names = [name for name in self.run.names if name.startswith(prefix) and name.endswith(suffix)]
        return [self.run.folder / name for name in names]

    @cached_property
    def training(self) -> trainer_log.Training | None:
        """The last training in train.out, because a requeued job appends to it."""
        trainings = [one for path in self.paths("train.out", "train.out") for one in trainer_log.read(path)]
        return trainings[-1] if trainings else None


def _run_json(sources: Sources) -> Found:
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
        "steps_per_epoch": record.get("steps_per_epoch"),
        "runtime_s": None if run.state == "running" else run.runtime_s,
        "parameters_millions": None if model.get("parameters") is None else model["parameters"] / 1e6,
        "flops_per_step_tflop": None if flops is None else flops / 1e12,
    }


def _summary(sources: Sources) -> Found:
    path, found = sources.run.folder / "summary.json", dict(sources.run.summary)
    try:
        check(found, SummaryRecord)
    except MistypedError:  # which one costs only itself
        for key, value in found.items():
            try:
                check({key: value}, SummaryRecord)
            except MistypedError as error:
                found[key] = LogError(path, None, error.found, error.expected)
    return found


def _summary_of_gpu(sources: Sources) -> Found:
    _require_gpu(sources)
    mean_mib = sources.number("avg_mem_total_MB")
    names = ("avg_gpu_util_%", "peak_mem_alloc_mib", "peak_mem_reserved_mib")
    return {name: sources.number(name) for name in names} | {
        "avg_mem_total_gb": None if mean_mib is None else mean_mib * 2**20 / 1e9
    }


def _require_gpu(sources: Sources) -> None:
    if sources.run.record.get("device") == "cpu":
        raise UnavailableError("no GPU")


def _train_out(sources: Sources) -> Found:
    """The Trainer's closing dict as printed, where transformers 5 rounds it."""
    if (training := sources.training) is None:
        return {}
    key = "eval_samples_per_second"
    speeds = [event[key] for event in training.evals if key in event]
    return (training.final or {}) | ({key: sum(speeds) / len(speeds)} if speeds else {})


def _evaluations(sources: Sources) -> Found:
    losses = sources.figure("summary.json", "eval_loss")
    if not losses and sources.training:
        losses = [event["eval_loss"] for event in sources.training.evals]
    if not losses:
        return {}
    only = UnavailableError(f"{len(losses)} epochs only" if len(losses) > 1 else "1 epoch only")
    found = {f"eval_loss_{epoch}": losses[epoch - 1] if epoch <= len(losses) else only for epoch in (1, 2, 3)}
    return found | {"eval_loss_final": losses[-1]}


def _steps(sources: Sources) -> Found:
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


def _timers(sources: Sources) -> Found:
    paths = sources.paths("train.out", "train.out")
    if not paths or not sources.run.facts["timed"]:
        return {}
    warmup = sources.figure("summary.json", "warmup_steps") or 0
    return {
        name: median(times_ms[warmup:])
        for name, times_ms in deepspeed_timers.read(paths[0]).items()
        if times_ms[warmup:]
    }


def _gpu_log(sources: Sources) -> Found:
    _require_gpu(sources)
    logs = [nvidia_smi.read(path) for path in sources.paths("gpu_memory", ".csv")]
    if not logs:
        return {}
    log = nvidia_smi.merge(logs)
    return _or_empty({"peak_mib": log.peak_mib, "mean_mib": log.mean_mib, "min_mib": log.min_mib}, "empty GPU log")


def _cpu_log(prefix: str) -> Callable[[Sources], Found]:
    """The node with the most: a node's memory is what a job can run out of."""

    def read(sources: Sources) -> Found:
        logs = [psrecord.read(path) for path in sources.paths(prefix, ".txt")]
        if not logs:
            return {}
        filled = [log for log in logs if log.real_mib.size]
        most = {name: max((getattr(log, name) for log in filled), default=None) for name in ("peak_mib", "mean_mib")}
        return _or_empty(most, "empty CPU log")

    return read


def _or_empty(found: Found, word: str) -> Found:
    if None in found.values():
        raise UnavailableError(word)
    return found


def _fabric(sources: Sources) -> Found:
    paths = sources.paths("nccl.log", "nccl.log")
    if not paths:
        return {}
    log, expected = nccl_log.read(paths[0]), sources.run.facts["world_size"]
    if log.world_size != expected:
        raise UnavailableError(f"a world of {log.world_size}, not {expected}")
    return {"allreduce_gb_per_s": log.allreduce_gb_per_s}


def _computed(sources: Sources) -> Found:
    steps_per_second, samples_per_second = (sources.number(f"train/{name}_per_second") for name in ("steps", "samples"))
    if not steps_per_second:
        return {}
    return {
        "step_time_ms": 1000 / steps_per_second,
        "examples_per_step": samples_per_second / steps_per_second if samples_per_second else None,
    }


_SOURCES: dict[str, Callable[[Sources], Found]] = {
    "run.json": _run_json,
    "summary.json": _summary,
    "summary.json/gpu": _summary_of_gpu,
    "train.out": _train_out,
    "evaluations": _evaluations,
    "steps.csv": _steps,
    "timers": _timers,
    "gpu_memory": _gpu_log,
    "cpu_memory": _cpu_log("cpu_memory"),
    "cpu_pss": _cpu_log("cpu_pss"),
    "fabric": _fabric,
    "computed": _computed,
    "collectives": lambda sources: communication.counted(sources.run),
    "predicted": lambda sources: communication.predicted(sources.run),
    "mfu": lambda sources: mfu.utilisation(sources.run, sources.number),
}
