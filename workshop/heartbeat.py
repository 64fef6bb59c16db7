"""A rank that stops answering is noticed: the job ends, with the reason and every rank's Python stack in train.out.

Ranks wait for each other in every collective, so one that stops makes all of them stop. Each rank has a thread that
looks whether it has got on: a micro-batch, a step, a batch of the evaluation, a batch of answers, a checkpoint. After
HANG_TIMEOUT_S without any the stacks of this host's ranks are printed, and the rank ends, by which the launcher ends
the others. Every few seconds the thread writes heartbeat/rank-N.json, which tells whose process does not run at all.

A save may take longer than that: as long as the files in OUTPUT_DIR grow, neither the rank that writes them nor those
that wait for it have hung. A collective's own time-out cannot tell, so it is set out of reach while this watches.

Time in which the thread itself does not run does not count: a job that SLURM suspends and resumes has not hung. So
nobody notices where every rank is stopped, or is in C code that lets no thread run: the time limit ends such a job.
"""

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from workshop.run_record import HEARTBEAT
from workshop.settings import Settings

DUMP = signal.SIGUSR2  # prints the stacks of all threads of a rank in C code that lets no other thread run
GRACE_S = 5.0  # for the other ranks to notice by themselves and print theirs
LONGEST_END_S = 30.0  # for the report of a hang; then the process ends, wherever that is stuck

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
        self.folder = settings.run_dir / HEARTBEAT
        self.rank = int(os.environ.get("RANK", "0"))
        self.step = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        beat()
        if self.timeout_s:
            self.folder.mkdir(exist_ok=True)
            self._write(0.0)  # before anything can stop this rank's thread: the others look for it
            faulthandler.register(DUMP, file=sys.stderr, all_threads=True)
            if torch.distributed.is_initialized():
                torch.distributed.distributed_c10d._set_pg_timeout(NEVER)  # its only name, as in torchtitan
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
            self._thread.join(GRACE_S)
        with contextlib.suppress(OSError):
            self._file(self.rank).unlink()
            self.folder.rmdir()  # the last rank's succeeds

    def _file(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.json"

    def _request(self, rank: int) -> Path:
        """Exists while another rank waits for this one's stacks."""
        return self.folder / f"rank-{rank}.dump"

    def _watch(self) -> None:
        every_s = min(10.0, self.timeout_s / 10)
        done, written, idle_s = -1, -1, 0.0
        while not self._stopped.wait(every_s):
            self._answer()
            if done != _done:
                done, idle_s = _done, 0.0
            elif written != (now := self._bytes_written()):
                written, idle_s = now, 0.0
            else:
                idle_s += every_s
            self._write(idle_s)
            if idle_s >= self.timeout_s:
                self._end(every_s)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            if self._request(self.rank).exists():
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
                self._request(self.rank).unlink()

    def _bytes_written(self) -> int:
        """Size of OUTPUT_DIR, looked at only while nothing else gets on; a file that goes meanwhile is a change too."""
        size = 0
        with contextlib.suppress(OSError):
            for path in self.output.rglob("*"):
                size += path.stat().st_size
        return size

    def _write(self, idle_s: float) -> None:
        state = {"host": socket.gethostname(), "pid": os.getpid(), "step": self.step, "idle_s": idle_s}
        temporary = self._file(self.rank).with_suffix(".tmp")
        with contextlib.suppress(OSError):  # a full disk is found by those who have something to save
            temporary.write_text(json.dumps(state | {"time_s": time.time()}) + "\n")
            temporary.replace(self._file(self.rank))

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
        whose = "".join(f"; rank {rank} on {state['host']} does not run" for rank, state in silent.items())
        print(
            f"error (rank {self.rank}): hang: nothing was done for {self.timeout_s} s (HANG_TIMEOUT_S) after step "
            f"{self.step}{whose}",
            file=sys.stderr,
            flush=True,
        )
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        self._wake(silent)
        self._dump_collectives()
        time.sleep(GRACE_S)

    def _silent(self, longest_s: float) -> dict[int, dict[str, Any]]:
        """The ranks whose thread has written nothing for so long: stopped, or in C code that lets no thread run."""
        found = {}
        for path in sorted(self.folder.glob("rank-*.json")):
            with contextlib.suppress(OSError, ValueError):
                state = json.loads(path.read_text())
                if time.time() - state["time_s"] > longest_s:
                    found[int(path.stem.split("-")[1])] = state
        return found

    def _wake(self, silent: dict[int, dict[str, Any]]) -> None:
        """Let the ranks of this host run on and print their stacks.

        Their own threads print them, with the interpreter's lock: the signal's handler has no lock, and reading the
        frames of threads that run can end the process. So the signal is for a rank whose thread does not answer.
        """
        here = {rank: state["pid"] for rank, state in silent.items() if self._is_here(state)}
        asked = set()
        for rank, pid in here.items():
            with contextlib.suppress(OSError):  # a full disk has no room for the request: then the signal
                self._request(rank).touch()
                asked.add(rank)
            _send(pid, signal.SIGCONT)
        end_s = time.monotonic() + GRACE_S
        while any(self._request(rank).exists() for rank in asked) and time.monotonic() < end_s:
            time.sleep(0.1)
        for rank, pid in here.items():
            if rank not in asked or self._request(rank).exists():
                _send(pid, DUMP)
                self._request(rank).unlink(missing_ok=True)

    def _is_here(self, state: dict[str, Any]) -> bool:
        """Whether that process is on this host, lives, and is this run's."""
        try:
            environment = Path(f"/proc/{state['pid']}/environ").read_bytes()
        except OSError:
            return False
        return state["host"] == socket.gethostname() and os.fsencode(f"RUN_DIR={self.run_dir}") in environment

    def _dump_collectives(self) -> None:
        """What PyTorch's Flight Recorder knows of the last collectives: which rank was in which."""
        if torch.distributed.is_initialized():
            try:  # a function without a public name, which another PyTorch may not have
                trace = torch._C._distributed_c10d._dump_fr_trace_json()
                (self.run_dir / f"flight_recorder-rank-{self.rank}.json").write_bytes(trace)
            except Exception as error:
                print(f"warning: no trace of the collectives: {error!r}", file=sys.stderr, flush=True)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):  # it has ended
        os.kill(pid, number)
