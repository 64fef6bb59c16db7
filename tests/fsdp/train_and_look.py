"""Run by test_fsdp_training.py on ranks: a step of training, then what lies where on each rank.

Writes rankN.json with what was seen; the settings come from the environment, as in train.py.
"""

import gc
import json
import sys
from pathlib import Path

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.tensor import DTensor
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.models.bloom.modeling_bloom import BloomBlock

from tests.workshop.training.test_generation import EARLY_STOP, tiny_bloom
from workshop.data.encoding import load_tokenizer
from workshop.data.load import load_data
from workshop.job.exit_process import end_process
from workshop.measure.evidence_calls import measurements
from workshop.settings import Settings
from workshop.training.cpu_fallback import shard_on_cpu
from workshop.training.fsdp import fsdp_config
from workshop.training.generation import answer_questions
from workshop.training.sharding import shard_units


class Look(TrainerCallback):
    """What this rank holds when a step has ended; evaluation then leaves the embedding gathered."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.seen = {"forward_calls": 0}
        self.model = model
        model.transformer.h[0].self_attention.query_key_value.register_forward_hook(self.count)

    def count(self, *_: object) -> None:
        self.seen["forward_calls"] += torch.is_grad_enabled()

    def on_step_end(self, *_: object, **__: object) -> None:
        parameters = list(self.model.parameters())
        self.seen |= {
            "blocks": sum(isinstance(module, BloomBlock) for module in self.model.modules()),
            "units": shard_units(self.model.transformer.h),
            "sharded": all(isinstance(parameter, DTensor) for parameter in parameters),
            "local_bytes": sum(parameter.to_local().nbytes for parameter in parameters),
            "devices": sorted({parameter.to_local().device.type for parameter in parameters}),
            # What FSDP does with a shard between its uses; without a GPU the device alone would prove nothing.
            "offloaded": [held.offload_to_cpu for held in gc.get_objects() if type(held) is FSDPParam],
        }


def main(out: Path) -> None:
    settings = Settings.from_environment()
    config, mesh = fsdp_config(settings)
    arguments = TrainingArguments(
        output_dir=str(settings.output_path),
        num_train_epochs=settings.num_epochs,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.grad_acc,
        bf16=settings.bf16,
        use_cpu=True,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        fsdp=True,
        fsdp_config=config,
        parallelism_config=mesh,
    )
    shard_on_cpu(settings, arguments)
    tokenizer = load_tokenizer(settings.tokenizer_name)
    data = load_data(settings, tokenizer)
    model = tiny_bloom()
    full_bytes = sum(parameter.nbytes for parameter in model.parameters())
    look = Look(model)
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=data.train,
        eval_dataset=data.evaluation,
        data_collator=data.collator,
        processing_class=tokenizer,
        callbacks=[*measurements(settings, data, model), look],
    )
    trainer.train()
    seen = look.seen | {"full_bytes": full_bytes}
    tokenizer.eos_token = EARLY_STOP
    ask = {"max_length": 300, "max_new_tokens": 12, "batch_size": 2}
    rank, world_size = arguments.process_index, arguments.world_size
    examples = data.examples[:9]  # odd: the ranks cannot share them equally
    seen["answers"] = answer_questions(
        trainer.model_wrapped, tokenizer, examples, **ask, rank=rank, world_size=world_size, synced=True
    )
    weights = trainer.accelerator.get_state_dict(trainer.model)  # collective; rank 0 gets them
    if rank == 0:
        alone = tiny_bloom()
        alone.load_state_dict(weights)
        seen["answers_of_one_process"] = answer_questions(alone, tokenizer, examples, **ask)
    (out / f"rank{rank}.json").write_text(json.dumps(seen))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    end_process()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
