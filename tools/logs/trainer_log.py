"""Losses and speeds from what the Hugging Face Trainer printed (train.out).

The Trainer prints a Python dict per log event. In a job's output it shares its line with tqdm's progress bar (carriage
returns instead of line ends), several ranks may print the same event, and a requeued job appends a second training.
Older versions print numbers, transformers 5 prints strings: `{'loss': '12.64', ...}`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from run_folder.safe_open import read_plain
from tools.errors import LogError

_DICT = re.compile(r"\{'(?:loss|eval_\w+|train_\w+)': [^{}\n]*\}")
_RANKS_DIFFER_S = 0.5
_PAIR = re.compile(r"'([^']+)': (?:'([^']*)'|([^,}]+))")

Event = dict[str, float]


@dataclass
class Training:
    """One training's events, each a dict of the Trainer's own names to numbers.

    Attributes:
        evals: the `{'eval_loss': ...}` events, one at each place in the training (`epoch`, 0.5 after half of the
            first; evaluating once more at the end adds none).
        final: the closing `{'train_runtime': ...}` event; None if the training did not end.
        losses: the `{'loss': ...}` events.
        last_epoch: of the last event.
    """

    evals: list[Event] = field(default_factory=list)
    final: Event | None = None
    losses: list[Event] = field(default_factory=list)
    last_epoch: float = 0.0

    def take(self, event: Event) -> None:
        self.last_epoch = _epoch(event)
        if "train_runtime" in event:
            self.final = event
        elif "loss" in event:
            self.losses.append(event)
        elif "eval_loss" in event and not any(known["epoch"] == self.last_epoch for known in self.evals):
            self.evals.append(event | {"epoch": self.last_epoch})


def read(path: Path | str) -> list[Training]:
    """All trainings in the file, in order; [] if the Trainer printed nothing.

    Raises:
        LogError: an event holds something other than numbers.
    """
    # Decoded by hand: text mode would turn the progress bar's carriage returns into lines.
    text = read_plain(path).decode("utf-8", "replace")
    trainings: list[Training] = []
    seen: set[tuple] = set()  # of the last training
    since: list[Event] = []  # what was printed after the last closing event, again or not
    fresh = False  # whether any of it was printed for the first time
    for event in _events(path, text):
        training, closes, key = trainings[-1] if trainings else None, "train_runtime" in event, _identity(event)
        # Another rank's; not a closing event before which something new stands.
        again = closes and training is not None and not fresh and _end_together(training.final, event)
        again = again or key in seen
        if not again:
            if training is None or _starts_anew(training, event):
                # Its first events may have been equal to those of the training before it.
                own = since if training is not None and training.final else []
                trainings.append(training := Training())
                seen = set()
                for one in own:
                    if _epoch(one) <= _epoch(event):
                        training.take(one)
                        seen.add(_identity(one))
            training.take(event)
        if closes:
            since, fresh = [], False
        else:
            seen.add(key)
            since.append(event)
            fresh |= not again
    return trainings


def _epoch(event: Event) -> float:
    return event.get("epoch", 0.0)


def _starts_anew(training: Training, event: Event) -> bool:
    ended = training.final is not None and ("loss" in event or "train_runtime" in event)
    return ended or _epoch(event) < training.last_epoch


def _end_together(one: Event | None, other: Event) -> bool:
    """Whether two closing events can be of one training: its ranks end together, each with its own runtime and loss."""
    if one is None or _epoch(one) != _epoch(other):
        return False
    return abs(one["train_runtime"] - other["train_runtime"]) < _RANKS_DIFFER_S


def _identity(event: Event) -> tuple:
    if "loss" in event:  # nearly all are; none has a runtime
        return tuple(event.items())
    return tuple(sorted(item for item in event.items() if not item[0].endswith(("_runtime", "_per_second"))))


def _events(path: Path | str, text: str) -> list[Event]:
    found = list(_DICT.finditer(text))
    try:
        # Dicts of numbers and short names are nearly JSON, whose parser takes a fraction of the time of _numbers.
        events = json.loads("[" + ",".join(match[0] for match in found).replace("'", '"') + "]")
        return [dict(zip(event, map(float, event.values()), strict=True)) for event in events]
    except (ValueError, TypeError):
        return [_numbers(path, text, match) for match in found]


def _numbers(path: Path | str, text: str, match: re.Match) -> Event:
    event = {}
    for name, quoted, bare in _PAIR.findall(match[0]):
        value = quoted or bare.strip()
        try:
            event[name] = float(value)
        except ValueError as error:
            line = text.count("\n", 0, match.start()) + 1
            raise LogError(path, line, f"{name}: {value}", "a number in the Trainer's dict") from error
    return event
