"""One run folder: what its run.json says. The format is the contract in logs/README.md.

A run folder may be incomplete (the job failed early, a logger is not installed) or damaged; neither may stop the
listing of the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import stat
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.errors import LogError
from workshop.run_folder import csv_log
from workshop.run_folder.causes import cause
from workshop.run_folder.printable import one_line
from workshop.run_folder.safe_open import read_plain
from workshop.run_folder.schema import REQUIRED, RUN_RECORD, STATES, MistypedError, check
from workshop.run_folder.settings import is_tiny

if TYPE_CHECKING:
    import numpy as np

LOST_AFTER_S = 600
_NAME = re.compile(r"\w[\w.+-]*")
# What tables select by as it is in the settings.
_SETTINGS = ("use_fsdp", "batch_size", "grad_acc", "max_length", "loss", "loss_chunk", "max_steps", "seed")
_SETTINGS += ("gradient_checkpointing", "sequence_parallel", "schedule", "lora_rank", "learning_rate")
_TINY_HIDDEN_SIZE = 64  # of tiny.env's two models; the smallest real one has 768


def is_mine(path: Path) -> bool:
    """Whether the file or folder is there, is no link, and belongs to this user."""
    return path.exists() and not path.is_symlink() and path.lstat().st_uid == os.getuid()


@dataclass(frozen=True)
class RunFolder:
    """One run folder.

    Attributes:
        folder: the run folder.
        record: run.json; {} if it cannot be read.
        problem: why run.json cannot be read, or None.
    """

    folder: Path
    record: dict[str, Any]
    problem: str | None

    @cached_property
    def owner(self) -> str:
        """Whose folder it is: the login name, or the number of a user that this machine does not know."""
        status = _status(self.folder)
        return _login_name(status.st_uid) if status else "unknown"

    @cached_property
    def files(self) -> dict[str, list[int]]:
        """Size and modification time (ns) of what is in the folder, by name; {} if it cannot be looked into."""
        if self.folder.is_symlink():
            return {}
        found = []
        try:
            for entry in os.scandir(self.folder):
                with contextlib.suppress(FileNotFoundError):  # it is gone since
                    status = entry.stat(follow_symlinks=False)
                    found.append((entry.name, [status.st_size, status.st_mtime_ns]))
        except OSError:
            return {}
        return dict(sorted(found))

    def is_plain(self, name: str) -> bool:
        """Whether it is a file and no link; False if it is gone since it was listed."""
        status = _status(self.folder / name)
        return status is not None and stat.S_ISREG(status.st_mode)

    def paths(self, prefix: str, suffix: str) -> list[str]:
        """A log's file, or that of each node: gpu_memory.csv, gpu_memory-HOST.csv."""
        return [f"{self.folder}/{name}" for name in self.files if name.startswith(prefix) and name.endswith(suffix)]

    @cached_property
    def state(self) -> str:
        """A state of the contract, or "lost": said to be running, yet nothing was written for ten minutes."""
        if self.problem:
            return "unreadable"
        newest_s = 0.0
        if self.record["state"] == "running":
            newest_s = max((time_ns for _, time_ns in self.files.values()), default=0) / 1e9
        return "lost" if newest_s and time.time() - newest_s > LOST_AFTER_S else self.record["state"]

    @property
    def is_replay(self) -> bool:
        """Whether `python -m tools replay` wrote it, and no job."""
        return bool(self.record.get("replay"))

    @property
    def shown_state(self) -> str:
        """For people: of a replay it says so."""
        return f"{self.state} (replay, not measured)" if self.is_replay else self.state

    @property
    def outcome(self) -> str:
        """The state as tables show it, with its cause where run.json names one: FAILED (disk full)."""
        cause = self.state not in ("completed", "running") and self.record.get("cause")
        return self.state.upper() + (f" ({cause})" if cause else "")

    @cached_property
    def reason(self) -> str:
        """One line on how a run ended that did not complete: run.json's own, else what train.out says, else ""."""
        if self.problem or self.state in ("completed", "running"):
            return self.problem or ""
        if recorded := ": ".join(filter(None, [self.record.get("cause"), self.record.get("reason")])):
            return recorded
        try:
            found = next((cause(path) for path in self.paths("train.out", "train.out")), None)
        except OSError as error:
            return f"train.out: {error.strerror}"
        return ": ".join(filter(None, [found.name, f"train.out:{found.line}", found.text])) if found else ""

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json as it is; {} without one. Raises LogError if it is damaged."""
        return read_object(f"{self.folder}/summary.json") if "summary.json" in self.files else {}

    @property
    def steps(self) -> StepLog | None:
        """All steps of steps.csv. Raises LogError if it is damaged."""
        return read_steps(f"{self.folder}/steps.csv") if "steps.csv" in self.files else None

    @cached_property
    def start(self) -> datetime:
        status = _status(self.folder)
        return _time(self.record.get("start_time")) or datetime.fromtimestamp(status.st_mtime if status else 0, UTC)

    @property
    def resumptions(self) -> list[tuple[int, str]]:
        """The step that each later attempt went on from, and how the attempt before it had ended, in words."""
        found = []
        for attempt in self.record.get("attempts") or []:
            if (step := attempt.get("resumed_step")) is not None:
                last = attempt.get("last_step")
                ended = (attempt.get("state") or "ended") + ("" if last is None else f" after step {last}")
                found.append((step, f"{ended}, went on from step {step}"))
        return found

    @property
    def examples_asked(self) -> int | None:
        """Examples that the whole training was to process, one that is trained on twice counts twice."""
        settings, facts = self.record.get("settings") or {}, self.facts
        if steps := settings.get("max_steps"):
            per_gpu = facts["examples_per_gpu_step"]
            return steps * per_gpu * facts["dp_size"] if per_gpu and facts["dp_size"] else None
        return facts["epochs"] * facts["train_examples"] if facts["epochs"] and facts["train_examples"] else None

    @property
    def end(self) -> datetime | None:
        """When the job ended, now if it is still running; None if its record does not say."""
        return datetime.now(UTC) if self.state == "running" else _time(self.record.get("end_time"))

    @property
    def runtime_s(self) -> float | None:
        """Wall time of the whole job (s), start to end, or to now if it is still running."""
        return (self.end - self.start).total_seconds() if self.end else None

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What a table's labels can select by; what rank 0 had not written when the job failed is in its settings."""
        record, settings = self.record, self.record.get("settings") or {}
        processes = (record.get("nodes") or 0) * (record.get("gpus_per_node") or 0)
        world_size = record.get("world_size") or processes or None
        dp_size = record.get("dp_size") or world_size  # older records: each rank had examples of its own
        train_examples = record.get("train_examples") or settings.get("train_size")
        name = (record.get("model") or {}).get("name") or settings.get("model_name") or ""
        width = (record.get("model") or {}).get("hidden_size") or settings.get("hidden_size")
        sharding = record.get("sharding") or {}
        return {
            **{key: record.get(key) for key in ("exercise", "config", "nodes", "gpus_per_node")},
            **{key: settings.get(key) for key in _SETTINGS},
            **{key: settings.get(key) or None for key in ("rung", "fault")},
            **{key: sharding.get(key) for key in ("method", "cpu_offload")},
            "adapters": settings.get("method"),  # lora/: full, lora or qlora
            "model": name.rsplit("/", 1)[-1] or None,
            "world_size": world_size,
            "dp_size": dp_size,
            "ranks_per_row": world_size // dp_size if dp_size else None,
            "train_examples": train_examples,
            "examples_per_gpu": train_examples / dp_size if train_examples and dp_size else None,
            **{f"shards_{key}": sharding.get(key) for key in ("parameters", "gradients", "optimizer")},
            # Unknown of older runs, whose records do not name the classes.
            "unchanged_model": None if sharding.get("own_modules") is None else not sharding["own_modules"],
            "hf_trainer": "transformers.trainer.Trainer" in (record.get("trainer_classes") or []) or None,
            "several_gpus": world_size is not None and world_size > 1,
            # As asked for: without a GPU fp16 trains in fp32.
            "precision": "fp16" if settings.get("fp16") else "bf16" if settings.get("bf16") else "fp32",
            "examples_per_gpu_step": (settings.get("batch_size") or 0) * (settings.get("grad_acc") or 0) or None,
            # Of runs that ask what was learnt, not how fast; None: not whole epochs.
            "epochs": None if settings.get("max_steps") else settings.get("num_epochs"),
            "learning": bool(settings.get("generate_train_size")),
            "shared_gpu": bool(record.get("shared_gpu")),
            "profiled": bool(settings.get("profile")),
            "timed": bool(settings.get("timers")),
            "repeat": settings.get("repeat") or 1,
            "tiny": is_tiny(settings.get("model_name") or "") or (width is not None and width <= _TINY_HIDDEN_SIZE),
        }


