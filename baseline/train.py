"""Exercise 1, the baseline: fine-tune BLOOM on SQuAD with the Hugging Face Trainer on one GPU, nothing sharded.

On a cluster:         sbatch baseline/baseline.slurm
Without SLURM:        bash baseline/baseline.slurm
On a laptop, no GPU:  source tiny.env && bash baseline/baseline.slurm

All settings come from env_vars.sh; every later chapter is this script plus one idea.
"""

from workshop.encoding import load_tokenizer
from workshop.models import load_model
from workshop.settings import Settings
from workshop.training import build_trainer, finish, load_data, training_arguments


def main() -> None:
    settings = Settings.from_environment()
    arguments = training_arguments(settings)
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    model = load_model(settings, tokenizer)

    trainer = build_trainer(settings, model, arguments, tokenizer, data)
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    finish(settings, trainer, data)


if __name__ == "__main__":
    main()
