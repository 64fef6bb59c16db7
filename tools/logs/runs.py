"""Run folders: finding them, and reading each piece of evidence only when a table asks for it.

The format is the contract in logs/README.md. A run folder may be incomplete (the job failed early, a logger is not
installed) or damaged; neither may stop the listing of the others.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from evidence import causes as failure
from tools.errors import InputError, LogError
from tools.logs import collectives, deepspeed_timers, nccl_log, nvidia_smi, psrecord, steps, trainer_log
from tools.logs.batch import read_file
from tools.logs.processes import in_processes
from tools.logs.progress import progress
from tools.logs.remembered import Evidence, Known

STATES = ("running", "completed", "oom", "timeout", "preempted", "cancelled", "failed")
SHOWN_STATES = (*STATES, "lost", "unreadable")
LOST_AFTER_S = 600
_SEARCH_DEPTH = 3
_RUNS_AT_ONCE = 256
_TYPES: dict[str, type | tuple[type, ...]] = {
    "exercise": str,
    "experiment": str,
    "state": str,
    "start_time": str,
    "nodes": int,
    "gpus_per_node": int,
    "world_size": int,
    "train_examples": int,
    "steps_per_epoch": int,
    "model": dict,
    "settings": dict,
    "sharding": dict,
    "config": str,
    "device": str,
    "end_time": str,
    "reason": str,
    "submission": str,
}
_REQUIRED = ("exercise", "state", "start_time")


@dataclass(frozen=True)
class Not:
    """A condition on a run: a fact is not this value."""

    value: Any


@dataclass(frozen=True)
class Run:
    """One run folder. The log properties raise LogError if a log is damaged and give None if it is not there.

    Attributes:
        folder: the run folder.
        record: run.json; {} if it cannot be read.
        problem: why run.json cannot be read, or None.
        evidence: what is known of the logs' figures.
    """

    folder: Path
    record: dict[str, Any]
    problem: str | None = None
    evidence: Evidence = field(default_factory=Evidence, compare=False, repr=False)

    @cached_property
    def _names(self) -> list[str]:
        return sorted(os.listdir(self.folder))  # noqa: PTH208  (names are all that is wanted)

    def _figures(self, kind: str, prefix: str, suffix: str) -> list[Any]:
        """The figures of the logs with names such as gpu_memory.csv, or gpu_memory-HOST.csv of several nodes."""
        names = [name for name in self._names if name.startswith(prefix) and name.endswith(suffix)]
        return self.evidence.figures(kind, str(self.folder), names)

    @cached_property
    def state(self) -> str:
        """A state of the contract, or "lost": said to be running, yet nothing was written for ten minutes."""
        if self.problem:
            return "unreadable"
        state = self.record["state"]
        if state == "running" and time.time() - self._newest_file_s() > LOST_AFTER_S:
            return "lost"
        return state

    def _newest_file_s(self) -> float:
        return max(entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(self.folder))

    @cached_property
    def reason(self) -> str:
        """One line on how a run ended that did not complete: run.json's own, else read from train.out."""
        if self.problem or self.state in ("completed", "running"):
            return self.problem or ""
        if reason := self.record.get("reason"):
            return reason
        found: failure.Cause | None = next(iter(self._figures("cause", "train.out", "train.out")), None)
        return f"train.out:{found.line}: {found.text}" if found else ""

    @cached_property
    def start(self) -> datetime:
        return _time(self.record.get("start_time")) or datetime.fromtimestamp(self.folder.stat().st_mtime, UTC)

    @property
    def runtime_s(self) -> float | None:
        """Wall time of the whole job (s), start to end, or to now if it is still running."""
        end = datetime.now(UTC) if self.state == "running" else _time(self.record.get("end_time"))
        return (end - self.start).total_seconds() if end else None

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What a table's labels can select by; what rank 0 had not written when the job failed is in its settings."""
        record, settings = self.record, self.record.get("settings") or {}
        nodes = record.get("nodes")
        world_size = record.get("world_size") or (nodes or 0) * (record.get("gpus_per_node") or 0) or None
        train_examples = record.get("train_examples") or settings.get("train_size")
        if not isinstance(train_examples, int):
            train_examples = None
        name = (record.get("model") or {}).get("name") or settings.get("model_name") or ""
        sharding = record.get("sharding") or {}
        return {
            "exercise": record.get("exercise"),
            "config": record.get("config"),
            "model": str(name).rsplit("/", 1)[-1] or None,
            "nodes": nodes,
            "gpus_per_node": record.get("gpus_per_node"),
            "world_size": world_size,
            "train_examples": train_examples,
            "examples_per_gpu": train_examples / world_size if train_examples and world_size else None,
            "method": sharding.get("method"),
            "cpu_offload": sharding.get("cpu_offload"),
            **{f"shards_{key}": sharding.get(key) for key in ("parameters", "gradients", "optimizer")},
            # Unknown of older runs, whose records do not name the classes.
            "unchanged_model": sharding["own_modules"] == [] if "own_modules" in sharding else None,
            "hf_trainer": "transformers.trainer.Trainer" in record.get("trainer_classes", []) or None,
            "several_gpus": world_size is not None and world_size > 1,
            "use_fsdp": settings.get("use_fsdp"),
            # As asked for: without a GPU fp16 trains in fp32.
            "precision": "fp16" if settings.get("fp16") else "bf16" if settings.get("bf16") else "fp32",
            "batch_size": settings.get("batch_size"),
            "grad_acc": settings.get("grad_acc"),
            "examples_per_gpu_step": (settings.get("batch_size") or 0) * (settings.get("grad_acc") or 0) or None,
            "max_length": settings.get("max_length"),
            "rung": settings.get("rung") or None,
            # Of runs that ask what was learnt, not how fast; None: not whole epochs.
            "epochs": None if settings.get("max_steps") else settings.get("num_epochs"),
            "learning": bool(settings.get("generate_train_size")),
            "profiled": bool(settings.get("profile")),
            "timed": bool(settings.get("timers")),
            "repeat": settings.get("repeat", 1),
        }

    def matches(self, where: dict[str, Any]) -> bool:
        return all(
            self.facts[key] != wanted.value if isinstance(wanted, Not) else self.facts[key] == wanted
            for key, wanted in where.items()
        )

    @cached_property
    def training(self) -> trainer_log.TrainingFigures | None:
        """The last training in train.out."""
        return next(iter(self._figures("training", "train.out", "train.out")), None)

    @cached_property
    def timers(self) -> deepspeed_timers.StepParts | None:
        """Where DeepSpeed's own timers say that a step went."""
        return next(iter(self._figures("timers", "train.out", "train.out")), None)

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        return _read_object(self.folder / "summary.json") if "summary.json" in self._names else None

    @cached_property
    def gpu_log(self) -> nvidia_smi.GpuFigures | None:
        """nvidia-smi's samples on all nodes."""
        logs = self._figures("gpu", "gpu_memory", ".csv")
        return nvidia_smi.merge(logs) if logs else None

    @cached_property
    def rss_logs(self) -> list[psrecord.CpuFigures]:
        """psrecord's log of each node."""
        return self._figures("cpu", "cpu_memory", ".txt")

    @cached_property
    def pss_logs(self) -> list[psrecord.CpuFigures]:
        """memory_logger's log of each node."""
        return self._figures("cpu", "cpu_pss", ".txt")

    @cached_property
    def fabric(self) -> nccl_log.FabricFigures | None:
        """The check of the network before a multi-node training."""
        return next(iter(self._figures("fabric", "nccl.log", "nccl.log")), None)

    @cached_property
    def steps(self) -> steps.StepLog | None:
        path = self.folder / "steps.csv"
        return steps.read(path) if path.exists() else None

    @cached_property
    def collectives(self) -> list[collectives.Collective] | None:
        """What rank 0 sent in the counted step."""
        path = self.folder / "collectives.csv"
        return collectives.read(path) if path.exists() else None


