"""When a training saves, and how it ends when it is told that its time is over.

The Trainer's `enable_jit_checkpoint` (transformers 5.23) is made for the same signal. It is not used, because each rank
decides for itself, three seconds after its own SIGTERM: ranks that decide in two different steps wait for each other
for ever, saving is collective. It also needs the signal in every rank; but torchrun and deepspeed end theirs 30 s after
their own SIGTERM, and a data loader's workers or W&B's process die of it. Here the ranks agree at the end of each step.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from workshop.run_folder.checkpoints import (
    UNFINISHED,
    Digests,
    digests,
    finish,
    keep_newest,
    manifest,
    remove_unfinished,
)
from workshop.run_folder.control import Control
from workshop.run_folder.run_record import last_attempt, read_run_record, update_last_attempt
from workshop.settings import Settings
from workshop.training.callbacks import StepRecorder, gather_objects
from workshop.training.hangs import dump_on_sigterm, progress

GO_ON, SAVE, END = 0, 1, 2  # what the ranks agree on; the highest that one of them asks for

MOST_TIME_SHARE = 0.01
# Before the first save nobody knows how long it takes. Two H200 took 8.4 to 13.8 s for 559 million parameters
# (further/resilience/RESULTS.md). On a slower disk it costs more than its share once; the second then waits the longer.
FIRST_SAVE_S = 1.0
FIRST_SAVE_S_PER_PARAMETER = 2.2e-8


class CheckpointWriter(TrainerCallback):
    """Saves each checkpoint aside and renames it when it is whole; saves once more and ends when told to.

    Told to: the supervisor says `stop` (run_folder/control.py), or a rank receives SIGTERM. Give it to the Trainer as
    the last callback: it looks at what the others have decided. Once a training that goes on is further than it had
    come, it adds to run.json for how long it had been dead.

    Attributes:
        save_times_s, sizes_bytes: of each checkpoint, seen by rank 0: the training waits for so long.
        write_times_s, hash_times_s: the parts of that time in which all ranks write, and make the SHA-256 of, files.
        trained_before_s: runtime of the training up to the checkpoint that it went on from.
    """

    def __init__(self, settings: Settings, recorder: StepRecorder) -> None:
        self.settings, self.recorder = settings, recorder
        self.control = Control(settings.run_dir)
        self.save_times_s: list[float] = []
        self.write_times_s: list[float] = []
        self.hash_times_s: list[float] = []
        self.sizes_bytes: list[int] = []
        self.trained_before_s = 0.0
        self.ending = False
        self._asked = GO_ON
        self._signalled = False
        self._begin_s = self._save_begin_s = 0.0
        self._first_s = 0.0  # what the first save is taken to last
        self._saved_step = -1
        self._handler: Any = None
        self._attempt: dict[str, Any] = {}  # the one before, while it was further than this one
        self._step_begin_s = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._begin_s = time.monotonic()
        if self.settings.goes_on:
            self.trained_before_s = manifest(Path(self.settings.resume_from)).get("train_runtime_s", 0.0)
        if state.is_world_process_zero:
            self._attempt = last_attempt(self.settings.run_dir)
            parameters = read_run_record(self.settings.run_dir)["model"]["trained_parameters"]
            self._first_s = FIRST_SAVE_S + parameters * FIRST_SAVE_S_PER_PARAMETER
            remove_unfinished(self.settings.output_path)
            self.control.say("saves")
        # SLURM sends it to every process of a step. Elsewhere it means that another rank died: then at once.
        if os.environ.get("SLURM_JOB_ID"):
            self._handler = signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, *_: Any) -> None:
        self._signalled = True

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._step_begin_s = time.time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._attempt and state.global_step > self._attempt["last_step"]:
            seconds_lost = round(self._step_begin_s - self._attempt["last_step_s"], 1)
            update_last_attempt(self.settings.run_dir, seconds_lost=seconds_lost)
            self._attempt = {}
        self._asked = max(self._asked, self._agree(state, args.device))
        # At the end of an epoch the evaluation comes first: a resumed run skips it. The last step ends the last epoch.
        at_epoch_end = abs(state.epoch - round(state.epoch)) < 1e-6 or state.global_step == state.max_steps
        if self._asked and not at_epoch_end:
            self._decide(control)
        self._prepare(args, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._saved_step == state.global_step:  # in the step's end just before
            control.should_save = False
            if self.ending:
                control.should_evaluate = control.should_log = False
        elif self._asked:
            self._decide(control)
        self._prepare(args, control)

    def _agree(self, state: Any, device: torch.device) -> int:
        """The highest wish of all ranks. Collective."""
        wish = GO_ON
        if self._signalled or (state.is_world_process_zero and self.control.told):
            wish = END
        elif state.is_world_process_zero and self._due(state.global_step):
            wish = SAVE
        if not torch.distributed.is_initialized():
            return wish
        wishes = torch.tensor(wish, device=device)
        torch.distributed.all_reduce(wishes, op=torch.distributed.ReduceOp.MAX)
        return int(wishes)

    def _due(self, step: int) -> bool:
        """SAVE=steps: every SAVE_STEPS steps; 0: when this save and those before it are 1 % of the time so far."""
        if self.settings.save != "steps":
            return False
        if self.settings.save_steps:
            return step % self.settings.save_steps == 0
        next_s = max(self.save_times_s, default=self._first_s)
        return sum(self.save_times_s) + next_s <= MOST_TIME_SHARE * (time.monotonic() - self._begin_s)

    def _decide(self, control: Any) -> None:
        control.should_save = True
        control.should_training_stop |= self._asked == END
        self.ending = self._asked == END
        self._asked = GO_ON

    def _prepare(self, args: Any, control: Any) -> None:
        if control.should_save:
            progress(slow=True)
            args.output_dir = str(self.settings.output_path / UNFINISHED)
            self._save_begin_s = time.monotonic()

    def on_evaluate(self, *_: Any, **__: Any) -> None:  # which comes between
        self._save_begin_s = time.monotonic()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        args.output_dir = str(self.settings.output_path)
        self._saved_step = state.global_step
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # every rank has written its part
        self.write_times_s.append(time.monotonic() - self._save_begin_s)
        folder = self.settings.output_path / UNFINISHED / f"checkpoint-{state.global_step}"
        shares = gather_objects(digests(folder, args.process_index, args.world_size))
        self.hash_times_s.append(time.monotonic() - self._save_begin_s - self.write_times_s[-1])
        if state.is_world_process_zero:
            self._finish(args, state, folder, shares)
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        self.recorder.start_clock()  # it did before, too: the manifest is in no step either
        self.save_times_s.append(time.monotonic() - self._save_begin_s)

    def _finish(self, args: Any, state: Any, folder: Path, shares: list[Digests]) -> None:
        output = self.settings.output_path
        zero = args.hf_deepspeed_config.config.get("zero_optimization", {}) if args.deepspeed else {}
        size = finish(
            folder,
            output / folder.name,
            shares,
            step=state.global_step,
            world_size=args.world_size,
            fixed_world_size=zero.get("stage", 0) > 0,
            train_runtime_s=self.trained_before_s + time.monotonic() - self._begin_s,
        )
        self.sizes_bytes.append(size)
        keep_newest(output, self.settings.save_limit)
        if self.ending:
            self.control.say(f"saved {state.global_step}")
            print(f"told to end: {folder.name} is saved, the training ends here", flush=True)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)
            dump_on_sigterm()
        if state.is_world_process_zero:
            self.control.say("over")

    def summary(self) -> dict[str, Any]:
        """What saving cost; of an attempt that went on, its own checkpoints only."""
        if not self.sizes_bytes:
            return {}
        times_s = self.save_times_s
        return {
            "checkpoints": len(times_s),
            "checkpoint_time_s": sum(times_s) / len(times_s),
            "checkpoint_write_time_s": sum(self.write_times_s) / len(times_s),
            "checkpoint_hash_time_s": sum(self.hash_times_s) / len(times_s),
            "checkpoint_mib": self.sizes_bytes[-1] / 2**20,
            "checkpoint_time_share_%": 100 * sum(times_s) / (time.monotonic() - self._begin_s),
        }
