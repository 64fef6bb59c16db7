"""Check the claims of ZeRO-3 with CPU offload on the run itself."""

import psutil
import torch
from transformers import Trainer, TrainingArguments

from workshop.settings.offload import Offload
from workshop.training.callbacks import StepRecorder, find_callback, gather_objects
from workshop.training.models import model_size

GIB = 2**30
STATE_BYTES = 16  # per parameter: fp16 weight and gradient, fp32 master weight and two Adam moments


class OffloadCheck:
    """Make it before the model, to measure the growth of CPU memory.

    Every rank prints what its configuration asks for; what it holds is printed after the first step
    (workshop/measure/run_facts.py).
    """

    def __init__(self, arguments: TrainingArguments) -> None:
        offload = Offload.of(arguments.deepspeed)
        facts = {
            "ZeRO stage": arguments.deepspeed["zero_optimization"]["stage"],
            "parameter offload": "cpu" if offload.parameters else "none",
            "optimizer offload": "cpu" if offload.share else "none",
            "rank": f"{arguments.process_index} of {arguments.world_size}",
            "device": arguments.device,
        }
        lines = [" as configured ".center(40, "="), *(f"{name:<20}{value}" for name, value in facts.items()), "=" * 40]
        print("\n".join(lines), flush=True)  # one print, so that the lines of several ranks do not mix
        self.start_bytes = psutil.Process().memory_info().rss

    def report(self, trainer: Trainer) -> None:
        """Print one line per claim, `ok` or `NOT SO`, on rank 0. Collective: call it on every rank."""
        grown = sum(gather_objects(psutil.Process().memory_info().rss - self.start_bytes))
        recorder = find_callback(trainer, StepRecorder)
        peak = (recorder.gpu_summary()["peak_mem_alloc_mib"] or 0) * 2**20
        states = STATE_BYTES * model_size(trainer.model).parameters
        losses = [step.loss for step in recorder.steps]
        tenth = max(1, len(losses) // 10)
        first, last = (sum(part) / tenth for part in (losses[:tenth], losses[-tenth:]))
        claims = [
            (f"CPU memory grew by {grown / GIB:.2f} GiB, the model's states are {states / GIB:.2f} GiB", grown > 0),
            (f"the loss fell from {first:.3f} to {last:.3f}", last < first),
        ]
        if torch.cuda.is_available():
            claims.insert(0, (f"peak GPU memory is {peak / GIB:.2f} GiB, below {states / GIB:.2f} GiB", peak < states))
        if trainer.is_world_process_zero():
            for text, holds in claims:
                print(f"check: {text}: {'ok' if holds else 'NOT SO'}", flush=True)
