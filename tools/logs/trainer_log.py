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

from evidence.plain_files import read_plain
from tools.errors import LogError

_DICT = re.compile(r"\{'(?:loss|eval_\w+|train_\w+)': [^{}\n]*\}")
_PAIR = re.compile(r"'([^']+)': (?:'([^']*)'|([^,}]+))")

Event = dict[str, float]


@dataclass
class Training:
    """One training's events, each a dict of the Trainer's own names to numbers.

    Attributes:
        evals: the `{'eval_loss': ...}` events, one per epoch (evaluating once more at the end adds none).
        final: the closing `{'train_runtime': ...}` event; None if the training did not end.
        losses: the `{'loss': ...}` events.
        last_epoch: of the last event.
    """

    evals: list[Event] = field(default_factory=list)
    final: Event | None = None
    losses: list[Event] = field(default_factory=list)
    last_epoch: float = 0.0


def read(path: Path | str) -> list[Training]:
    """All trainings in the file, in order; [] if the Trainer printed nothing.

    Raises:
        LogError: an event holds something other than numbers.
    """
    # Decoded by hand: text mode would turn the progress bar's carriage returns into lines.
    text = read_plain(path).decode("utf-8", "replace")
    trainings: list[Training] = []
    seen: set[tuple] = set()
    for event in _events(path, text):
        epoch = event.get("epoch", 0.0)
        key = _identity(event)
        # What another rank printed again. Runtimes differ between ranks, so they are not part of the key.
        if key in seen:
            continue
        if not trainings or _starts_anew(trainings[-1], event, epoch):
            trainings.append(Training())
            seen.clear()
        seen.add(key)
        training = trainings[-1]
        training.last_epoch = epoch
        if "train_runtime" in event:
            training.final = event
        elif "loss" in event:
            training.losses.append(event)
        elif "eval_loss" in event and not any(known["epoch"] == epoch for known in training.evals):
            training.evals.append(event | {"epoch": epoch})
    return trainings


def _starts_anew(training: Training, event: Event, epoch: float) -> bool:
    return epoch < training.last_epoch or (training.final is not None and "loss" in event)


def _identity(event: Event) -> tuple:
    if "train_runtime" in event:
        return "train", event.get("epoch"), event.get("train_loss")
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
