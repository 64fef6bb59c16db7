"""One run that is looked at again and again."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evidence import csv_log, steps_csv
from tools.errors import InputError, LogError
from tools.logs import nvidia_smi
from tools.logs.run import Run
from tools.logs.runs import find_runs, read_run, run_folders
from tools.watch import tails

LOSSES_KEPT = 240
RECENT_STEPS = 20
GPU_BYTES = 2 << 10  # the last samples of each GPU of a node
SILENT_S = 120
_MOST_STEPS = 10**9  # more is no training
_BAD = ("lost", "oom", "failed", "timeout", "unreadable")


@dataclass
class Followed:
    """What is known of a run so far.

    Attributes:
        run: with run.json as it was at the last look.
        step: of the last line of steps.csv; 0 before the first.
        losses: of the last steps; recent: (step time in s, tokens) of the last few.
        gpu_mib: the largest memory.used of its last samples; None without a log.
        silent_s: since steps.csv or train.out was last written.
    """

    run: Run
    owner: str
    step: int = 0
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=LOSSES_KEPT))
    recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    gpu_mib: int | None = None
    silent_s: float = 0.0
    _record_time_ns: int = 0
    _steps_end: int = 0
    _part: bytes = b""
    _header: str = ""
    _names: list[str] = field(default_factory=list)
    _gpu_times_ns: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Read what is new."""
        self.run = replace(self.run)  # files and state are looked at anew, run.json is kept
        files = self.run.files
        record_time_ns = files.get("run.json", [0, 0])[1]
        if record_time_ns != self._record_time_ns:
            self.run, self._record_time_ns = read_run(self.run.folder), record_time_ns
        if "steps.csv" in files and files["steps.csv"][0] != self._steps_end:
            self._read_steps(self.run.folder / "steps.csv")
        for name in files:
            if name.startswith("gpu_memory") and self._gpu_times_ns.get(name) != files[name][1]:
                self._gpu_times_ns[name] = files[name][1]
                self.gpu_mib = _memory(self.run.folder / name) or self.gpu_mib
        written_ns = max(files[name][1] for name in files if name in ("steps.csv", "train.out", "run.json"))
        self.silent_s = time.time() - written_ns / 1e9

    def _read_steps(self, path: Path) -> None:
        if not self._names:
            self._header = tails.first_line(path).strip()
            try:
                self._names = steps_csv.column_names(path, self._header)
            except LogError:
                return
        before = self._steps_end
        data, self._steps_end = tails.read_end(path, before)
        begin = self._steps_end - len(data)
        lines = ((self._part if begin == before else b"") + data).split(b"\n")
        self._part = lines.pop()
        if begin not in (0, before):
            lines = lines[1:]  # cut, and so of other columns
        for line in lines[-LOSSES_KEPT:]:
            with contextlib.suppress(LogError):  # a damaged line costs itself
                for row in steps_csv.numbers(path, [line.decode(errors="replace")], self._header, self._names):
                    self.step = int(row["step"])
                    self.losses.append(row["loss"])
                    self.recent.append((row["step_time_s"], int(row["tokens"])))

    @property
    def steps(self) -> int | None:
        """Of the whole training; None before it is known."""
        settings, per_epoch = self.run.record.get("settings") or {}, self.run.record.get("steps_per_epoch")
        steps = settings.get("max_steps") or min(per_epoch or 0, _MOST_STEPS) * (settings.get("num_epochs") or 0)
        return math.ceil(steps) if 0 < steps < _MOST_STEPS else None

    @property
    def step_time_s(self) -> float | None:
        times = [time_s for time_s, _ in self.recent]
        return sum(times) / len(times) if times and sum(times) > 0 else None

    @property
    def left_s(self) -> float | None:
        """The steps that are left, at the pace of the last ones; evaluation and saving come on top."""
        if self.run.state != "running" or not self.steps or not self.step_time_s:
            return None
        return max(self.steps - self.step, 0) * self.step_time_s

    @property
    def tokens_per_s(self) -> float | None:
        if not self.step_time_s:
            return None
        return sum(tokens for _, tokens in self.recent) / (self.step_time_s * len(self.recent))

    @property
    def trouble(self) -> str:
        """What is wrong in a few words; "" where nothing is."""
        if self.run.state not in ("running", "completed"):
            reason = re.sub(r"^train\.out:\d+: ", "", self.run.record.get("reason") or "")  # the key opens that log
            return self.run.problem or self.run.record.get("cause") or reason or self.run.state
        if self.losses and not math.isfinite(self.losses[-1]):
            return f"loss is {self.losses[-1]}"
        if self.run.state == "running" and self.silent_s > max(SILENT_S, 10 * (self.step_time_s or 0)):
            return f"wrote nothing for {self.silent_s:.0f} s"
        return ""

    @property
    def urgency(self) -> tuple[int, float]:
        """Sorts: ended badly, in trouble, stopped, running, completed; in each the newest first."""
        state = self.run.state
        classes = [state in _BAD, state in ("running", "completed") and bool(self.trouble)]
        classes += [state not in ("running", "completed"), state == "running", True]
        return classes.index(True), -self.run.start.timestamp()


def _memory(path: Path) -> int | None:
    """The largest memory.used (MiB) of a GPU log's last samples."""
    header, found_mib = tails.first_line(path).strip(), []
    try:
        names = nvidia_smi.header_names(path, header)
    except LogError:
        return None
    data, _ = tails.read_end(path, 0, GPU_BYTES)
    for line in data.decode(errors="replace").split("\n")[1:-1] if names else []:
        with contextlib.suppress(LogError):  # a damaged line costs itself
            for number, row in csv_log.rows(path, [line], names, header):
                found_mib.append(nvidia_smi.memory_mib(path, number, row["memory.used"]))
    return max((int(one) for one in found_mib if not math.isnan(one)), default=None)


class Folders:
    """The runs of some logs folders that run, or ended not long ago."""

    def __init__(self, logs: Sequence[Path], owner: str | None, recent_s: float) -> None:
        self._logs, self._owner, self._recent_s = logs, owner, recent_s
        self._known: dict[Path, Followed | None] = {}  # None: ended before

    def find(self) -> None:
        """Look for new run folders; those that ended long ago are not opened again.

        Raises:
            InputError: a logs folder is not there.
        """
        for logs in self._logs:
            if not logs.is_dir():
                find_runs(logs)  # says so
        for folder in [folder for logs in self._logs for folder in run_folders(logs, 0)]:
            if folder not in self._known:
                run = read_run(folder)
                shown = self._owner in (None, run.owner) and self._is_recent(run)
                self._known[folder] = Followed(run, run.owner) if shown else None

    def look(self) -> list[Followed]:
        """All that are shown, read anew, by urgency."""
        for folder, followed in self._known.items():
            if followed is None:
                continue
            try:
                followed.look()
            except (OSError, ValueError, InputError):  # deleted meanwhile
                self._known[folder] = None
                continue
            if not self._is_recent(followed.run):
                self._known[folder] = None
        return sorted(filter(None, self._known.values()), key=lambda followed: followed.urgency)

    def _is_recent(self, run: Run) -> bool:
        # Not by its files where the record says when it ended: those of a fresh clone are all new.
        newest_ns = max((time_ns for _, time_ns in run.files.values()), default=0)
        end_s = run.end.timestamp() if run.end else newest_ns / 1e9
        return run.state == "running" or time.time() - end_s < self._recent_s
