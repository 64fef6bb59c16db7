"""One run folder: what its run.json says. The format is the contract in logs/README.md.

A run folder may be incomplete (the job failed early, a logger is not installed) or damaged; neither may stop the
listing of the others.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evidence.schema import REQUIRED, STATES, MistypedError, RunRecord, check
from tools.errors import LogError
from tools.logs import columns, steps

if TYPE_CHECKING:
    from tools.logs.figures import RunFigures
    from tools.logs.store import Store

SHOWN_STATES = (*STATES, "lost", "unreadable")
LOST_AFTER_S = 600


@dataclass(frozen=True)
class Not:
    """A condition on a run: a fact is not this value."""

    value: Any


@dataclass(frozen=True)
class Run:
    """One run folder.

    Attributes:
        folder: the run folder.
        record: run.json; {} if it cannot be read.
        problem: why run.json cannot be read, or None.
        store: knows the run's figures (tools/logs/store.py).
    """

    folder: Path
    record: RunRecord
    problem: str | None
    store: Store = field(compare=False, repr=False)

    @cached_property
    def figures(self) -> RunFigures:
        """What the run measured; its logs are read when somebody asks for the first time."""
        return self.store.figures(self)

    @cached_property
    def names(self) -> list[str]:
        """The names of the folder's files."""
        return sorted(os.listdir(self.folder))  # noqa: PTH208  (names are all that is wanted)

    @cached_property
    def state(self) -> str:
        """A state of the contract, or "lost": said to be running, yet nothing was written for ten minutes."""
        if self.problem:
            return "unreadable"
        newest_s = 0.0
        if self.record["state"] == "running":
            newest_s = max(entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(self.folder))
        return "lost" if newest_s and time.time() - newest_s > LOST_AFTER_S else self.record["state"]

    @property
    def reason(self) -> str:
        """One line on how a run ended that did not complete: run.json's own, else read from train.out."""
        return self.figures.cause if self.needs_cause else self.problem or self._told

    @property
    def needs_cause(self) -> bool:
        """Whether only train.out says why the run did not complete."""
        return not (self.problem or self._told or self.state in ("completed", "running"))

    @property
    def _told(self) -> str:
        return "" if self.state in ("completed", "running") else self.record.get("reason") or ""

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json as it is; {} without one. Raises LogError if it is damaged."""
        return read_object(self.folder / "summary.json") if "summary.json" in self.names else {}

    @cached_property
    def steps(self) -> steps.StepLog | None:
        """All steps of steps.csv. Raises LogError if it is damaged."""
        return steps.read(self.folder / "steps.csv") if "steps.csv" in self.names else None

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
        name = (record.get("model") or {}).get("name") or settings.get("model_name") or ""
        sharding = record.get("sharding") or {}
        return {
            "exercise": record.get("exercise"),
            "config": record.get("config"),
            "model": name.rsplit("/", 1)[-1] or None,
            "nodes": nodes,
            "gpus_per_node": record.get("gpus_per_node"),
            "world_size": world_size,
            "train_examples": train_examples,
            "examples_per_gpu": train_examples / world_size if train_examples and world_size else None,
            "method": sharding.get("method"),
            "cpu_offload": sharding.get("cpu_offload"),
            **{f"shards_{key}": sharding.get(key) for key in ("parameters", "gradients", "optimizer")},
            # Unknown of older runs, whose records do not name the classes.
            "unchanged_model": None if sharding.get("own_modules") is None else not sharding["own_modules"],
            "hf_trainer": "transformers.trainer.Trainer" in (record.get("trainer_classes") or []) or None,
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
            "repeat": settings.get("repeat") or 1,
        }

    def matches(self, where: dict[str, Any]) -> bool:
        return all(
            self.facts[key] != wanted.value if isinstance(wanted, Not) else self.facts[key] == wanted
            for key, wanted in where.items()
        )


def _time(text: str | None) -> datetime | None:
    try:
        stamp = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds one object.

    Raises:
        LogError: it holds something else, or cannot be read.
    """
    try:
        content = json.loads(columns.all_bytes(path))
    except json.JSONDecodeError as error:
        raise LogError(path, error.lineno, error.doc[error.pos : error.pos + 40] or "the end", "JSON") from error
    except (ValueError, RecursionError) as error:  # no UTF-8; a number of 5,000 digits; 100,000 brackets
        raise LogError(path, None, str(error), "JSON in UTF-8") from error
    except OSError as error:
        raise LogError(path, None, error.strerror or "an error", "a file that can be read") from error
    if not isinstance(content, dict):
        raise LogError(path, 1, str(content), "a JSON object")
    return content


def open_run(folder: Path, store: Store) -> Run:
    """The run in `folder`; a damaged run.json gives a run with a `problem`, never an exception."""
    path = folder / "run.json"
    try:
        record = read_object(path)
        for key in REQUIRED:
            if record.get(key) is None:
                raise LogError(path, None, f"no {key!r}", f"the keys {', '.join(REQUIRED)}")
        try:
            check(record, RunRecord)
        except MistypedError as error:
            raise LogError(path, None, error.found, error.expected) from error
        if record["state"] not in STATES:
            raise LogError(path, None, f"state {record['state']!r}", f"one of {', '.join(STATES)}")
        if _time(record["start_time"]) is None:
            raise LogError(path, None, f"start_time {record['start_time']!r}", "an ISO 8601 time")
    except LogError as error:
        return Run(folder, {}, str(error), store)
    return Run(folder, record, None, store)
