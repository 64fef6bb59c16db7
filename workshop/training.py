"""From settings to the Hugging Face Trainer, and from a trained model to the evidence a run leaves."""

import gc
import json
import math
import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainingArguments

from workshop.callbacks import (
    MeasuredTrainer,
    ProgressLine,
    StepRecorder,
    TrainSpeedCallback,
    UtilisationCallback,
    find_callback,
    gather_objects,
)
from workshop.compilation import remove_stale_locks
from workshop.deepspeed import connect_cpu_ranks
from workshop.encoding import PaddingCollator, encode_all
from workshop.errors import WorkshopError
from workshop.fsdp import gather_when_saving, shard_on_cpu
from workshop.models import model_config, model_size, short_name
from workshop.packing import pack
from workshop.profiling import Profiler
from workshop.run_record import update_run_record
from workshop.scoring import ScoreBefore, scores, sentences
from workshop.settings import Settings
from workshop.sharding import ShardingRecorder
from workshop.speed import check_machine, check_model
from workshop.squad import Example, split_examples
from workshop.weights_and_biases import report_summary, reporters


@dataclass(frozen=True)
class Data:
    """Encoded examples (packed: rows of them) for the Trainer, and examples of both kinds as text for EM and F1."""

    train: list[dict[str, list[int]]]
    evaluation: list[dict[str, list[int]]]
    examples: list[Example]  # held out
    collator: PaddingCollator
    train_examples: list[Example] = field(default_factory=list)


