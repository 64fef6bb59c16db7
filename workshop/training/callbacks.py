"""Measure each step of a training: steps.csv, speed, memory and load of the GPUs."""

import csv
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback

from workshop.data.encoding import IGNORE
from workshop.private_names import call_before_forward
from workshop.record import csv_log
from workshop.record.run_record import read_run_record
from workshop.record.schema import LEAST_ENERGY_S, STEPS_COLUMNS, Step, types_of

NVIDIA_SMI_TIME = "%Y/%m/%d %H:%M:%S.%f"
# Keys of torch.cuda.memory_stats; peaks count from the training's start or the last evaluation
_SIZES = {"allocated": "allocated_bytes.all.current", "peak_allocated": "allocated_bytes.all.peak"}
_SIZES |= {"reserved": "reserved_bytes.all.current", "peak_reserved": "reserved_bytes.all.peak"}
WARMUP_STEPS = 5  # not in mean speeds: the first steps allocate memory, build kernels and start the collectives


def synchronise() -> None:
    """Wait until the GPU is idle: without this a timer measures how fast Python launches kernels."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def forget_peak() -> None:
    """Count the peak of GPU memory from here on."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def gather_objects(value: Any) -> list[Any]:
    """Return the `value` of every rank, on every rank."""
    if not torch.distributed.is_initialized():
        return [value]
    values = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


class InOrder(TrainerCallback):
    """Calls its parts at each of the Trainer's events, in their order."""

    def __init__(self, parts: Sequence[TrainerCallback]) -> None:
        self.parts = parts
        for event in (name for name in dir(TrainerCallback) if name.startswith("on_")):
            setattr(self, event, partial(self._call, event))

    def _call(self, event: str, *given: Any, **named: Any) -> None:
        for part in self.parts:
            getattr(part, event)(*given, **named)


def find_callback(trainer: Trainer, kind: type) -> Any:
    """Return the part of this type of the trainer's InOrder."""
    ours = next(callback for callback in trainer.callback_handler.callbacks if isinstance(callback, InOrder))
    return next(part for part in ours.parts if isinstance(part, kind))


class TokenCounter:
    """Counts the rows and tokens that the model is trained on, by a hook on the model.

    Evaluation batches and batches that a loader has made ahead do not count. Without a model, call `count` with each
    batch; `copies` is the number of ranks that count the same rows.
    """

    def __init__(self, model: torch.nn.Module | None, device: torch.device, copies: int = 1) -> None:
        self.copies = copies
        # This rank's positions, real tokens, training examples and positions with logits in this step. They are added
        # on the device: reading a number would make the CPU wait for the GPU in every micro-batch.
        self.counts = torch.zeros(4, dtype=torch.int64, device=device)
        if model is not None:
            call_before_forward(model, self._count)

    def _count(self, model: torch.nn.Module, _: tuple[Any, ...], batch: dict[str, torch.Tensor]) -> None:
        if model.training:
            self.count(batch)

    def count(self, batch: dict[str, torch.Tensor]) -> None:
        """Add the batch to the counts."""
        ids, real, samples = batch["input_ids"], batch["input_ids"].numel(), len(batch["input_ids"])
        if "attention_mask" in batch:
            real = batch["attention_mask"].sum()
        elif "position_ids" in batch:  # TRL's packed rows, without a mask: from 0 in each example, 0 in padding
            samples = (batch["position_ids"] == 1).sum()
            real = (batch["position_ids"] > 0).sum() + samples
        if "document_ids" in batch:
            samples = batch["document_ids"].amax(1).sum()
        self.counts[0] += ids.numel()
        self.counts[1] += real
        self.counts[2] += samples
        labelled = "target_positions" in batch  # a CUDA graph's are filled up to one length
        self.counts[3] += (batch["labels"][:, 1:] != IGNORE).sum() if labelled else ids.numel()

    def take(self) -> dict[str, int]:
        """Return the counts since the last call, summed over all ranks, by the names of Step's fields."""
        counts = self.counts.clone()
        self.counts.zero_()  # in place: a compiled forward pass holds it
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(counts)
        counts //= self.copies
        return dict(zip(("tokens", "real_tokens", "samples", "logit_positions"), counts.tolist(), strict=True))


