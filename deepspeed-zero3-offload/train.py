"""Exercise 4, a model larger than the GPU: ZeRO-3 with parameters and optimizer in CPU memory.

On a cluster:     sbatch deepspeed-zero3-offload/run.slurm --model-name bigscience/bloom-7b1 --steps 20
Without SLURM:    GPUS_PER_NODE=2 bash deepspeed-zero3-offload/run.slurm --model-name bigscience/bloom-7b1 --steps 20

Any causal language model of the hub works unchanged. At the end the script checks what this exercise claims.
"""

import argparse
from dataclasses import replace

from workshop.deepspeed import banner, deepspeed_config
from workshop.encoding import load_tokenizer
from workshop.models import load_model
from workshop.offload_check import OffloadCheck
from workshop.settings import Settings
from workshop.training import build_trainer, finish, load_data, training_arguments


def main() -> None:
    settings = Settings.from_environment()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-name", default=settings.model_name, help="hub name, or a shape with MODEL_INIT=random")
    parser.add_argument(
        "--steps", type=int, default=settings.max_steps, help="optimizer steps; 0: as many as epochs need"
    )
    options = parser.parse_args()
    settings = replace(settings, model_name=options.model_name, max_steps=options.steps)

    config = deepspeed_config(settings)
    arguments = training_arguments(settings, deepspeed=config)
    banner(config, arguments)
    check = OffloadCheck()
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    model = load_model(settings, tokenizer)

    trainer = build_trainer(settings, model, arguments, tokenizer, data)
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    check.report(trainer)
    finish(settings, trainer, data)


if __name__ == "__main__":
    main()
