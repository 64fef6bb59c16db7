"""Exercise 5, FSDP: the baseline with an FSDP configuration, started by torchrun.

On a cluster:     sbatch --gpus-per-node=4 fsdp/multi_gpu.slurm fsdp_configs/shard_grad_op.json
Without SLURM:    GPUS_PER_NODE=4 bash fsdp/multi_gpu.slurm fsdp_configs/shard_grad_op.json

Compare with the first chapter: diff ../baseline/train.py train.py
"""

from workshop.encoding import load_tokenizer
from workshop.fsdp import fsdp_arguments
from workshop.models import load_model
from workshop.settings import Settings
from workshop.training import build_trainer, finish, load_data, training_arguments


def main() -> None:
    settings = Settings.from_environment()
    arguments = training_arguments(settings, **fsdp_arguments(settings))
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    model = load_model(settings, tokenizer)

    trainer = build_trainer(settings, model, arguments, tokenizer, data)
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    finish(settings, trainer, data)


if __name__ == "__main__":
    main()
