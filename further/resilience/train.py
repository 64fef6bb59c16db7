"""Resilience: the baseline on several GPUs, and something goes wrong on purpose.

On a cluster:         FAULT=rank_killed sbatch further/resilience/drill.slurm ds_configs/zero2.json
Without SLURM:        FAULT=rank_killed GPUS_PER_NODE=2 bash further/resilience/drill.slurm fsdp_configs/full_shard.json

The baseline saves and goes on in the same way: that is in workshop/training/saving.py, for every exercise.
"""

from transformers import Trainer, TrainingArguments

from drill import Drill
from drill_settings import DrillSettings
from workshop.data.encoding import load_tokenizer
from workshop.data.load import load_data
from workshop.measure.trainer_hooks import begin_run, callbacks_for, end_run, reporting, write_summary
from workshop.training.fsdp import prepare_wrapping, save_whole_model, sharding_arguments
from workshop.training.models import find_gpu, load_model
from workshop.training.saving import save_apart


def main() -> None:
    settings = DrillSettings.from_environment()
    gpu = find_gpu(settings)
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
        max_grad_norm=1.0,  # larger gradients are scaled down to this norm
        optim=settings.optimizer,
        fp16=settings.fp16 and gpu,
        bf16=settings.bf16,
        use_cpu=not gpu,
        gradient_checkpointing=settings.gradient_checkpointing,
        seed=settings.seed,
        eval_strategy="epoch",
        save_strategy="epoch" if settings.save == "epoch" else "no",
        **sharding_arguments(settings, gpu),  # the launcher's argument: DDP, FSDP or ZeRO
        **reporting(settings),  # every step's loss into the log
    )
    begin_run(settings, arguments)

    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    model = load_model(settings, tokenizer, arguments)

    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=data.train,
        eval_dataset=data.evaluation,
        data_collator=data.collator,
        processing_class=tokenizer,
        callbacks=[Drill(settings), *callbacks_for(settings, data, model)],  # the fault; steps.csv, checkpoints, …
    )
    save_apart(settings, trainer)  # a checkpoint is whole, or not there
    prepare_wrapping(settings, trainer)  # DDP's options; fp16's first scale; an exact loss
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    write_summary(settings, trainer)
    if settings.save != "no":
        save_whole_model(trainer)  # gathered; and the tokenizer
    end_run(settings, trainer, data)


if __name__ == "__main__":
    main()
