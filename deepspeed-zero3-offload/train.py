"""A model larger than the GPU: ZeRO-3 with parameters and optimizer in CPU memory. Any causal language
model of the hub works unchanged. At the end the script checks what this exercise claims.
On a cluster:     sbatch deepspeed-zero3-offload/run.slurm --model-name bigscience/bloom-7b1 --steps 20
Without SLURM:    GPUS_PER_NODE=2 bash deepspeed-zero3-offload/run.slurm --model-name bigscience/bloom-7b1 --steps 20
"""

import argparse
from dataclasses import replace

from transformers import Trainer, TrainingArguments

from offload_check import OffloadCheck
from workshop.data.encoding import load_tokenizer
from workshop.data.load import load_data
from workshop.measure.trainer_hooks import begin_run, callbacks_for, end_run, reporting, write_summary
from workshop.settings.settings import Settings
from workshop.training.deepspeed import deepspeed_config
from workshop.training.models import find_gpu, load_model
from workshop.training.saving import save_apart


def main() -> None:
    settings = Settings.from_environment()
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--model-name", default=settings.model_name, help="hub name, or a shape with MODEL_INIT=random")
    parser.add_argument("--steps", dest="max_steps", type=int, default=settings.max_steps, help="0: whole epochs")
    settings = replace(settings, **vars(parser.parse_args()))
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
        deepspeed=deepspeed_config(settings),  # the launcher's argument, checked
        **reporting(settings),  # every step's loss into the log
    )
    begin_run(settings, arguments)

    check = OffloadCheck(arguments)  # prints what runs where; compares the memory at the end
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
        callbacks=callbacks_for(settings, data, model),  # steps.csv, memory, what was sharded
    )
    save_apart(settings, trainer)  # a checkpoint is whole, or not there
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    check.report(trainer)
    write_summary(settings, trainer)
    if settings.save != "no":
        trainer.save_model()  # and the tokenizer
    end_run(settings, trainer, data)


if __name__ == "__main__":
    main()