@dataclass(frozen=True)
class StepLog:
    """One entry per optimizer step; columns of steps.csv.

    Attributes:
        step: global step, counted from 1 over the whole training.
        step_time_s: synchronised wall time of the step (s), without evaluation and saving.
        tokens: positions processed by all ranks, padding included.
        loss: training loss of the step.
        samples: training examples of the step; None in logs of before they were counted.
    """

    step: np.ndarray
    step_time_s: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    samples: np.ndarray | None = None


def read_steps(path: Path | str) -> StepLog:
    """Parse steps.csv; an empty file gives no steps.

    Raises:
        LogError: the header or a line is not as in the contract.
    """
    import numpy as np

    rows = list(csv_log.step_numbers(path, csv_log.step_rows(path)))
    names = rows[0] if rows else ("step", "step_time_s", "tokens", "loss")
    return StepLog(**{name: np.array([row[name] for row in rows]) for name in names})


def _status(path: Path) -> os.stat_result | None:
    """None if it is gone: a run may be deleted while others are read."""
    try:
        return os.lstat(path)
    except OSError:
        return None


@cache
def _login_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _time(text: str | None) -> datetime | None:
    try:
        stamp = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)


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


def read_record(folder: Path) -> tuple[dict[str, Any], str | None]:
    """run.json of the run in `folder`, and None; of one that cannot be used {}, and why."""
    path = f"{folder}/run.json"
    try:
        if one_line(path) != path:
            raise LogError(folder, None, "control characters in its name", "a name without them")
        if folder.is_symlink():
            raise LogError(folder, None, "a symbolic link", "a folder; name one that lies elsewhere with --logs")
        record = read_object(path)
        for key in REQUIRED:
            if record.get(key) is None:
                raise LogError(path, None, f"no {key!r}", f"the keys {', '.join(REQUIRED)}")
        try:
            check(record, RUN_RECORD)
        except MistypedError as error:
            raise LogError(path, None, error.found, error.expected) from error
        if record["state"] not in STATES:
            raise LogError(path, None, f"state {record['state']!r}", f"one of {', '.join(STATES)}")
        for key in ("exercise", "config"):  # names of a folder and of a file that tools look for
            if (name := record.get(key)) and not _NAME.fullmatch(name):
                raise LogError(path, None, f"{key} {name!r}", "a name without a folder")
        if _time(record["start_time"]) is None:
            raise LogError(path, None, f"start_time {record['start_time']!r}", "an ISO 8601 time")
    except LogError as error:
        return {}, str(error)
    return _in_lines(record), None


def _in_lines(value: Any) -> Any:
    """Somebody's record with texts that a table and a terminal can show."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return {key: _in_lines(inner) for key, inner in value.items()}
    return [_in_lines(inner) for inner in value] if isinstance(value, list) else value
