"""A rank that makes no progress for HANG_TIMEOUT_S is ended, and stacks/rank-N.txt says where it was.

Ranks wait for each other in every collective, so a rank that stops makes all stop. `faulthandler` counts in a
thread of C that needs no interpreter lock: it writes the stacks of all threads and ends the process with exit code 1.
The launcher then ends the other ranks by SIGTERM, on which they write theirs. `hang_of` (outcome.py) names the rank.

Progress is a micro-batch, a step, a batch of the evaluation or of the answers. The first step and an evaluation's first
batch, which compile, and every save have SLOW_S more, also on a rank that waits for another's save. Everything before
the first step (downloads, tokenising, loading) has one limit, START_S more.

Collectives time out later (`collective_timeout_s`), so that this module acts first. The Trainer's process group has
that limit from its start (ddp_timeout), all others from the first step on; until then they have PyTorch's default
(10 minutes with NCCL, 30 with gloo).
"""

import faulthandler
import signal
import time
from contextlib import suppress
from typing import Any

import torch
from transformers import TrainerCallback

from workshop.private_names import set_timeouts
from workshop.record.run_record import STACKS
from workshop.settings.settings import Settings

SLOW_S = 1800
START_S = 3 * 3600

_watch: "HangWatch | None" = None


def collective_timeout_s(settings: Settings) -> int:
    """Return a time-out longer than any limit here; seven days where HANG_TIMEOUT_S=0 turns the watch off."""
    return settings.hang_timeout_s + SLOW_S + 60 if settings.hang_timeout_s else 7 * 24 * 3600


def watch(settings: Settings) -> "HangWatch":
    """Return this process's watch; the first call starts it. With HANG_TIMEOUT_S=0 it watches nothing."""
    global _watch
    if settings.hang_timeout_s and not _watch:
        _watch = HangWatch(settings)
        _watch.stacks.parent.mkdir(parents=True, exist_ok=True)
        _watch.file = _watch.stacks.open("w")
        dump_on_sigterm()
        _watch.arm()
    return _watch or HangWatch(settings)


def progress(slow: bool = False) -> None:
    """Report progress. Args: slow: what comes now may take SLOW_S longer."""
    if _watch:
        _watch.arm(slow)


def dump_on_sigterm() -> None:
    """Write the stacks when SIGTERM ends this rank. Call it again after another handler was removed.

    Under SLURM the handler of saving.py replaces it during the training: SIGTERM then means to save, and faulthandler
    reads the frames of running threads without the interpreter's lock, which killed a rank once.
    """
    if _watch:
        faulthandler.unregister(signal.SIGTERM)
        faulthandler.register(signal.SIGTERM, file=_watch.file, all_threads=True, chain=True)


class HangWatch(TrainerCallback):
    """Watches the rank until `stop`; see `watch`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stacks = settings.run_dir / STACKS / f"rank-{settings.start.rank}.txt"
        self._limit_s, self._armed_s = 0, 0.0
        self._extra_s = START_S  # of slow parts; SLOW_S from the first step on
        self._compiles = True  # the first step of this attempt

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        if _watch and torch.distributed.is_initialized():
            set_timeouts(collective_timeout_s(self.settings))
        self._extra_s = SLOW_S
        progress(slow=True)

    def arm(self, slow: bool = True) -> None:
        """Restart the count, at most a hundred times per limit: each restart ends a thread and starts another."""
        limit_s = self.settings.hang_timeout_s + (self._extra_s if slow else 0)
        now_s = time.monotonic()
        if limit_s != self._limit_s or now_s - self._armed_s > limit_s / 100:
            faulthandler.dump_traceback_later(limit_s, exit=True, file=self.file)
            self._limit_s, self._armed_s = limit_s, now_s

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        progress(slow=self._compiles)

    on_substep_end = on_step_begin

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._compiles = False
        progress()

    on_prediction_step = on_step_end

    def on_save(self, *_: Any, **__: Any) -> None:
        progress(slow=True)

    on_epoch_end = on_evaluate = on_train_end = on_save

    def stop(self) -> None:
        """Stop watching: the rank has ended well."""
        global _watch
        if _watch is not self:
            return
        _watch = None
        faulthandler.cancel_dump_traceback_later()
        faulthandler.unregister(signal.SIGTERM)
        self.file.close()
        with suppress(OSError):
            self.stacks.unlink()
            self.stacks.parent.rmdir()  # the last rank's succeeds
