"""The benchmark: one-GPU ZeRO on rows of plain text without padding, so that every token is work.

On a cluster:     python -m tools submit benchmark
One cell:         FP16=true BF16=false bash benchmark/benchmark.slurm ds_configs/zero2.json

Compare with one-GPU ZeRO: diff deepspeed-single-gpu/train.py benchmark/train.py
"""

from transformers import Trainer, TrainingArguments

from workshop.data.encoding import load_tokenizer
from workshop.data.load import load_text
from workshop.measure.trainer_hooks import begin_run, callbacks_for, end_run, reporting, write_summary
from workshop.settings.settings import Settings
from workshop.training.deepspeed import deepspeed_config
from workshop.training.models import find_gpu, load_model
from workshop.training.saving import save_apart


def main() -> None:
    settings = Settings.from_environment()
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

    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_text(settings, tokenizer)
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
    write_summary(settings, trainer)
    if settings.save != "no":
        trainer.save_model()  # and the tokenizer
    end_run(settings, trainer, data)


if __name__ == "__main__":
    main()
