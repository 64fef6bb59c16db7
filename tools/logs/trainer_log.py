"""Losses and speeds from what the Hugging Face Trainer printed (train.out), and times from what DeepSpeed did.

The Trainer prints a Python dict per log event. In a job's output it shares its line with tqdm's progress bar (carriage
returns instead of line ends), several ranks may print the same event, and a requeued job appends a second training.
Older versions print numbers, transformers 5 prints strings: `{'loss': '12.64', ...}`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tools.errors import LogError
from workshop.run_folder.safe_open import read_plain

_DICT = re.compile(r"\{'(?:loss|eval_\w+|train_\w+)': [^{}\n]*\}")
_PAIR = re.compile(r"'([^']+)': (?:'([^']*)'|([^,}]+))")
_RANKS_DIFFER_S = 0.5
# To the end of the line: a part that another rank's output runs into is not that part.
_TIMERS = re.compile(rb"\[Rank 0\] time \(ms\) ((?:\| \w+: \d{1,9}(?:\.\d+)? ?)+)[\r\n]")
_TIMER = re.compile(rb"(\w+): ([\d.]+)")

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
    """True if two closing events can be of one training: its ranks end together."""
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


def read_timers(path: Path | str) -> dict[str, list[float]]:
    """DeepSpeed's name of each part of a step to its time (ms) in each step, in order; {} if DeepSpeed printed none.

    With "wall_clock_breakdown" (TIMERS=true) rank 0 prints after each step, summed over the step's micro-batches:

        [Rank 0] time (ms) | optimizer_step: 211.64
        [Rank 0] time (ms) | fwd: 141.28 | bwd: 194.50 | bwd_inner: 132.07 | bwd_allreduce: 62.38 | step: 679.87

    A name that ends in `_microstep` is of one micro-batch. To time a part DeepSpeed waits for the GPU, so nothing
    overlaps and the sum is more than a step takes without timers. A line that is garbled or cut off is left out.
    """
    parts_ms: dict[str, list[float]] = {}
    for line in _TIMERS.findall(read_plain(path)):
        for name, time_ms in _TIMER.findall(line):
            if not name.endswith(b"_microstep"):
                parts_ms.setdefault(name.decode(), []).append(float(time_ms))
    return parts_ms
