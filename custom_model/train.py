"""Exercise 6: train a GPT written from scratch on SQuAD, on one GPU or sharded with FSDP over many.

On a cluster:         sbatch custom_model/multi_gpu.slurm
Without SLURM:        GPUS_PER_NODE=2 bash custom_model/multi_gpu.slurm
On a laptop, no GPU:  source tiny.env && GPUS_PER_NODE=2 bash custom_model/multi_gpu.slurm

Compared with baseline/train.py the model is our own (model.py), its sizes are settings, and FSDP shards it.
"""

from custom_model.model import build_model
from custom_model.settings import CustomSettings
from workshop.encoding import load_tokenizer
from workshop.training import build_trainer, finish, load_data, training_arguments

# Each block is a unit: gathered before it computes, freed after. Without a policy the whole model would be one unit.
FSDP = {
    "version": 2,
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "transformer_layer_cls_to_wrap": ["SimpleGPTBlock"],
}


def main() -> None:
    settings = CustomSettings.from_environment()
    arguments = training_arguments(settings, **({"fsdp": True, "fsdp_config": FSDP} if settings.use_fsdp else {}))
    tokenizer = load_tokenizer(settings.tokenizer_name)
    data = load_data(settings, tokenizer)
    model = build_model(settings, tokenizer)

    trainer = build_trainer(settings, model, arguments, tokenizer, data)
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    finish(settings, trainer, data)


if __name__ == "__main__":
    main()
