"""When a training saves, and how it saves and ends before its job does.

The Trainer's `enable_jit_checkpoint` (transformers 5.23) has the same purpose. There each rank decides alone, three
seconds after its own SIGTERM; saving is collective, so ranks that decide in two different steps wait for each other for
ever. It also needs the signal in every rank, but torchrun and deepspeed end their ranks 30 s after their own SIGTERM,
and a data loader's workers or W&B's process die of it. Here the ranks agree at the end of each step.
"""

import shutil
import signal
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from workshop.private_names import save_in
from workshop.record import checkpoints
from workshop.record.control import Control
from workshop.record.run_record import last_attempt, read_run_record, update_last_attempt
from workshop.settings.settings import Settings
from workshop.training.callbacks import StepRecorder, gather_objects
from workshop.training.hangs import SLOW_S, progress

CONTINUE, SAVE, END = 0, 1, 2  # the ranks agree on the strongest request of one of them

MOST_TIME_SHARE = 0.01
# An estimate until the first save is measured: two H200 took 8.4 to 13.8 s for 559 million parameters
# (further/resilience/RESULTS.md). A slower disk costs more than the share once; the second save then waits longer.
FIRST_SAVE_S = 1.0
FIRST_SAVE_S_PER_PARAMETER = 2.2e-8


def effective_batch(args: TrainingArguments) -> int:
    """Return the rows of all ranks in one optimizer step."""
    return args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size


def warn_of_other_batch(checkpoint: Path, args: TrainingArguments) -> None:
    """Warn on rank 0 of another effective batch than up to the checkpoint, as with fewer GPUs."""
    if args.process_index or not (checkpoint / checkpoints.MANIFEST).exists():
        return
    batch = effective_batch(args)
    if (saved := checkpoints.manifest(checkpoint).get("effective_batch", batch)) != batch:
        grad_acc, rest = divmod(saved * args.gradient_accumulation_steps, batch)
        kept = "no GRAD_ACC keeps it" if rest else f"GRAD_ACC={grad_acc} would keep it"
        print(f"warning: effective batch {batch}, but {saved} up to {checkpoint.name}; {kept}", flush=True)


def save_apart(settings: Settings, trainer: Trainer) -> None:
    """Have each checkpoint written in a folder of its own, from which CheckpointWriter moves it when it is whole."""
    save_in(trainer, settings.output_path / checkpoints.UNFINISHED)