def _time(text: str | None) -> datetime | None:
    try:
        stamp = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_file(path))
    except json.JSONDecodeError as error:
        raise LogError(path, error.lineno, error.doc[error.pos : error.pos + 40] or "the end", "JSON") from error
    except UnicodeDecodeError as error:
        raise LogError(path, None, str(error), "UTF-8 text") from error
    if not isinstance(content, dict):
        raise LogError(path, 1, str(content), "a JSON object")
    return content


def find_runs_in(folders: list[Path], experiment: str | None = None) -> list[Run]:
    """The runs of several logs folders together, oldest first. Arguments and errors as of `find_runs`."""
    return sorted((run for logs in folders for run in find_runs(logs, experiment)), key=_age)


def save_evidence(runs: list[Run]) -> None:
    """Each logs folder's figures are remembered in that folder."""
    for evidence in {id(run.evidence): run.evidence for run in runs}.values():
        evidence.save()


def _age(run: Run) -> tuple[datetime, Path]:
    return run.start, run.folder


def read_run(folder: Path, evidence: Evidence | None = None) -> Run:
    """The run in `folder`; a damaged run.json gives a run with a `problem`, never an exception."""
    path, evidence = folder / "run.json", evidence or Evidence()
    try:
        record = _read_object(path)
        for key in _REQUIRED:
            if record.get(key) is None:
                raise LogError(path, None, f"no {key!r}", f"the keys {', '.join(_REQUIRED)}")
        for key, kind in _TYPES.items():
            if record.get(key) is not None and not isinstance(record[key], kind):
                raise LogError(path, None, f"{key}: {record[key]!r}", f"{key} as a JSON {kind.__name__}")
        if record["state"] not in STATES:
            raise LogError(path, None, f"state {record['state']!r}", f"one of {', '.join(STATES)}")
        if _time(record["start_time"]) is None:
            raise LogError(path, None, f"start_time {record['start_time']!r}", "an ISO 8601 time")
    except LogError as error:
        return Run(folder, {}, str(error), evidence)
    except OSError as error:
        return Run(folder, {}, f"{path}: {error.strerror}", evidence)
    return Run(folder, record, None, evidence)


