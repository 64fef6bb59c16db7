"""Record a training loop without a Trainer: run.json, steps.csv, collectives.csv, summary.json.

The callbacks of exercises with a Trainer write the same files in the same units.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from workshop.data.load import Data
from workshop.measure.collectives import CollectiveCounter
from workshop.measure.profiling import Profiler
from workshop.measure.run_facts import PrecisionProbe, held_mib, optimizer_states, record_facts
from workshop.record import collectives
from workshop.record.run_record import add_to_summary, read_run_record, record_settings, update_run_record
from workshop.settings.settings import Settings
from workshop.training import hangs
from workshop.training.callbacks import StepRecorder, TokenCounter, forget_peak, gather_objects
from workshop.training.models import blocks_of

# Collectives are counted in one step of the warm-up, because counting slows it down. Not in the first, in which
# DeepSpeed's stage 3 learns the order of the layers.
COUNTED_STEP = 3


def open_records(settings: Settings) -> None:
    """Write the settings into run.json and start the hang watch."""
    record_settings(settings)
    hangs.start(settings)


def allocated_mib() -> float | None:
    """Return what tensors have of this rank's GPU; None without one."""
    return torch.cuda.memory_allocated() / 2**20 if torch.cuda.is_available() else None


class MemoryPhases:
    """What is allocated at the ends of the first step's phases: loaded (before it), forward, backward, update.

    The first step shows each state when it comes: gradients in the backward pass, moments in the update. Of several
    micro-batches the last counts.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.mib: dict[str, float] = {}  # none without a GPU
        self._hooks = [
            model.register_forward_hook(lambda *_: self.note("forward")),
            register_optimizer_step_pre_hook(lambda *_: None if "backward" in self.mib else self.note("backward")),
            register_optimizer_step_post_hook(lambda *_: self.note("update")),
        ]

    def note(self, phase: str) -> None:
        if (mib := allocated_mib()) is not None:
            self.mib[phase] = mib

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()


class StepEvidence:
    """Records the run's facts and each step. Make it before the model is wrapped; every rank calls every method.

    Args:
        method: for run.json; with dp_size the dimension of a group's ranks (tp, cp, pp).
        dp_size: number of groups whose ranks share rows; None: each rank has its own.
    """

    def __init__(
        self,
        settings: Settings,
        model: torch.nn.Module,
        data: Data,
        method: str,
        dp_size: int | None = None,
        **sharding: Any,
    ) -> None:
        self.settings, self.model = settings, model
        self.writes = dist.get_rank() == 0
        self.recorder = StepRecorder(settings.run_dir / "steps.csv")
        device, ranks = torch.device("cuda" if torch.cuda.is_available() else "cpu"), dist.get_world_size()
        size = {} if dp_size is None else {f"{method}_size": ranks // dp_size}
        dp_size = dp_size or ranks
        self.recorder.counter = TokenCounter(None, device, ranks // dp_size)
        self.epoch_steps = len(data.train) / (settings.batch_size * settings.grad_acc * dp_size)
        self.probe = PrecisionProbe(blocks_of(model))
        self.profiler = Profiler(settings)
        self.phases = MemoryPhases(model)
        self._number = 0
        self._start_s = 0.0  # of the first step
        record_facts(settings, data, model, len(data.train), dp_size)
        if settings.optimizer == "muon":
            shapes = [weight.shape for weight in blocks_of(model).parameters() if weight.ndim == 2]
            sharding["matrices"] = ["x".join(map(str, shape)) for shape in shapes]
        if self.writes:
            update_run_record(settings.run_dir, sharding={"method": method, **size, **sharding})
        forget_peak()

    @contextmanager
    def step(self, batches: Sequence[dict[str, torch.Tensor]]) -> Iterator[None]:
        """Measure an optimizer step: time, tokens of the group's `batches`, and in one step its collectives."""
        self._number += 1
        if self._number == 1:  # not before: it sets the time-outs of the process groups that there are
            hangs.HangWatch(self.settings).on_train_begin()
            self._start_s = time.perf_counter()
            self.profiler.after(0, self.writes)
            self.phases.note("loaded")
        counter = CollectiveCounter() if self._number == COUNTED_STEP else None
        self.recorder.start_clock()
        for batch in batches:
            self.recorder.counter.count(batch)
        with counter or nullcontext():
            yield
        self.recorder.on_step_end()
        if counter:
            calls_of_ranks = gather_objects(counter.calls)
            if self.writes:
                collectives.write(self.settings.run_dir / "collectives.csv", self._number, calls_of_ranks)

    def add(self, **sharding: Any) -> None:
        """Add facts that are known after a step to run.json's `sharding`."""
        if self.writes:
            known = read_run_record(self.settings.run_dir)["sharding"]
            update_run_record(self.settings.run_dir, sharding=known | sharding)

    def record(self, loss: float) -> None:
        """Record the step with its loss over all ranks."""
        step = self.recorder.record(self._number, loss, self._number / self.epoch_steps, self.writes)
        hangs.progress()
        self.profiler.after(step.step, self.writes)
        if step.step == 1:
            self.probe.hook.remove()
            self.phases.end()
        if self.writes:
            if step.step == 1:
                update_run_record(self.settings.run_dir, precision=self.probe.precision)
            print(f"step {step.step}: loss {loss:.4f}, {step.step_time_s * 1000:.1f} ms", flush=True)

    def close(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Write summary.json, with the largest rank's states of the `optimizer` (of ZeRO: the one that computes)."""
        states = [] if optimizer is None else optimizer_states(self.model, optimizer)
        hangs.stop()
        self.profiler.on_train_end()
        peaks_mib = gather_objects(self.recorder.steps[-1].peak_mem_alloc_mib)
        summary = {
            "optimizer_states_mib": max(gather_objects(held_mib(states))) if states else None,
            "train_runtime_s": time.perf_counter() - self._start_s,
            "train_loss": statistics.fmean(step.loss for step in self.recorder.steps),
            **self.recorder.summary(),
            **{f"mem_{phase}_mib": mib for phase, mib in self.phases.mib.items()},
            "peak_mem_alloc_mib_of_ranks": peaks_mib if torch.cuda.is_available() else None,
        }
        if self.writes:
            add_to_summary(self.settings.run_dir, summary)
