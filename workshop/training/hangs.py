"""A rank that makes no progress for HANG_TIMEOUT_S is ended, and stacks/rank-N.txt says where it was.

Ranks wait for each other in every collective, so one that stops makes all of them stop. `faulthandler` counts in a
thread of C that needs no interpreter lock: it writes the stacks of all threads and ends the process with exit code 1.
The launcher then ends the other ranks by SIGTERM, on which they write theirs. `hang_of` (run_record.py) names the rank.

Progress is a micro-batch, a step, a batch of the evaluation or of the answers. What may take long has SLOW_S more: the
first step and an evaluation's first batch, which compile, and every save, the last one included; a rank that waits for
another's save has the same limit. From the process's start to the first step, downloads, tokenising and loading have
one limit together, START_S more.

Time-outs of the collectives: every process group has `collective_timeout_s`, so that this module is always first. The
Trainer makes its own with it (ddp_timeout); all others get it before the first step, and until then have PyTorch's
default (10 minutes with NCCL, 30 with gloo).
"""

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import torch
from transformers import TrainerCallback

from workshop.run_folder.run_record import STACKS
from workshop.settings import Settings

SLOW_S = 1800
START_S = 3 * 3600

_watch: "HangWatch | None" = None


def collective_timeout_s(settings: Settings) -> int:
    """Longer than any limit here; seven days where HANG_TIMEOUT_S=0 watches nothing."""
    return settings.hang_timeout_s + SLOW_S + 60 if settings.hang_timeout_s else 7 * 24 * 3600


def watch(settings: Settings) -> "HangWatch":
    """This process's watch, which begins with the first call."""
    found = _watch or HangWatch(settings)
    found.start()
    return found


def progress(slow: bool = False) -> None:
    """This rank has got on. Args: slow: what comes now may take SLOW_S longer."""
    if _watch:
        _watch.arm(slow)


def dump_on_sigterm() -> None:
    """Write the stacks when SIGTERM ends this rank. Call it again after a handler of one's own has been taken away.

    Under SLURM the handler of saving.py replaces it while the training lasts: SIGTERM then means to save, and
    faulthandler reads the frames of running threads without the interpreter's lock, of which a rank died once.
    """
    if _watch:
        faulthandler.unregister(signal.SIGTERM)
        faulthandler.register(signal.SIGTERM, file=_watch.file, all_threads=True, chain=True)


class HangWatch(TrainerCallback):
    """Watches the rank from `start` until `stop`; HANG_TIMEOUT_S=0 watches nothing."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        rank = os.environ.get("RANK", "0")
        self.stacks = settings.run_dir / STACKS / f"rank-{rank}.txt"
        self.collectives = self.stacks.with_name(f"flight_recorder-rank-{rank}.json")
        self._timer = threading.Timer(0, self._write_collectives)  # shortly before the limit
        self._limit_s, self._armed_s = 0, 0.0
        self._more_s = START_S  # what may take long has; SLOW_S from the first step on
        self._compiles = True  # the first step of this attempt

    def start(self) -> None:
        global _watch
        if _watch or not self.settings.hang_timeout_s:
            return
        self.stacks.parent.mkdir(parents=True, exist_ok=True)
        self.file = self.stacks.open("w")
        _watch = self
        dump_on_sigterm()
        self.arm()

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.start()
        if _watch and torch.distributed.is_initialized():
            distributed = torch.distributed.distributed_c10d  # the only names of both, as in torchtitan
            for group in distributed._world.pg_map:  # HYBRID_SHARD and DeepSpeed make some of their own
                distributed._set_pg_timeout(timedelta(seconds=collective_timeout_s(self.settings)), group)
        self._more_s = SLOW_S
        progress(slow=True)

    def arm(self, slow: bool = True) -> None:
        """Count from zero; at most a hundred times per limit, because each time a thread ends and another starts."""
        limit_s, now_s = self.settings.hang_timeout_s + slow * self._more_s, time.monotonic()
        if limit_s != self._limit_s or now_s - self._armed_s > limit_s / 100:
            faulthandler.dump_traceback_later(limit_s, exit=True, file=self.file)
            self._limit_s, self._armed_s = limit_s, now_s
            self._timer.cancel()
            self.collectives.unlink(missing_ok=True)  # of a rank that got on after all
            self._timer = threading.Timer(limit_s - min(10.0, limit_s / 2), self._write_collectives)
            self._timer.daemon = True
            self._timer.start()

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
        """The rank has ended well."""
        global _watch
        if _watch is not self:
            return
        _watch = None
        faulthandler.cancel_dump_traceback_later()
        faulthandler.unregister(signal.SIGTERM)
        self._timer.cancel()
        self.file.close()
        with contextlib.suppress(OSError):
            self.collectives.unlink(missing_ok=True)
            self.stacks.unlink()
            self.stacks.parent.rmdir()  # the last rank's succeeds

    def _write_collectives(self) -> None:
        """Write what PyTorch's Flight Recorder knows of the last collectives: which rank was in which."""
        if torch.distributed.is_initialized():
            try:  # a function without a public name, which another PyTorch may not have
                self.collectives.write_bytes(torch._C._distributed_c10d._dump_fr_trace_json())
            except Exception as error:
                print(f"warning: no trace of the collectives: {error!r}", file=sys.stderr, flush=True)
