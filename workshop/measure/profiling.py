"""PROFILE=5:8: profile the GPU in steps 5 to 8.

Rank 0 writes `profile.txt` (the shares of busy, communicating and idle time, then the costliest kernels) and
`profile_trace.json.gz` (a timeline, for https://ui.perfetto.dev). The profiler itself makes these steps slower: take
shares from here and times from steps.csv, and leave out the first steps, which look for memory and build kernels.
"""

import time
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from transformers import TrainerCallback

from workshop.record.gpu_time import shares
from workshop.settings.settings import Settings
from workshop.training.callbacks import synchronise

ROWS = 30  # kernels in the table


class Profiler(TrainerCallback):
    """Profiles the steps that PROFILE names, from the end of the step before them to their end."""

    def __init__(self, settings: Settings) -> None:
        self.folder: Path = settings.run_dir
        self.first, self.last = map(int, (settings.profile or "0:0").split(":"))  # 0: none
        self._profile: torch.profiler.profile | None = None
        self._start_s = 0.0
        self._step = self.first  # the newest, on the rank that writes

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.after(0, state.is_world_process_zero)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.after(state.global_step, state.is_world_process_zero)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self._step < self.first:
            print(f"warning: PROFILE={self.first}:{self.last}: nothing is profiled; the last step was {self._step}")
        if self._profile:  # the training had fewer steps
            self.last = self._step
            self._stop()

    def after(self, step: int, writes: bool) -> None:
        """End or begin the profile after this step, on the rank that writes."""
        if writes:
            self._step = step
        if self._profile and step == self.last:
            self._stop()
        if writes and step == self.first - 1:
            gpu = [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, *gpu])
            synchronise()
            self._start_s = time.perf_counter()
            self._profile.start()

    def _stop(self) -> None:
        synchronise()
        wall_us = (time.perf_counter() - self._start_s) * 1e6
        profile, self._profile = self._profile, None
        profile.stop()
        kernels = [
            (event.name, (event.time_range.start, event.time_range.end))
            for event in profile.events()
            if event.device_type == DeviceType.CUDA and not getattr(event, "is_user_annotation", False)
        ]
        where = "no GPU: the CPU's operators only"
        if kernels:
            where = "\n".join(f"{name:<36}{share:7.1%}" for name, share in shares(kernels, wall_us).items())
        order = "self_device_time_total" if kernels else "self_cpu_time_total"
        table = profile.key_averages().table(sort_by=order, row_limit=ROWS, max_name_column_width=100)
        heading = f"steps {self.first} to {self.last}, rank 0, {wall_us / 1e3:.1f} ms with the profiler running"
        (self.folder / "profile.txt").write_text(f"{heading}\n{where}\n\n{table}\n")
        profile.export_chrome_trace(str(self.folder / "profile_trace.json.gz"))
        print(f"{heading}\n{where}\nmore in profile.txt and profile_trace.json.gz")
