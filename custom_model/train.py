"""Train a GPT written from scratch on SQuAD, on one GPU or sharded with FSDP over many.

On a cluster:         sbatch custom_model/multi_gpu.slurm
Without SLURM:        GPUS_PER_NODE=2 bash custom_model/multi_gpu.slurm
On a laptop, no GPU:  (source tiny.env && GPUS_PER_NODE=2 bash custom_model/multi_gpu.slurm)

The model is our own (model.py), and its sizes are settings.
Compare with the FSDP exercise: diff fsdp/train.py custom_model/train.py
"""

from transformers import Trainer, TrainingArguments

from custom_model.model import build_model
from custom_model.settings import CustomSettings
from workshop.data.encoding import load_tokenizer
from workshop.data.load import load_data
from workshop.measure.trainer_hooks import begin_run, callbacks_for, end_run, reporting, write_summary
from workshop.training.fsdp import prepare_wrapping, save_whole_model
from workshop.training.models import find_gpu
from workshop.training.saving import save_apart

# Each block is a unit: gathered before it computes, freed after. Without a policy the whole model would be one unit.
FSDP = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "transformer_layer_cls_to_wrap": ["SimpleGPTBlock"], "version": 2}


def main() -> None:
    settings = CustomSettings.from_environment()
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
        fsdp=True if settings.use_fsdp else None,
        fsdp_config=FSDP if settings.use_fsdp else None,
        ddp_find_unused_parameters=False,  # USE_FSDP=false is DDP: no search for unused parameters in every step
        **reporting(settings),  # every step's loss into the log
    )
    begin_run(settings, arguments)

    tokenizer = load_tokenizer(settings.tokenizer_name)
    data = load_data(settings, tokenizer)
    model = build_model(settings, tokenizer, sharded=settings.use_fsdp)

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
    prepare_wrapping(settings, trainer)  # DDP's options; fp16's first scale; an exact loss
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    write_summary(settings, trainer)
    if settings.save != "no":
        save_whole_model(trainer)  # gathered; and the tokenizer
    end_run(settings, trainer, data)


if __name__ == "__main__":
    main()
