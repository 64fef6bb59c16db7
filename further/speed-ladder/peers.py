"""Table 18c: popular libraries with the same model, examples and GPU, each at its best.

    RUNG=peer_trl_packed bash further/speed-ladder/peers.slurm     TRL's SFTTrainer; rungs/peer_*.env are the others
    RUNG=peer_trl_exact GPUS_PER_NODE=2 bash further/speed-ladder/peers_torchrun.slurm fsdp_configs/full_shard.json

The ladder encodes the examples, so all train on the same tokens and targets. A peer's settings are in rungs/<RUNG>.env;
the rest of this script is the ladder's.
"""

import os
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch

import varlen_attention

if os.environ.get("RUNG", "").startswith("peer_unsloth"):
    varlen_attention.take_enable_gqa()
    import unsloth  # noqa: F401  it patches Transformers and TRL, so it comes before them

from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments

from ladder_settings import LadderSettings, sharding_arguments
from workshop.data.encoding import IGNORE, load_tokenizer
from workshop.data.load import Data, load_data
from workshop.measure.by_hand_recorder import open_records
from workshop.measure.trainer_hooks import callbacks_for, end_run, prepare_libraries, reporting, write_summary
from workshop.record.errors import InputError
from workshop.settings.configuration import configuration_of
from workshop.training.fsdp import prepare_wrapping
from workshop.training.models import find_gpu, load_model


def trl_trainer(
    settings: LadderSettings,
    data: Data,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    packing: str,
    attention: str = "",
    compiled: bool = True,
    liger: bool = False,
    lora: bool = False,
) -> Trainer:
    """TRL's SFTTrainer, padded to the longest of the micro-batch, or packed: "wrapped" or "bfd", its default.

    On a GPU its own loss computes the logits of labelled positions only, as rung 11 does, also with Liger's kernels.
    "wrapped" cuts one long text of all examples into rows: a token sees the examples before its own, so it trains
    another function. "bfd" keeps the examples apart, with an attention that reads where they begin: FlexAttention,
    torch's varlen kernel, or FlashAttention 4. Transformers passes ALiBi to none of them, so BLOOM has "wrapped" only.
    With `lora` it trains further/lora/'s adapters of rank 8 beside weights in bf16.
    """
    try:
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer
    except ModuleNotFoundError as error:
        raise InputError(f"RUNG={settings.rung} needs trl; expected: pip install -r requirements-gpu.txt") from error

    arguments = arguments_of(
        SFTConfig,
        settings,
        max_length=settings.max_length,
        packing=bool(packing),
        packing_strategy=packing or "wrapped",
        completion_only_loss=True,
        torch_compile=bool(packing) and compiled and torch.cuda.is_available(),
        # "bfd" makes the micro-batch one row; filled up, all have one length and need one compilation.
        pad_to_multiple_of=settings.batch_size * settings.max_length if packing == "bfd" and compiled else None,
        use_liger_kernel=liger,
        gradient_checkpointing=False,  # its default is on: slower, and the memory is there
    )
    rows = [
        {"input_ids": row["input_ids"], "completion_mask": [int(label != IGNORE) for label in row["labels"]]}
        for row in data.train
    ]
    if attention == "flash_attention_4":
        from flash_attn import cute

        cute.flash_attn_varlen_func = torch.compiler.disable(cute.flash_attn_varlen_func)  # it compiles its own kernels
    if attention == varlen_attention.NAME:
        varlen_attention.register()
    if attention:
        model.set_attn_implementation(attention)
        model.generate = partial(_generate, model, attention)
    adapters = None
    if lora:
        from peft import LoraConfig

        model.to(torch.bfloat16)
        adapters = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules="all-linear")
    return SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=callbacks_for(settings, data, model),
        peft_config=adapters,
    )


def _generate(model: Any, attention: str, **arguments: Any) -> torch.Tensor:
    """`generate` answers with SDPA: prompts are padded, and the attention of packed rows reads no padding mask."""
    model.set_attn_implementation("sdpa")
    try:
        return type(model).generate(model, **arguments)
    finally:
        model.set_attn_implementation(attention)


