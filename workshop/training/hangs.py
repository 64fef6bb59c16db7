"""A rank that makes no progress for HANG_TIMEOUT_S is ended, and stacks/rank-N.txt says where it was.

Ranks wait for each other in every collective, so a rank that stops makes all stop. `faulthandler` counts in a
thread of C that needs no interpreter lock: it writes the stacks of all threads and ends the process with exit code 1.
The launcher then ends the other ranks by SIGTERM, on which they write theirs. `hang_of` (outcome.py) names the rank.

Progress is a step, a batch of the evaluation or of the answers. The first step and an evaluation's first batch, which
compile, and every save have SLOW_S more, also on a rank that waits for another's save. Everything before the first
step (downloads, tokenising, loading) has one limit, START_S more.

Collectives time out later (`collective_timeout_s`), so that this module acts first. The Trainer's process group has
that limit from its start (ddp_timeout), all others from the first step on; until then they have PyTorch's default
(10 minutes with NCCL, 30 with gloo).
"""

import faulthandler
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import torch
from transformers import TrainerCallback

from workshop.private_names import set_timeouts
from workshop.record.run_record import STACKS
from workshop.settings.settings import Settings

SLOW_S = 1800
START_S = 3 * 3600


_stacks: TextIO | None = None  # this process's, if it is watched
_limit_s = 0
_next_s = 0.0  # reports before this time change nothing


def collective_timeout_s(settings: Settings) -> int:
    """Return a time-out longer than any limit here; seven days where HANG_TIMEOUT_S=0 turns the watch off."""
    return settings.hang_timeout_s + SLOW_S + 60 if settings.hang_timeout_s else 7 * 24 * 3600


def start(settings: Settings) -> None:
    """Watch this rank until `stop`; with HANG_TIMEOUT_S=0 nothing is watched.

    Under SLURM the handler of saving.py replaces the one for SIGTERM, which then means to save: faulthandler reads the
    frames of running threads without the interpreter's lock, which killed a rank once.
    """
    global _stacks, _limit_s
    if settings.hang_timeout_s:
        path = settings.run_dir / STACKS / f"rank-{settings.start.rank}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        _stacks, _limit_s = path.open("w"), settings.hang_timeout_s
        faulthandler.register(signal.SIGTERM, file=_stacks, all_threads=True, chain=True)
        progress(START_S)


def progress(more_s: int = 0) -> None:
    """Report progress; what comes now may take `more_s` longer. Each report starts a thread: one a second counts."""
    global _next_s
    now_s = time.monotonic()
    if _stacks and (more_s or now_s >= _next_s):
        _next_s = now_s if more_s else now_s + 1
        faulthandler.dump_traceback_later(_limit_s + more_s, exit=True, file=_stacks)


def stop() -> None:
    """Stop watching: the rank has ended well."""
    global _stacks
    if _stacks:
        faulthandler.cancel_dump_traceback_later()
        faulthandler.unregister(signal.SIGTERM)
        path, _stacks = Path(_stacks.name), None
        with suppress(OSError):
            path.unlink()
            path.parent.rmdir()  # the last rank's succeeds


class HangWatch(TrainerCallback):
    """Reports the training's progress."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        if torch.distributed.is_initialized():
            set_timeouts(collective_timeout_s(self.settings))
        progress(SLOW_S)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        progress()

    on_prediction_step = on_step_end

    def on_save(self, *_: Any, **__: Any) -> None:
        progress(SLOW_S)

    on_epoch_end = on_evaluate = on_train_end = on_save