class CheckpointWriter(TrainerCallback):
    """Makes each checkpoint whole and moves it to the others; on request saves once more and ends.

    Requests are `stop` of the supervisor (record/control.py) and a rank's SIGTERM. Give it to the Trainer after
    StepRecorder, as the last callback: a save belongs to no step. When a resumed training passes its last step before
    the interruption, it records the lost time in run.json.

    Attributes:
        save_times_s: per checkpoint, until it is whole.
        size_bytes: of the last one, on rank 0.
        trained_before_s: runtime of the training up to the checkpoint that it was resumed from.
    """

    def __init__(self, settings: Settings, recorder: StepRecorder) -> None:
        self.settings, self.recorder = settings, recorder
        self.control = Control(settings.run_dir)
        self.save_times_s: list[float] = []
        self.size_bytes = 0
        self.trained_before_s = 0.0
        self.ending = False
        self._request = CONTINUE
        self._signalled = False
        self._begin_s = self._save_begin_s = 0.0
        self._first_s = 0.0  # estimate for the first save
        self._saved_step = -1
        self._handler: Any = None
        self._attempt: dict[str, Any] = {}  # the last attempt, until this one has come further
        self._step_begin_s = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._begin_s = time.monotonic()
        if self.settings.resumes_own_run:
            self.trained_before_s = checkpoints.manifest(Path(self.settings.resume_from)).get("train_runtime_s", 0.0)
        if state.is_world_process_zero:
            self._attempt = last_attempt(self.settings.run_dir)
            parameters = read_run_record(self.settings.run_dir)["model"]["trained_parameters"]
            self._first_s = FIRST_SAVE_S + parameters * FIRST_SAVE_S_PER_PARAMETER
            checkpoints.remove_unfinished(self.settings.output_path)
            self.control.say("saves")
        # SLURM sends SIGTERM to every process of a step. Elsewhere it means that another rank died: then end at once.
        if self.settings.start.job:
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
        self._request = max(self._request, self._agree(state, args.device))
        # At the end of an epoch the evaluation comes first: a resumed run skips it. The last step ends the last epoch.
        at_epoch_end = abs(state.epoch - round(state.epoch)) < 1e-6 or state.global_step == state.max_steps
        if self._request and not at_epoch_end:
            self._decide(control)
        self._prepare(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._saved_step == state.global_step:  # in the step's end just before
            control.should_save = False
            if self.ending:
                control.should_evaluate = control.should_log = False
        elif self._request:
            self._decide(control)
        self._prepare(control)

    def _agree(self, state: Any, device: torch.device) -> int:
        """Return the strongest request of all ranks. Collective."""
        request = CONTINUE
        if self._signalled or (state.is_world_process_zero and self.control.read().told):
            request = END
        elif state.is_world_process_zero and self._due(state.global_step):
            request = SAVE
        if not torch.distributed.is_initialized():
            return request
        strongest = torch.tensor(request, device=device)
        torch.distributed.all_reduce(strongest, op=torch.distributed.ReduceOp.MAX)
        return int(strongest)

    def _due(self, step: int) -> bool:
        """Return whether SAVE=steps saves now: every SAVE_STEPS steps; 0: while saves take at most 1 % of the time."""
        if self.settings.save != "steps":
            return False
        if self.settings.save_steps:
            return step % self.settings.save_steps == 0
        next_s = max(self.save_times_s, default=self._first_s)
        share_s = MOST_TIME_SHARE * (time.monotonic() - self._begin_s)
        return sum(self.save_times_s) + next_s <= share_s

    def _decide(self, control: Any) -> None:
        control.should_save = True
        control.should_training_stop |= self._request == END
        self.ending = self._request == END
        self._request = CONTINUE

    def _prepare(self, control: Any) -> None:
        if control.should_save:
            progress(SLOW_S)
            self._save_begin_s = time.monotonic()

    def on_evaluate(self, *_: Any, **__: Any) -> None:  # comes between decision and save
        self._save_begin_s = time.monotonic()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Make the checkpoint whole when all ranks have written their parts. Collective."""
        self._saved_step = state.global_step
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        folder = self.settings.output_path / checkpoints.UNFINISHED / f"checkpoint-{state.global_step}"
        shares = gather_objects(checkpoints.digests(folder, args.process_index, args.world_size))
        if args.process_index == 0:
            self._finish(args, state.global_step, folder, shares)
            if self.ending:
                self.control.say(f"saved {state.global_step}")
                print(f"told to end: {folder.name} is saved, the training ends here", flush=True)
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        self.recorder.start_clock()
        self.save_times_s.append(time.monotonic() - self._save_begin_s)

    def _finish(self, args: Any, step: int, folder: Path, shares: list[checkpoints.Digests]) -> None:
        output = self.settings.output_path
        zero = args.hf_deepspeed_config.config.get("zero_optimization", {}) if args.deepspeed else {}
        self.size_bytes = checkpoints.finish(
            folder,
            output / folder.name,
            shares,
            step=step,
            world_size=args.world_size,
            effective_batch=effective_batch(args),
            fixed_world_size=zero.get("stage", 0) > 0,
            train_runtime_s=self.trained_before_s + time.monotonic() - self._begin_s,
        )
        limit = self.settings.save_limit  # 0: keep all
        for older in checkpoints.checkpoints(output)[limit:] if limit else ():
            shutil.rmtree(older)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)
        if state.is_world_process_zero:
            self.control.say("over")

    def summary(self) -> dict[str, Any]:
        """Return what saving cost; of a resumed run, in its last attempt."""
        if not self.size_bytes:
            return {}
        times_s = self.save_times_s
        return {
            "checkpoints": len(times_s),
            "checkpoint_time_s": sum(times_s) / len(times_s),
            "checkpoint_mib": self.size_bytes / 2**20,
            "checkpoint_time_share_%": 100 * sum(times_s) / (time.monotonic() - self._begin_s),
        }
