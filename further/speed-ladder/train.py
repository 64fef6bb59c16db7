"""The speed ladder: the baseline, made faster one rung (a file in rungs/) at a time.
One GPU:        RUNG=7_compile bash further/speed-ladder/ladder.slurm
Several GPUs:   RUNG=11_labelled GPUS_PER_NODE=4 bash further/speed-ladder/ladder_torchrun.slurm fsdp_configs/ddp.json
"""

from transformers import Trainer, TrainingArguments

from ladder_settings import LadderSettings, check_rung, sharding_arguments
from workshop.data.encoding import load_tokenizer
from workshop.data.load import load_data
from workshop.kernels import fast_models
from workshop.measure.trainer_hooks import begin_run, callbacks_for, end_run, reporting, write_summary
from workshop.training.fsdp import prepare_wrapping, save_whole_model
from workshop.training.models import blocks_of, load_model
from workshop.training.saving import save_apart


def main() -> None:
    settings, gpu = check_rung(LadderSettings.from_environment())  # what cannot work here is an error
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
        dataloader_num_workers=settings.data_workers,
        dataloader_persistent_workers=settings.data_workers > 0,
        **sharding_arguments(settings, gpu),  # the launcher's argument: DDP, FSDP, ZeRO, or nothing
        **reporting(settings),  # every step's loss into the log
    )
    begin_run(settings, arguments)
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    model = load_model(settings, tokenizer, arguments)
    if settings.switches:  # the same function of the same parameters, computed another way
        fast_models.use_fast_forward(model)
        fast_models.use_attention(model, settings.attention)
        fast_models.use_loss(model, settings.loss, settings.loss_chunk)
        fast_models.use_residual_dtype(blocks_of(model), settings.stream)
        fast_models.use_float8(blocks_of(model), settings.float8)  # or "none"; near the same function
    if settings.compile and not arguments.torch_compile:  # which is DeepCompile's
        fast_models.compile_blocks(blocks_of(model))
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=fast_models.pack(data.train, settings.max_length) if settings.packing else data.train,
        eval_dataset=data.evaluation,
        data_collator=fast_models.LabelledOnly(data.collator) if settings.logits == "labelled" else data.collator,
        processing_class=tokenizer,
        callbacks=callbacks_for(settings, data, model),  # steps.csv, memory, what was sharded
    )
    save_apart(settings, trainer)  # a checkpoint is whole, or not there
    if settings.cuda_graph and gpu:
        fast_models.use_graph(trainer)
    prepare_wrapping(settings, trainer)  # DDP's options; fp16's first scale; an exact loss
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    write_summary(settings, trainer)
    if settings.save != "no":
        save_whole_model(trainer)  # gathered; and the tokenizer
    end_run(settings, trainer, data)


if __name__ == "__main__":
    main()
