"""A rank that stops answering is noticed: the job ends, with the reason and every rank's Python stack in train.out.

Ranks wait for each other in every collective, so one that stops makes all of them stop. Each rank has a thread that
looks whether any has got on: a micro-batch, a step, a batch of the evaluation, a batch of answers, 64 MiB of a
checkpoint's hash. After HANG_TIMEOUT_S without any the stacks of this host's ranks are printed, and the rank ends, by
which the launcher ends the others. Every few seconds the thread writes heartbeat/rank-N.json, which tells the others
how far it is and whose process does not run at all.

A save may take longer than that: as long as what it writes in OUTPUT_DIR grows, neither the rank that writes nor those
that wait for it have hung. A collective's own time-out cannot tell, so it is set out of reach while this watches, in
every group of ranks that there is at the first step.

Time in which the thread itself does not run does not count: a job that SLURM suspends and resumes has not hung. Where
every rank is stopped, or is in C code that lets no thread run, a process beside them notices (workshop/hang_watch.py).
"""

import contextlib
import faulthandler
import os
import socket
import sys
import threading
import time
import traceback
from datetime import timedelta
from typing import Any

import torch
from transformers import TrainerCallback

from workshop import rank_files
from workshop.rank_files import DUMP, LONGEST_END_S, RankFiles, hang_line, look_every_s, saved_bytes
from workshop.settings import Settings

NEVER = timedelta(days=7)

_done = 0  # pieces of work since the start


def beat() -> None:
    """This rank has got on."""
    global _done
    _done += 1


class Heartbeat(TrainerCallback):
    """Watches the rank from the first step until `stop`; HANG_TIMEOUT_S=0 watches nothing."""

    def __init__(self, settings: Settings) -> None:
        self.run_dir, self.output, self.timeout_s = settings.run_dir, settings.output_path, settings.hang_timeout_s
        self.files = RankFiles(settings.run_dir)
        self.rank = int(os.environ.get("RANK", "0"))
        self.step = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        beat()
        if self.timeout_s:
            self.files.folder.mkdir(exist_ok=True)
            self._write(0.0)  # before anything can stop this rank's thread: the others look for it
            faulthandler.register(DUMP, file=sys.stderr, all_threads=True)
            if torch.distributed.is_initialized():
                distributed = torch.distributed.distributed_c10d  # the only names of both, as in torchtitan
                for group in distributed._world.pg_map:  # HYBRID_SHARD and DeepSpeed make some of their own
                    distributed._set_pg_timeout(NEVER, group)
            self._thread.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.step = state.global_step
        beat()

    def _on_progress(self, *_: Any, **__: Any) -> None:
        beat()

    on_substep_end = on_prediction_step = on_evaluate = on_save = on_train_end = _on_progress

    def stop(self) -> None:
        """The rank has ended well."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(rank_files.GRACE_S)
        with contextlib.suppress(OSError):
            self.files.file(self.rank).unlink()
            self.files.folder.rmdir()  # the last rank's succeeds

    def _watch(self) -> None:
        every_s = look_every_s(self.timeout_s)
        done, elsewhere, idle_s = -1, (-1, -1), 0.0
        while not self._stopped.wait(every_s):
            self._answer()
            if done != _done:
                done, idle_s = _done, 0.0
            elif elsewhere != (now := self._done_elsewhere()):
                elsewhere, idle_s = now, 0.0
            else:
                idle_s += every_s
            self._write(idle_s)
            if idle_s >= self.timeout_s:
                self._end(every_s)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            if self.files.request(self.rank).exists():
                print_stacks()
                self.files.request(self.rank).unlink()

    def _done_elsewhere(self) -> tuple[int, int]:
        """What saves have written, and the ranks' pieces of work; looked at only while this rank does not get on."""
        return saved_bytes(self.output), sum(state["done"] for state in self.files.states().values())

    def _write(self, idle_s: float) -> None:
        process = {"host": socket.gethostname(), "pid": os.getpid()}
        work = {"step": self.step, "done": _done, "idle_s": idle_s, "timeout_s": self.timeout_s}
        self.files.write(self.rank, **process, **work)

    def _end(self, every_s: float) -> None:
        # Needs no interpreter's lock: whatever the report below is stuck in, the process ends.
        faulthandler.dump_traceback_later(LONGEST_END_S, exit=True, file=sys.stderr)
        try:
            self._report(every_s)
        except Exception:  # a full disk, say: then with as much as could be written
            traceback.print_exc()
        finally:
            os._exit(1)

    def _report(self, every_s: float) -> None:
        silent = self._silent(3 * every_s)
        print(hang_line(f" (rank {self.rank})", self.timeout_s, self.step, silent), file=sys.stderr, flush=True)
        print_stacks()
        self.files.wake(self.files.here(silent))
        self._dump_collectives()
        time.sleep(rank_files.GRACE_S)  # for the other ranks to notice by themselves and print theirs

    def _silent(self, longest_s: float) -> dict[int, dict[str, Any]]:
        """The ranks whose thread has written nothing for so long: stopped, or in C code that lets no thread run."""
        now_s = time.time()
        return {rank: state for rank, state in self.files.states().items() if now_s - state["time_s"] > longest_s}

    def _dump_collectives(self) -> None:
        """What PyTorch's Flight Recorder knows of the last collectives: which rank was in which."""
        if torch.distributed.is_initialized():
            try:  # a function without a public name, which another PyTorch may not have
                trace = torch._C._distributed_c10d._dump_fr_trace_json()
                (self.run_dir / f"flight_recorder-rank-{self.rank}.json").write_bytes(trace)
            except Exception as error:
                print(f"warning: no trace of the collectives: {error!r}", file=sys.stderr, flush=True)


def print_stacks() -> None:
    """Prints all threads' stacks at once, because other ranks print theirs into the same train.out."""
    stacks = os.memfd_create("stacks")  # there is room for it on a full disk
    faulthandler.dump_traceback(stacks, all_threads=True)
    os.write(sys.stderr.fileno(), os.pread(stacks, os.fstat(stacks).st_size, 0))
    os.close(stacks)