def load_data(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Data:
    """The first TRAIN_SIZE training and EVAL_SIZE evaluation examples, prompt and padding masked out of the loss."""
    train, evaluation = split_examples(
        settings.dataset, settings.train_size, settings.eval_size, eval_dataset=settings.eval_dataset
    )
    pad_to = settings.max_length if settings.padding == "max_length" else None
    rows = encode_all(train, tokenizer, settings.max_length, settings.labels)
    return Data(
        train=pack(rows, settings.max_length) if settings.packing else rows,
        evaluation=encode_all(evaluation, tokenizer, settings.max_length, settings.labels),
        examples=evaluation,
        collator=PaddingCollator(tokenizer.pad_token_id, pad_to, find_targets=settings.logits == "labelled"),
        train_examples=train,
    )


def training_arguments(settings: Settings, **chapter: Any) -> TrainingArguments:
    """The Trainer's arguments that all exercises share; `chapter` adds what an exercise is about."""
    gpu = torch.cuda.is_available()
    if settings.fp16 and not gpu:
        print("warning: FP16=true needs a GPU and there is none; training in fp32")
    check_machine(settings)
    if settings.switches:
        check_model(settings, model_config(settings))
    if settings.gradient_checkpointing:
        chapter["gradient_checkpointing"] = True
    if "deepspeed" in chapter:  # which compiles on first use
        remove_stale_locks()
    elif settings.timers:
        raise WorkshopError("TIMERS=true: the timers are DeepSpeed's; expected TIMERS=false here, or PROFILE=10:12")
    arguments = TrainingArguments(
        output_dir=str(settings.output_path),
        num_train_epochs=settings.num_epochs,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.eval_batch_size or settings.batch_size,
        gradient_accumulation_steps=settings.grad_acc,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.lr_warmup_steps,
        weight_decay=settings.weight_decay,
        max_grad_norm=1.0,
        optim=settings.optimizer,
        dataloader_num_workers=settings.data_workers,
        dataloader_persistent_workers=settings.data_workers > 0,
        fp16=settings.fp16 and gpu,
        bf16=settings.bf16,
        use_cpu=not gpu,
        ddp_find_unused_parameters=False,  # the models use all of them: no search through the graph in every step
        seed=settings.seed,
        eval_strategy="epoch",
        save_strategy="epoch" if settings.save == "epoch" else "no",
        logging_strategy="steps",
        logging_steps=1,
        disable_tqdm=True,  # train.out is a file: ProgressLine says where the training stands
        report_to=reporters(settings),
        run_name=settings.run_dir.name,
        **chapter,
    )
    if arguments.deepspeed and not gpu:
        connect_cpu_ranks()
    if arguments.fsdp and not gpu:
        shard_on_cpu(settings, arguments)
    if arguments.process_index == 0:  # now, so that a run which cannot even hold its model is known by its settings
        update_run_record(settings.run_dir, settings=settings.as_record())
    return arguments


class RunRecorder(TrainerCallback):
    """Tells run.json what is about to run, as soon as the Trainer knows it."""

    def __init__(self, settings: Settings, data: Data) -> None:
        self.settings = settings
        self.data = data

    def on_train_begin(self, args: Any, state: Any, control: Any, model: torch.nn.Module, **_: Any) -> None:
        gpu_names = gather_objects(torch.cuda.get_device_name() if torch.cuda.is_available() else None)
        hosts = set(gather_objects(host_id()))
        if not state.is_world_process_zero:
            return
        settings, size = self.settings, model_size(model)
        batch = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
        facts = {
            "world_size": args.world_size,
            "model": {
                "name": short_name(settings.model_name),
                "parameters": size.parameters,
                "block_parameters": size.blocks,
                "embedding_parameters": size.embedding,
                "layers": getattr(model.config, "num_hidden_layers", None),
                "hidden_size": getattr(model.config, "hidden_size", None),
            },
            "precision": "fp16" if args.fp16 else "bf16" if args.bf16 else "fp32",
            "device": args.device.type,
            "gpu_names": [name for name in gpu_names if name],
            "cpu_threads": torch.get_num_threads(),
            "emulated_nodes": len(hosts) < int(os.environ.get("NNODES", "1")),
            "train_examples": settings.train_size,  # packed, they are fewer rows
            "eval_examples": len(self.data.evaluation),
            "steps_per_epoch": math.ceil(len(self.data.train) / batch),
            "versions": versions(),
        }
        if hasattr(model, "flops_per_token"):  # a model that knows its own arithmetic: the custom one
            tokens = args.train_batch_size * args.gradient_accumulation_steps * settings.max_length
            facts["model"]["flops_per_token"] = model.flops_per_token(settings.max_length)
            facts["flops_per_gpu_per_step"] = facts["model"]["flops_per_token"] * tokens
        update_run_record(settings.run_dir, **facts)
        if settings.rung:
            print(f"rung {settings.rung}, repeat {settings.repeat}: {settings.switches or 'the library as it is'}")
        print(
            f"{facts['model']['name']}: {size.parameters / 1e6:,.1f} M parameters, "
            f"{size.blocks / size.parameters:.0%} of them in the blocks; {facts['precision']} on "
            f"{args.world_size} x {(facts['gpu_names'] or ['CPU'])[0]}; "
            f"batch {args.train_batch_size} x {args.gradient_accumulation_steps} x {args.world_size}, "
            f"{facts['steps_per_epoch']} steps per epoch"
        )
        if "flops_per_gpu_per_step" in facts:
            print(
                f"{facts['model']['flops_per_token'] / 1e9:.3f} GFLOP per token, "
                f"{facts['flops_per_gpu_per_step'] / 1e12:.4g} TFLOP per GPU and step"
            )


def host_id() -> str:
    """The kernel that runs this process: the "nodes" of an emulated cluster have their own hostnames but share it."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text() if boot.exists() else platform.node()


def versions() -> dict[str, str | None]:
    """Of what decides speed and results; null for a package that is not installed."""

    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    packages = ("torch", "transformers", "accelerate", "deepspeed")
    return {
        "python": platform.python_version(),
        **{package: installed(package) for package in packages},
        "cuda": torch.version.cuda,
    }


def build_trainer(
    settings: Settings,
    model: torch.nn.Module,
    arguments: TrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
    data: Data,
) -> MeasuredTrainer:
    """The Trainer with the workshop's measurements attached."""
    recorder = StepRecorder(settings.run_dir / "steps.csv")
    trainer = MeasuredTrainer(
        model=model,
        args=arguments,
        train_dataset=data.train,
        eval_dataset=data.evaluation,
        data_collator=data.collator,
        processing_class=tokenizer,
        callbacks=[
            RunRecorder(settings, data),
            ShardingRecorder(settings, model),
            recorder,
            ProgressLine(),
            TrainSpeedCallback(recorder),
            UtilisationCallback(),
            *([Profiler(settings)] if settings.profile else []),
        ],
    )
    recorder.attach(trainer)
    if settings.generate_before:
        trainer.add_callback(ScoreBefore(settings, trainer, data.examples[: settings.generate_size]))
    return trainer


def finish(settings: Settings, trainer: MeasuredTrainer, data: Data) -> None:
    """Write summary.json, save the final model (gathered, by one rank), answer the questions. Runs on every rank."""
    history = trainer.state.log_history
    final = next(entry for entry in reversed(history) if "train_runtime" in entry)
    speeds = [entry["eval_samples_per_second"] for entry in history if "eval_samples_per_second" in entry]
    summary = {
        "train_runtime_s": final["train_runtime"],
        "train_loss": final["train_loss"],
        "train_samples_per_second": final["train_samples_per_second"],
        "train_steps_per_second": final["train_steps_per_second"],
        "eval_samples_per_second": sum(speeds) / len(speeds) if speeds else None,
        "eval_loss": [entry["eval_loss"] for entry in history if "eval_loss" in entry],
        **find_callback(trainer, TrainSpeedCallback).summary(),
        **find_callback(trainer, UtilisationCallback).summary(),
    }
    write_summary(settings, trainer, summary)
    if settings.save != "no":
        gather_when_saving(trainer)
        trainer.save_model()  # gathers sharded weights on all ranks, writes on one; the tokenizer goes with it
    if settings.generate_before:
        summary |= find_callback(trainer, ScoreBefore).summary
    summary |= scores(settings, trainer, data.examples[: settings.generate_size])
    summary |= scores(settings, trainer, data.train_examples[: settings.generate_train_size], "train_{}")
    write_summary(settings, trainer, summary)
    disconnect(trainer)
    if trainer.is_world_process_zero():
        print(json.dumps(summary, indent=2))
        print("\n".join(sentences(summary)))
        report_summary(settings, summary)


def disconnect(trainer: MeasuredTrainer) -> None:
    """Close the connections between the ranks; gloo's threads abort a process that ends while they still listen.

    The wrapped model holds on to them (DDP's reducer does), so it has to go first. Collective: call it on every rank.
    """
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        trainer.model_wrapped = trainer.model
        trainer.accelerator.free_memory()
        gc.collect()
        torch.distributed.destroy_process_group()


def write_summary(settings: Settings, trainer: MeasuredTrainer, summary: dict[str, Any]) -> None:
    """Written before the slow last steps too: a job that is cut off there keeps its training figures."""
    if trainer.is_world_process_zero():
        (settings.run_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
