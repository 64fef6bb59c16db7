"""The evidence of a training loop without a Trainer: run.json, steps.csv, collectives.csv, summary.json.

The same files, in the same units, as the callbacks write for the exercises with a Trainer.
"""

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from workshop.data.load import Data
from workshop.job.hangs import HangWatch, progress
from workshop.job.run_record import update_run_record
from workshop.measure.collectives import CollectiveCounter, write_collectives
from workshop.measure.model_facts import record_facts
from workshop.settings import Settings
from workshop.training.callbacks import (
    Step,
    StepRecorder,
    TrainSpeedCallback,
    UtilisationCallback,
    gather_objects,
    synchronise,
)
from workshop.training.models import blocks_of
from workshop.training.sharding import LINEAR, PRECISIONS

# Collectives are counted in this step only, because counting slows it down: it belongs to the warm-up, which speeds
# leave out. Not the first: DeepSpeed's stage 3 learns in it in which order the layers come.
COUNTED_STEP = 3


class StepEvidence:
    """Records what runs and each step of it. Make it before the model is wrapped; every rank calls every method."""

    def __init__(self, settings: Settings, model: torch.nn.Module, data: Data, method: str, **sharding: Any) -> None:
        self.settings = settings
        self.writes = dist.get_rank() == 0
        self.recorder = StepRecorder(settings.run_dir / "steps.csv")
        self.load = UtilisationCallback(self.recorder)
        self.hang_watch = HangWatch(settings)
        self.epoch_steps = len(data.train) / (settings.batch_size * settings.grad_acc * dist.get_world_size())
        self._measured: dict[str, Any] = {}
        self._start_s: float | None = None  # of the first step
        self._precision: str | None = None
        linear = next(module for module in blocks_of(model).modules() if isinstance(module, LINEAR))
        self._hook = linear.register_forward_hook(self._see_precision)
        asked_for = "bf16" if settings.bf16 else "fp32"
        record_facts(settings, data, model, len(data.train), asked_for, model.device)
        if self.writes:
            sharding = {"method": method, **sharding}
            update_run_record(settings.run_dir, sharding=sharding)
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def _see_precision(self, linear: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        self._precision = PRECISIONS.get(output.dtype, str(output.dtype))

    @contextmanager
    def step(self, number: int, micro_batches: Sequence[dict[str, torch.Tensor]]) -> Iterator[None]:
        """Around an optimizer step: its time, its tokens, and in one step its collectives."""
        if number == 1:  # not before: it sets the time-outs of the process groups that there are
            self.hang_watch.on_train_begin()
        counter = CollectiveCounter() if number == COUNTED_STEP else None
        synchronise()
        start_s = time.perf_counter()
        self._start_s = self._start_s or start_s
        with counter or nullcontext():
            yield
        synchronise()
        step_time_s = time.perf_counter() - start_s
        if counter and self.writes:
            write_collectives(self.settings.run_dir / "collectives.csv", number, counter.calls)
        ids = [batch["input_ids"] for batch in micro_batches]
        own = (
            sum(batch.numel() for batch in ids),
            sum(int(batch["attention_mask"].sum()) for batch in micro_batches),
            sum(len(batch) for batch in ids),
        )
        tokens, real_tokens, samples = map(sum, zip(*gather_objects(own), strict=True))
        self._measured = {
            "step": number,
            "step_time_s": step_time_s,
            "tokens": tokens,
            "real_tokens": real_tokens,
            "samples": samples,
            "logit_positions": tokens,
            "epoch": round(number / self.epoch_steps, 4),
            "peak_mem_alloc_mib": torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else None,
        }

    def record(self, loss: float) -> None:
        """Write the step down, with its loss over all ranks; then, so that no step waits for it, look at the GPU."""
        step = Step(**self._measured, loss=loss)
        self.recorder.steps.append(step)
        self.load.on_step_end(None, None, None)
        progress()
        if step.step == 1:
            self._hook.remove()
        if self.writes:
            if step.step == 1:
                update_run_record(self.settings.run_dir, precision=self._precision)
            self.recorder.write(step)
            print(f"step {step.step}: loss {loss:.4f}, {step.step_time_s * 1000:.1f} ms", flush=True)

    def close(self) -> None:
        """Write summary.json."""
        self.hang_watch.stop()
        summary = {
            "train_runtime_s": time.perf_counter() - self._start_s,
            "train_loss": statistics.fmean(step.loss for step in self.recorder.steps),
            **TrainSpeedCallback(self.recorder).summary(),
            **self.load.summary(),
        }
        if self.writes:
            (self.settings.run_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
