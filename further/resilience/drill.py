"""Inject FAULT into this job after step FAULT_STEP of its first attempt, not into later attempts."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
from transformers import TrainerCallback

from drill_settings import DONE_HERE, DONE_OUTSIDE, DrillSettings
from workshop.record.checkpoints import MANIFEST, newest
from workshop.record.control import Control
from workshop.record.errors import InputError
from workshop.record.exercises import Start
from workshop.record.run_record import last_attempt

LONGEST_WAIT_S = 600


class Drill(TrainerCallback):
    """Kills, damages and signals as FAULT says. Give it to the Trainer before the callback that saves."""

    def __init__(self, settings: DrillSettings) -> None:
        self.settings = settings

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        settings, rank = self.settings, args.process_index
        acting = args.world_size - 1 if settings.fault == "rank_killed" else 0
        if state.global_step != settings.fault_step or last_attempt(settings.run_dir) or rank != acting:
            return
        if settings.fault in DONE_HERE:
            print(f"drill: FAULT={settings.fault} comes now, after step {state.global_step}, on purpose", flush=True)
        if settings.fault == "rank_killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif settings.fault == "preemption":
            preempt(settings.start)
        elif settings.fault == "logger_killed":
            kill_loggers(settings.run_dir)
        elif settings.fault in ("checkpoint_truncated", "shard_missing"):
            damage(settings)
            os.kill(os.getpid(), signal.SIGKILL)
        elif settings.fault in DONE_OUTSIDE:
            print(f"step {state.global_step}: waits for you to do it (FAULT={settings.fault})", flush=True)
            wait_s = time.monotonic() + LONGEST_WAIT_S
            while time.monotonic() < wait_s and not Control(settings.run_dir).read().told:
                time.sleep(0.2)


def preempt(start: Start) -> None:
    """Preempts the job: SLURM signals it and queues it again; without SLURM the launcher gets the signal."""
    if start.job:
        subprocess.run(["scontrol", "requeue", start.job], check=True)
    else:
        os.kill(start.supervisor, signal.SIGTERM)


def damage(settings: DrillSettings) -> None:
    """Cut the largest file of the newest checkpoint in half, or delete it."""
    checkpoint = newest(settings.output_path)
    if checkpoint is None:
        raise InputError(f"FAULT={settings.fault}: no checkpoint by step {settings.fault_step}; expected SAVE_STEPS")
    files = (file for file in checkpoint.rglob("*") if file.is_file() and file.name != MANIFEST)
    largest = max(files, key=lambda file: file.stat().st_size)
    if settings.fault == "shard_missing":
        largest.unlink()
    else:
        os.truncate(largest, largest.stat().st_size // 2)


def kill_loggers(run_dir: Path) -> None:
    """Kill the memory loggers of this run only."""
    for process in psutil.process_iter():
        try:
            own = process.environ().get("RUN_DIR") == str(run_dir)
            if own and any(name in " ".join(process.cmdline()) for name in ("nvidia-smi", "psrecord", "memory_logger")):
                process.kill()
        except psutil.Error:
            continue