def ask_all(runs: list[Run], questions: Callable[[Run], list[Callable[[], Any]]]) -> Iterator[list[Any]]:
    """The answers to each run's questions, in order; runs are those of one `find_runs`.

    The logs that the answers need are read for many runs at once, and only their figures are kept.
    """
    if not runs:
        return
    evidence = runs[0].evidence

    def ask(chunk: list[Run]) -> tuple[list[list[Any]], Known]:
        return evidence.all_of([questions(run) for run in chunk]), evidence.pop_new()

    chunks = [runs[start : start + _RUNS_AT_ONCE] for start in range(0, len(runs), _RUNS_AT_ONCE)]
    for answers, new in in_processes(ask, chunks):
        evidence.learn(new)
        yield from answers


def default_logs() -> Path:
    """Where the launchers write: $LOG_DIR, else logs/ of the repository, seen from the current folder if inside it."""
    if os.environ.get("LOG_DIR"):
        return Path(os.environ["LOG_DIR"])
    logs = Path(__file__).resolve().parents[2] / "logs"
    return logs.relative_to(Path.cwd()) if logs.is_relative_to(Path.cwd()) else logs


def find_runs(logs: Path, experiment: str | None = None) -> list[Run]:
    """All runs under `logs`, oldest first; with `experiment`, those of that experiment or exercise only.

    Folders holding a run.json are found to a depth of three (machine, experiment, run). The committed reference runs
    in logs/reference are other machines' figures: they are found only when asked for by name.

    Raises:
        InputError: `logs` is not a folder.
    """
    if not logs.is_dir():
        raise InputError(f"{logs}: no such folder; runs are written to $LOG_DIR or logs/, give another with --logs")
    folders = list(_run_folders(logs, 0))
    evidence = Evidence(logs, folders)
    found = [read_run(folder, evidence) for folder in progress(folders, "reading run.json", len(folders))]
    found.sort(key=_age)
    if experiment is None:
        return found
    # A run.json that cannot be read says neither, but its folder is named after the experiment.
    return [
        run
        for run in found
        if experiment in (run.record.get("exercise"), run.record.get("experiment"))
        or (run.problem and run.folder.parent.name == experiment)
    ]


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / "run.json").exists():
        yield folder
    elif depth < _SEARCH_DEPTH:
        for entry in os.scandir(folder):
            hidden = entry.name.startswith(".")  # .code: the snapshots of `tools submit`
            if entry.is_dir() and not hidden and not (depth == 0 and entry.name == "reference"):
                yield from _run_folders(Path(entry.path), depth + 1)