def unsloth_trainer(
    settings: LadderSettings, data: Data, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, lora: bool = False
) -> Trainer:
    """Unsloth's model in TRL's trainer, as Unsloth does it: weights in bf16, packed by "bfd", compiled by Unsloth.

    It needs an environment of its own (TRL 1.15, datasets 4). With `lora` as `trl_trainer`.
    """
    from unsloth import FastLanguageModel

    with TemporaryDirectory() as folder:
        model.to(torch.bfloat16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        model, _ = FastLanguageModel.from_pretrained(
            folder,
            max_seq_length=settings.max_length,
            dtype=torch.bfloat16,
            load_in_4bit=False,
            full_finetuning=not lora,
            use_gradient_checkpointing=False,
        )
    if lora:
        model = FastLanguageModel.get_peft_model(model, r=8, lora_alpha=16, use_gradient_checkpointing=False)
    return trl_trainer(settings, data, model, tokenizer, packing="bfd", compiled=False)


def plain_trainer(
    settings: LadderSettings, data: Data, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, compiled: bool
) -> Trainer:
    """The Trainer at its best without other code: little padding, or (compiled) rows of one length."""
    arguments = arguments_of(
        TrainingArguments,
        settings,
        torch_compile=compiled and torch.cuda.is_available(),
        train_sampling_strategy="random" if compiled else "group_by_length",
    )
    return Trainer(
        model=model,
        args=arguments,
        train_dataset=data.train,
        data_collator=data.collator,
        processing_class=tokenizer,
        callbacks=callbacks_for(settings, data, model),
    )


def arguments_of(kind: type[TrainingArguments], settings: LadderSettings, **own: Any) -> Any:
    """Return a peer's own arguments with those of all peers: the ladder's values, and the launcher's DDP or FSDP."""
    gpu = find_gpu(settings)
    arguments = kind(
        output_dir=str(settings.output_path),
        num_train_epochs=settings.num_epochs,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.grad_acc,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.lr_warmup_steps,
        weight_decay=settings.weight_decay,
        optim=settings.optimizer,
        bf16=settings.bf16,
        use_cpu=not gpu,
        dataloader_num_workers=settings.data_workers,
        dataloader_persistent_workers=settings.data_workers > 0,
        seed=settings.seed,
        save_strategy="no",
        **sharding_arguments(settings, gpu),
        **reporting(settings),
        **own,
    )
    prepare_libraries(settings, arguments)
    return arguments


PEERS = {
    "peer_trl_padded": partial(trl_trainer, packing=""),
    "peer_trl_packed": partial(trl_trainer, packing="wrapped"),
    "peer_trl_exact": partial(trl_trainer, packing="bfd", attention="flex_attention"),
    "peer_trl_varlen": partial(trl_trainer, packing="bfd", attention=varlen_attention.NAME),
    "peer_trl_exact_liger": partial(trl_trainer, packing="bfd", attention="flex_attention", liger=True),
    "peer_trl_fa4": partial(trl_trainer, packing="bfd", attention="flash_attention_4"),
    "peer_trl_lora": partial(trl_trainer, packing="wrapped", lora=True),
    "peer_trl_exact_lora": partial(trl_trainer, packing="bfd", attention="flex_attention", lora=True),
    "peer_unsloth": unsloth_trainer,
    "peer_unsloth_lora": partial(unsloth_trainer, lora=True),
    "peer_trainer_grouped": partial(plain_trainer, compiled=False),
    "peer_trainer_compiled": partial(plain_trainer, compiled=True),
}


def main() -> None:
    settings = LadderSettings.from_environment()
    open_records(settings)
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    found = configuration_of(settings)
    model = load_model(settings, tokenizer, sharded=bool(found and found.is_fsdp))
    trainer = PEERS[settings.rung](settings, data, model, tokenizer)
    prepare_wrapping(settings, trainer)
    trainer.train()
    write_summary(settings, trainer)
    end_run(settings, trainer, data)


if __name__ == "__main__":
    main()
