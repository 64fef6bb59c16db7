"""Exercise 7, the benchmark: exercise 2 on rows of plain text without padding, so that every token is work.

On a cluster:     python -m tools submit benchmark
One cell:         FP16=true BF16=false bash benchmark/benchmark.slurm ds_configs/zero2.json

Compare with the chapter it measures: diff ../deepspeed-single-gpu/train.py train.py
"""

from workshop.deepspeed import deepspeed_config
from workshop.encoding import load_tokenizer
from workshop.models import load_model
from workshop.settings import Settings
from workshop.text_rows import load_text
from workshop.training import build_trainer, finish, training_arguments


def main() -> None:
    settings = Settings.from_environment()
    arguments = training_arguments(settings, deepspeed=deepspeed_config(settings))
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_text(settings, tokenizer)
    model = load_model(settings, tokenizer)

    trainer = build_trainer(settings, model, arguments, tokenizer, data)
    trainer.train(resume_from_checkpoint=settings.resume_from or None)
    finish(settings, trainer, data)


if __name__ == "__main__":
    main()
