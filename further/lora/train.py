"""LoRA: the model is frozen, and small matrices beside its linear layers are trained.

One GPU:        METHOD=qlora bash further/lora/lora.slurm
Several GPUs:   METHOD=lora GPUS_PER_NODE=4 bash further/lora/lora.slurm ../models/full_shard.json
ZeRO:           METHOD=lora GPUS_PER_NODE=4 bash further/lora/lora.slurm ds_configs/zero3.json

The rest is the speed ladder's, with its rungs: diff further/speed-ladder/train.py further/lora/train.py
"""

import torch
from peft import LoraConfig, get_peft_model
from transformers import Trainer, TrainingArguments

from ladder_settings import check_rung, sharding_arguments
from lora_settings import LoraSettings
from workshop.data.encoding import load_tokenizer
from workshop.data.load import load_data
from workshop.kernels import fast_models
from workshop.measure.trainer_hooks import begin_run, callbacks_for, end_run, reporting, write_summary
from workshop.training.fsdp import prepare_wrapping, save_whole_model
from workshop.training.models import blocks_of, load_model, without_one_result
from workshop.training.saving import save_apart


def main() -> None:
    settings, gpu = check_rung(LoraSettings.from_environment())  # what cannot work here is an error
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
    # Weights that are not updated need no fp32 master copy. FSDP2 sends no 4-bit weights: each rank makes them.
    dtype = torch.float32 if settings.method == "full" else torch.bfloat16
    model = load_model(settings, tokenizer, arguments, dtype, on_each_rank=settings.method == "qlora")
    if settings.switches:  # the same function of the same parameters, computed another way
        fast_models.use_fast_forward(model)
        fast_models.use_attention(model, settings.attention)
        fast_models.use_loss(model, settings.loss, settings.loss_chunk)
        fast_models.use_residual_dtype(blocks_of(model), settings.stream)
        fast_models.use_float8(blocks_of(model), settings.float8)  # or "none"; near the same function
    if settings.method == "qlora":
        from four_bits import quantize_blocks  # needs bitsandbytes, which the other methods do not

        quantize_blocks(model, compute_dtype=torch.bfloat16 if settings.bf16 else torch.float32)
    if settings.method != "full":
        adapters = LoraConfig(
            task_type="CAUSAL_LM",
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            lora_dropout=settings.lora_dropout,
            # all-linear: of any family, whatever its layers' names; not the head, nor Llama 4's routers
            target_modules=settings.targets_in(model) or "all-linear",
            exclude_modules=without_one_result(model),
        )
        # The adapters in fp32, as full fine-tuning has its weights; DeepSpeed keeps its own fp32 copy of bf16 ones.
        model = get_peft_model(model, adapters, autocast_adapter_dtype=not arguments.deepspeed)
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
    prepare_wrapping(settings, trainer)  # DDP's options; fp16's first scale; an exact loss
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    write_summary(settings, trainer)
    if settings.save != "no":
        save_whole_model(trainer)  # the adapters only, gathered; and the tokenizer
    end_run(settings, trainer, data)


if __name__ == "__main__":
    main()
