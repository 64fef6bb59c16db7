"""Exercise 2, ZeRO on one GPU: the baseline with a DeepSpeed configuration.

On a cluster:     sbatch deepspeed-single-gpu/deepspeed.slurm ds_configs/zero2_offload.json
Without SLURM:    bash deepspeed-single-gpu/deepspeed.slurm ds_configs/zero2_offload.json

Compare with the chapter before: diff ../baseline/train.py train.py
"""

from workshop.deepspeed import deepspeed_config
from workshop.encoding import load_tokenizer
from workshop.models import load_model
from workshop.settings import Settings
from workshop.training import build_trainer, finish, load_data, training_arguments


def main() -> None:
    settings = Settings.from_environment()
    arguments = training_arguments(settings, deepspeed=deepspeed_config(settings))
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    model = load_model(settings, tokenizer)

    trainer = build_trainer(settings, model, arguments, tokenizer, data)
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    finish(settings, trainer, data)


if __name__ == "__main__":
    main()