class StepRecorder(TrainerCallback):
    """Writes steps.csv while the training runs, so that a run that dies leaves its steps; samples the GPU after each.

    A step lasts from the end of the step before, so waiting for data counts. Evaluation between epochs is not counted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.steps: list[Step] = []
        self._resumed: list[int] = []  # on rank 0 the steps whose checkpoints this attempt and earlier ones began with
        self.samples: list[dict[str, float]] = []  # MiB at the end of each step of this attempt, on this rank
        self.counter: TokenCounter | None = None
        if torch.cuda.is_available():
            from workshop.training.energy import GpuCounters

            self.gpu = GpuCounters()
        # energy.Reading before and after each step of this attempt
        self.readings: list[tuple[Future[Any], Future[Any]]] = []
        self._before: Future[Any] | None = None
        self._start_s = 0.0
        self._last: dict[str, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, model: torch.nn.Module, **_: Any) -> None:
        state.is_local_process_zero = state.is_world_process_zero  # else the Trainer prints its lines once per node
        self.counter = TokenCounter(model, args.device)
        if state.is_world_process_zero and self.path.exists():
            self._forget_steps_after(state.global_step)
        forget_peak()  # a model may be whole on the GPU before it is sharded

    def _forget_steps_after(self, last: int) -> None:
        """Remove the steps that this attempt repeats, so that each step has one line."""
        attempts = read_run_record(self.path.parent).get("attempts", [])
        self._resumed = [attempt["resumed_step"] for attempt in attempts]
        types = types_of(Step)
        rows = [row for _, row in csv_log.step_rows(self.path) if int(row["step"]) <= last]
        self.steps = [Step(**{name: types[name](text) if text else None for name, text in row.items()}) for row in rows]
        temporary = self.path.with_suffix(".tmp")  # a process killed meanwhile loses no step
        with temporary.open("w", newline="") as file:
            csv.writer(file).writerows([STEPS_COLUMNS, *(row.values() for row in rows)])
        temporary.replace(self.path)

    def start_clock(self, *_: Any, **__: Any) -> None:
        """Begin the next step now: the time since the last one belongs to no step."""
        synchronise()
        if torch.cuda.is_available():
            self._before = self.gpu.read()
        self._start_s = time.perf_counter()

    on_epoch_begin = start_clock  # CheckpointWriter starts it after a save

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        forget_peak()  # the logits of an evaluation batch may need more memory
        self.start_clock()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        synchronise()
        end_s = time.perf_counter()
        self._last = {"step_time_s": end_s - self._start_s, **self.counter.take(), "peak_mem_alloc_mib": None}
        self._start_s = end_s
        if torch.cuda.is_available():
            stats = torch.cuda.memory_stats()  # once: torch.cuda.memory_allocated computes all of them at each call
            free, total = torch.cuda.mem_get_info()
            sizes = {name: stats.get(key, 0) for name, key in _SIZES.items()} | {"total": total - free}
            self.samples.append({name: size / 2**20 for name, size in sizes.items()})
            self._last["peak_mem_alloc_mib"] = self.samples[-1]["peak_allocated"]
            after = self.gpu.read()
            self.readings.append((self._before, after))
            self._before = after

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        # The Trainer logs the loss of a step (averaged over micro-batches and ranks) right after on_step_end.
        if "loss" in logs:
            self.record(state.global_step, float(logs["loss"]), state.epoch, state.is_world_process_zero)

    def record(self, number: int, loss: float, epoch: float, write: bool) -> Step:
        """Keep the step that has just ended; `write`: add it to steps.csv."""
        step = Step(number, **self._last, loss=loss, epoch=round(epoch, 4))
        self.steps.append(step)
        if write:
            new = not self.path.exists()
            with self.path.open("a", newline="") as file:
                if new:
                    csv.writer(file).writerow(STEPS_COLUMNS)
                csv.writer(file).writerow(astuple(step))
        return step

    def summary(self) -> dict[str, Any]:
        """Return means over the training, as keys of summary.json. Collective: call it on every rank.

        The warm-up of each attempt is not in the speeds; an epoch has none of its own.
        """
        firsts = {step.step for step in self.steps[:1]} | {step + 1 for step in self._resumed}
        warmup = min(WARMUP_STEPS, len(self.steps) // (2 * max(1, len(firsts))))
        figures: dict[str, Any] = {"warmup_steps": warmup}
        timed = [step for step in self.steps if not any(first <= step.step < first + warmup for first in firsts)]
        if seconds := sum(step.step_time_s for step in timed):
            figures["train/steps_per_second"] = len(timed) / seconds
            for name in ("samples", "tokens", "real_tokens", "logit_positions"):
                figures[f"train/{name}_per_second"] = sum(getattr(step, name) for step in timed) / seconds
            speeds = [step.tokens / step.step_time_s for step in timed]
            figures["train/median_tokens_per_second"] = statistics.median(speeds)
        return figures | self.energy_summary(timed) | self.gpu_summary()

    def energy_summary(self, timed: list[Step]) -> dict[str, Any]:
        """Return when the timed steps were, and the energy of all ranks' GPUs in them, without the time between epochs.

        {} without a GPU, and for a resumed run, whose earlier steps have no readings. Collective.
        """
        of_ranks = gather_objects([(before.result(), after.result()) for before, after in self.readings[-len(timed) :]])
        if not timed or len(self.readings) < len(self.steps):
            return {}
        seconds = sum((after.local_time - before.local_time).total_seconds() for before, after in of_ranks[0])
        joules = [(before.joules, after.joules) for readings in of_ranks for before, after in readings]
        counted = seconds >= LEAST_ENERGY_S and not any(None in pair for pair in joules)
        energy_j = sum(after - before for before, after in joules) if counted else None
        return {
            "timed_start": of_ranks[0][0][0].local_time.strftime(NVIDIA_SMI_TIME),
            "timed_end": of_ranks[0][-1][1].local_time.strftime(NVIDIA_SMI_TIME),
            "timed_s": seconds,
            "energy_j": energy_j,
            "real_tokens_per_joule": sum(step.real_tokens for step in timed) / energy_j if energy_j else None,
        }

    def gpu_summary(self) -> dict[str, float | None]:
        """Return memory and load over the samples of all ranks; None without a GPU. Collective."""
        steps = zip(self.samples, self.readings, strict=True)
        here = [sample | {"load": after.result().load_percent} for sample, (_, after) in steps]
        samples = [sample for of_rank in gather_objects(here) for sample in of_rank]
        figures = {
            "avg_mem_alloc_MB": (statistics.fmean, "allocated"),
            "avg_mem_reserved_MB": (statistics.fmean, "reserved"),
            "avg_mem_total_MB": (statistics.fmean, "total"),
            "avg_gpu_util_%": (statistics.fmean, "load"),
            "std_gpu_util_%": (statistics.pstdev, "load"),
            "peak_mem_alloc_mib": (max, "peak_allocated"),
            "peak_mem_reserved_mib": (max, "peak_reserved"),
        }
        known = {name: [sample[name] for sample in samples if sample[name] is not None] for _, name in figures.values()}
        return {key: figure(known[name]) if known[name] else None for key, (figure, name) in figures.items()}
