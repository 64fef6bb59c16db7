"""Functions that a train.py calls to record its run, from the Trainer's arguments to the end of the process."""

import json
import statistics
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from workshop.data.load import Data
from workshop.measure.run_facts import RunRecorder, class_name
from workshop.private_names import end_process
from workshop.record import run_record
from workshop.record.control import Control
from workshop.settings.settings import Settings
from workshop.training import hangs
from workshop.training.callbacks import InOrder, StepRecorder, find_callback
from workshop.training.generation import ScoreRecorder, scores, sentences
from workshop.training.saving import CheckpointWriter, warn_of_other_batch


def reporting(settings: Settings) -> dict[str, Any]:
    """Return the Trainer's arguments for its log, with every step's loss, for REPORT_TO and for hangs."""
    return {
        "logging_steps": 1,
        "log_on_each_node": False,  # rank 0's lines are the log of all nodes
        "logging_nan_inf_filter": settings.nan_filter,
        "disable_tqdm": True,  # train.out is a file: each step's line has the epoch
        "report_to": settings.report_to.replace(" ", "").split(","),
        "run_name": settings.run_dir.name,
        "ddp_timeout": hangs.collective_timeout_s(settings),
    }


def begin_run(settings: Settings, arguments: TrainingArguments) -> None:
    """Write the settings into run.json, prepare the libraries and start the hang watch."""
    if settings.resume_from:
        checkpoint = Path(settings.resume_from)
        warn_of_other_batch(checkpoint, arguments)
        step = json.loads((checkpoint / "trainer_state.json").read_text())["global_step"]
        if 0 < settings.max_steps <= step:  # the Trainer would train another step, inside an epoch
            arguments.max_steps, arguments.num_train_epochs = -1, 0
    prepare_libraries(settings, arguments)
    run_record.record_settings(settings, listens=settings.saves_often)
    hangs.start(settings)


def prepare_libraries(settings: Settings, arguments: TrainingArguments) -> None:
    """Give DeepSpeed its compiled operators, let it and FSDP shard over gloo without a GPU, and open W&B's run."""
    if arguments.deepspeed:
        from workshop.kernels.operators import prepare_operators
        from workshop.training.deepspeed import connect_without_gpu

        prepare_operators(arguments.deepspeed)
        connect_without_gpu()
    if arguments.fsdp:
        from workshop.training.fsdp import shard_without_gpu

        shard_without_gpu(arguments)
    if reports_to_wandb(arguments):
        from workshop.training.weights_and_biases import open_run

        open_run(settings, arguments)


def reports_to_wandb(arguments: TrainingArguments) -> bool:
    """Return whether the Trainer or DeepSpeed reports to Weights & Biases."""
    return "wandb" in arguments.report_to or bool((arguments.deepspeed or {}).get("wandb", {}).get("enabled"))


def callbacks_for(settings: Settings, data: Data, model: torch.nn.Module) -> list[TrainerCallback]:
    """Return what measures and saves, as one callback; give it the model before the Trainer wraps it."""
    recorder = StepRecorder(settings.run_dir / "steps.csv")
    parts = [RunRecorder(settings, data, model), recorder, hangs.HangWatch(settings)]
    if settings.profile:
        from workshop.measure.profiling import Profiler  # as its cost, only where it is asked for

        parts.append(Profiler(settings))
    # After the step's end is recorded: neither answers nor a save belong to a step.
    parts.append(ScoreRecorder(settings, recorder, data.examples[: settings.generate_size]))
    if settings.saves_often:
        parts.append(CheckpointWriter(settings, recorder))
    return [InOrder(parts)]


def write_summary(settings: Settings, trainer: Trainer) -> None:
    """Write the training's figures into summary.json. Collective: call it on every rank.

    Call it before the final save and the answers, so that a job that is cut off there keeps its figures. A training
    that was told to end ends here: its checkpoint is saved.
    """
    writer = find_callback(trainer, CheckpointWriter) if settings.saves_often else None
    if writer and writer.ending:
        disconnect()
        end_process()
    history = trainer.state.log_history
    final = next(entry for entry in reversed(history) if "train_runtime" in entry)
    recorder = find_callback(trainer, StepRecorder)
    if settings.resumes_own_run:  # the Trainer knows the last attempt only; rank 0 has all steps
        runtime_s = final["train_runtime"] + (writer.trained_before_s if writer else 0.0)
        steps = recorder.steps
        final = {
            "train_runtime": runtime_s,
            "train_loss": statistics.fmean(step.loss for step in steps) if steps else None,
            "train_samples_per_second": sum(step.samples for step in steps) / runtime_s,
            "train_steps_per_second": len(steps) / runtime_s,
        }
    speeds = [entry["eval_samples_per_second"] for entry in history if "eval_samples_per_second" in entry]
    summary = {
        "train_runtime_s": final["train_runtime"],
        **{name: final[name] for name in ("train_loss", "train_samples_per_second", "train_steps_per_second")},
        "eval_samples_per_second": sum(speeds) / len(speeds) if speeds else None,
        "eval_loss": [entry["eval_loss"] for entry in history if "eval_loss" in entry],
        **recorder.summary(),
        **(writer.summary() if writer else {}),
    }
    if trainer.is_world_process_zero():
        run_record.add_to_summary(settings.run_dir, summary)
        classes = [class_name(kind) for kind in type(trainer).__mro__ if kind is not object]
        run_record.update_run_record(settings.run_dir, trainer_classes=classes)


def end_run(settings: Settings, trainer: Trainer, data: Data) -> None:
    """Write the end mark and end the process, when all is saved and the questions are answered. Collective.

    Exact match and F1 of answers to GENERATE_SIZE held-out questions, with GENERATE_TRAIN_SIZE also to training
    questions, are added to the summary. The ranks are disconnected before it is printed and reported.
    """
    asked = (settings, trainer.args, trainer.model_wrapped, trainer.processing_class)
    held_out = scores(*asked, data.examples[: settings.generate_size])
    known = scores(*asked, data.train_examples[: settings.generate_train_size], "train_{}")
    if trainer.is_world_process_zero():
        run_record.add_to_summary(settings.run_dir, held_out | known)
    disconnect()
    if trainer.is_world_process_zero():
        summary = run_record.read_summary(settings.run_dir)
        print("\n".join(sentences(summary)))
        if reports_to_wandb(trainer.args):
            from workshop.training.weights_and_biases import report_summary

            report_summary(summary)
        Control(settings.run_dir).say("finished")
    end_process()


def disconnect() -> None:
    """Close the connections between the ranks. Collective: call it on every rank."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    hangs.stop()
