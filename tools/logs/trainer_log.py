"""Losses and speeds from what the Hugging Face Trainer printed (train.out).

The Trainer prints a Python dict per log event. In a job's output it shares its line with tqdm's progress bar (carriage
returns instead of line ends), several ranks may print the same event, and a requeued job appends a second training.
Older versions print numbers, transformers 5 prints strings: `{'loss': '12.64', ...}`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from run_folder.safe_open import read_plain
from tools.errors import LogError

_DICT = re.compile(r"\{'(?:loss|eval_\w+|train_\w+)': [^{}\n]*\}")
_PAIR = re.compile(r"'([^']+)': (?:'([^']*)'|([^,}]+))")
_RANKS_DIFFER_S = 0.5

Event = dict[str, float]


@dataclass
class Training:
    """One training's events, each a dict of the Trainer's own names to numbers.

    Attributes:
        evals: the `{'eval_loss': ...}` events, one at each place in the training (`epoch`, 0.5 after half of the
            first; evaluating once more at the end adds none).
        final: the closing `{'train_runtime': ...}` event; None if the training did not end.
    """

    evals: list[Event] = field(default_factory=list)
    final: Event | None = None


def read(path: Path | str) -> list[Training]:
    """All trainings in the file, in order; [] if the Trainer printed nothing.

    Raises:
        LogError: an event holds something other than numbers.
    """
    # Decoded by hand: text mode would turn the progress bar's carriage returns into lines.
    text = read_plain(path).decode("utf-8", "replace")
    trainings: list[Training] = []
    seen: set[tuple] = set()  # events of the last training
    last_epoch = 0.0
    for match in _DICT.finditer(text):
        event = _numbers(path, text, match)
        training, epoch = trainings[-1] if trainings else None, event.get("epoch", 0.0)
        ended, closes = training is not None and training.final, "train_runtime" in event
        # Ranks time themselves; of closing events even the losses may differ.
        key = tuple(sorted(item for item in event.items() if not item[0].endswith(("_runtime", "_per_second"))))
        if _end_together(ended, event) if ended and closes else not closes and key in seen:
            continue  # another rank's
        if training is None or epoch < last_epoch or (ended and (closes or "loss" in event)):
            training, seen = Training(), set()
            trainings.append(training)
        seen.add(key)
        last_epoch = epoch
        if closes:
            training.final = event
        elif "eval_loss" in event and epoch not in [known["epoch"] for known in training.evals]:
            training.evals.append(event | {"epoch": epoch})
    return trainings


def _end_together(one: Event, other: Event) -> bool:
    """Whether two closing events can be of one training: its ranks end together."""
    same_epoch = one.get("epoch", 0.0) == other.get("epoch", 0.0)
    return same_epoch and abs(one["train_runtime"] - other["train_runtime"]) < _RANKS_DIFFER_S


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
