"""A run: its folder, its typed run.json and derived facts. logs/README.md describes the format.

A run folder may be incomplete (the job failed early, a logger is not installed) or damaged; neither may stop the
listing of the others.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pwd
import time
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from tools.errors import LogError
from workshop.record import csv_log
from workshop.record.causes import cause
from workshop.record.errors import read_plain
from workshop.record.schema import STATES, RunRecord
from workshop.settings.settings import is_tiny, recorded_types

SETTINGS = recorded_types()
SHOWN_STATES = (*STATES, "lost", "unreadable")
LOST_AFTER_S = 600
_SILENT_S = 120
_TINY_HIDDEN_SIZE = 64  # of tiny.env's two models; the smallest real one has 768
Where = dict[str, Any]  # conditions on a run's facts


class NoneOf(tuple):
    """A condition: a fact is none of these values."""


def meets(fact: Any, wanted: Any) -> bool:
    return fact not in wanted if isinstance(wanted, NoneOf) else fact == wanted


@dataclass(frozen=True, eq=False)
class Run:
    """One run folder. Tables select by its facts: see `fact`.

    Attributes:
        record: run.json, typed; an empty one if it cannot be read.
        problem: why run.json cannot be read; "" if it can.
    """

    folder: Path
    record: RunRecord = field(default=RunRecord(), repr=False)
    problem: str = ""

    # ---- facts: what tables select by, beside the keys of run.json and the settings ----

    settings = property(lambda run: run.record.settings)
    rung = property(lambda run: run.settings.get("rung") or None)
    fault = property(lambda run: run.settings.get("fault") or None)
    method = property(lambda run: run.record.sharding.method)  # as observed
    adapters = property(lambda run: run.settings.get("method"))  # of further/lora/: full, lora or qlora
    repeat = property(lambda run: run.settings.get("repeat") or 1)
    profiled = property(lambda run: bool(run.settings.get("profile")))
    transformers = property(lambda run: run.record.versions.get("transformers"))
    timed = property(lambda run: bool(run.settings.get("timers")))
    several_gpus = property(lambda run: (run.world_size or 0) > 1)
    hf_trainer = property(lambda run: "transformers.trainer.Trainer" in run.record.trainer_classes or None)
    # All its modules are PyTorch's or transformers'; unknown of older runs, which do not name them.
    unchanged_model = property(lambda run: None if (own := run.record.sharding.own_modules) is None else not own)
    dp_size = property(lambda run: run.record.dp_size or run.world_size)  # older: each rank had examples of its own
    train_examples = property(lambda run: run.record.train_examples or run.settings.get("train_size"))
    # Training processes; asked for, where rank 0 had not counted them when the job failed.
    world_size = property(lambda run: run.record.world_size or _product(run.record.nodes, run.record.gpus_per_node))
    examples_per_gpu = property(
        lambda run: run.train_examples / run.dp_size if run.train_examples and run.dp_size else None
    )
    examples_per_gpu_step = property(lambda run: _product(*map(run.settings.get, ("batch_size", "grad_acc"))))
    # None: not whole ones.
    epochs = property(lambda run: None if run.settings.get("max_steps") else run.settings.get("num_epochs"))
    # As asked for: without a GPU fp16 trains in fp32.
    precision = property(lambda run: next((name for name in ("fp16", "bf16") if run.settings.get(name)), "fp32"))

    @property
    def configuration(self) -> str:
        """Its rung or configuration; of a run without either how it shards; "" if it does not."""
        return self.rung or self.record.config or (self.method if self.method != "none" else None) or ""

    @property
    def model(self) -> str | None:
        """The name of the model, without its owner."""
        name = self.record.model.name or self.settings.get("model_name") or ""
        return name.rsplit("/", 1)[-1] or None

    @cached_property
    def tiny(self) -> bool:
        """Whether it trained a model of tiny.env's size."""
        width = self.record.model.hidden_size or self.settings.get("hidden_size")
        return is_tiny(self.settings.get("model_name") or "") or (width is not None and width <= _TINY_HIDDEN_SIZE)

    def fact(self, name: str) -> Any:
        """A fact that tables select by: a property, a key of run.json (`sharding.parameters`), or a setting.

        Raises:
            AttributeError: there is none of this name.
        """
        if hasattr(Run, name):
            return getattr(self, name)
        if hasattr(self.record, name.split(".")[0]):
            return attrgetter(name)(self.record)
        if name not in SETTINGS and name not in self.settings:
            raise AttributeError(f"a run has no fact {name!r}")
        return self.settings.get(name)

    def matches(self, where: Where) -> bool:
        return all(meets(self.fact(name), wanted) for name, wanted in where.items())

    # ---- how it ended ----

    @cached_property
    def state(self) -> str:
        """A state of the contract, or "lost": said to be running, yet nothing was written for ten minutes."""
        if self.problem:
            return "unreadable"
        if self.record.state == "running" and self.files:
            return "lost" if time.time() - max(self.files.values()) / 1e9 > LOST_AFTER_S else "running"
        return self.record.state

    @property
    def outcome(self) -> str:
        """The state as tables show it, with its cause where run.json names one: FAILED (disk full)."""
        cause = self.state not in ("completed", "running") and self.record.cause
        return self.state.upper() + (f" ({cause})" if cause else "")

    @cached_property
    def reason(self) -> str:
        """What is wrong, in one line: from run.json, else train.out; of a running run its loss or silence; else ""."""
        if self.problem or self.state == "completed":
            return self.problem
        if self.state == "running":
            return self._trouble()
        if recorded := ": ".join(filter(None, [self.record.cause, self.record.reason])):
            return recorded
        try:
            why = cause(self.folder / "train.out") if "train.out" in self.files else None
        except OSError as error:
            return f"train.out: {error.strerror}"
        return ": ".join(filter(None, [why.name, f"train.out:{why.line}", why.text])) if why else ""

    def _trouble(self) -> str:
        """What is wrong with a run that still runs."""
        try:
            steps = self.steps
        except LogError as damaged:
            return str(damaged)
        if steps and not math.isfinite(steps.loss[-1]):
            return f"loss is {steps.loss[-1]}"
        # Loggers write even while the training hangs.
        written_ns = [self.files[name] for name in ("run.json", "steps.csv", "train.out") if name in self.files]
        silent_s = time.time() - max(written_ns, default=0) / 1e9
        usual_s = 10 * steps.step_time_s[-1] if steps else 0
        return f"wrote nothing for {silent_s:.0f} s" if silent_s > max(_SILENT_S, usual_s) else ""

    @property
    def progress(self) -> str:
        """The last step and the number of steps asked for: 48/96, or 48/? before rank 0 has counted them."""
        with contextlib.suppress(LogError):
            asked = self.settings.get("max_steps") or _product(self.record.steps_per_epoch, self.epochs)
            return f"{self.steps.step[-1]:.0f}/{asked or '?'}" if self.steps else f"0/{asked or '?'}"
        return "?"

    @property
    def resumptions(self) -> list[tuple[int, str]]:
        """For each resumed attempt its first step, and in words how the attempt before it ended."""
        told = []
        for attempt in self.record.attempts:
            if (step := attempt.resumed_step) is not None:
                last = "" if attempt.last_step is None else f" after step {attempt.last_step}"
                told.append((step, f"{attempt.state or 'ended'}{last}, resumed from step {step}"))
        return told

    @property
    def examples_asked(self) -> int | None:
        """Examples that the whole training was to process, in all epochs together."""
        if steps := self.settings.get("max_steps"):
            return _product(steps, self.examples_per_gpu_step, self.dp_size)
        return _product(self.epochs, self.train_examples)

    @cached_property
    def start(self) -> datetime:
        """Its start; the time of its newest file if run.json cannot be read."""
        return time_of(self.record.start_time) or datetime.fromtimestamp(max(self.files.values(), default=0) / 1e9, UTC)

    @property
    def runtime_s(self) -> float | None:
        """Wall time of the whole job (s), to now if it is still running; None: no end, or the clock was set back."""
        end = datetime.now(UTC) if self.state == "running" else time_of(self.record.end_time)
        return (end - self.start).total_seconds() if end and end >= self.start else None

    # ---- its files ----

    @cached_property
    def owner(self) -> str:
        """The folder's owner: a login name, or a user id that this machine does not know."""
        try:
            return _login_name(os.lstat(self.folder).st_uid)
        except FileNotFoundError:  # deleted while others are read
            return "unknown"

    @cached_property
    def files(self) -> dict[str, int]:
        """Modification time (ns) of the plain files in the folder, by name; {} if it cannot be looked into."""
        if self.folder.is_symlink():
            return {}
        times = {}
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                with contextlib.suppress(FileNotFoundError):  # it is gone since
                    if entry.is_file(follow_symlinks=False):
                        times[entry.name] = entry.stat(follow_symlinks=False).st_mtime_ns
        return dict(sorted(times.items()))

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json as it is; {} without one. Raises LogError if it is damaged."""
        return read_object(f"{self.folder}/summary.json") if "summary.json" in self.files else {}

    @property
    def steps(self) -> StepLog | None:
        """All steps of steps.csv, None before the first. Raises LogError if it is damaged."""
        return read_steps(f"{self.folder}/steps.csv") if "steps.csv" in self.files else None


def _product(*factors: int | None) -> int | None:
    return math.prod(factors) if all(factors) else None


@dataclass(frozen=True)
class StepLog:
    """Columns of steps.csv, an entry per optimizer step (`Step` in workshop/record/schema.py)."""

    step: list[float]
    step_time_s: list[float]
    tokens: list[float]
    loss: list[float]
    samples: list[float] | None = None  # None in logs of version 1


def read_steps(path: Path | str) -> StepLog | None:
    """Parse steps.csv; None for a file without steps.

    Raises:
        LogError: the header or a line is not as in the contract.
    """
    if not (rows := csv_log.step_rows(path)):
        return None
    names = [column.name for column in fields(StepLog) if column.name in rows[0][1]]
    columns = ([csv_log.number(path, line, row[name], name, name != "loss") for line, row in rows] for name in names)
    return StepLog(*columns)


def read_object(path: Path | str) -> dict[str, Any]:
    """A JSON file that holds one object.

    Raises:
        LogError: it holds something else, or cannot be read.
    """
    data = read_plain(path)
    try:
        content = json.loads(data)
    except json.JSONDecodeError as error:
        raise LogError(path, error.lineno, error.doc[error.pos : error.pos + 40] or "the end", "JSON") from error
    except (ValueError, RecursionError) as error:  # no UTF-8; a number of 5,000 digits; 100,000 brackets
        raise LogError(path, None, str(error), "JSON in UTF-8") from error
    if not isinstance(content, dict):
        raise LogError(path, 1, str(content), "a JSON object")
    return content


def is_mine(path: Path) -> bool:
    """Whether the file or folder is there, is no link, and belongs to this user."""
    return path.exists() and not path.is_symlink() and path.lstat().st_uid == os.getuid()


def duration(seconds: float) -> str:
    """The time as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@cache
def _login_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def time_of(text: str | None) -> datetime | None:
    """An ISO 8601 time, UTC unless it says otherwise; None for anything else."""
    try:
        stamp = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
