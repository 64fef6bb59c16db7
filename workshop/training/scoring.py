"""Exact match and F1 in training: of held-out questions, of those that were trained on, and before the training.

Each tells something else. Only held-out questions show whether a model can answer; training questions beside them show
whether it has only learnt its lesson by heart; an untrained model shows what the score is worth.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainingArguments

from workshop.data.squad import Example
from workshop.settings import Settings
from workshop.training.generation import answer_questions
from workshop.training.squad_metric import score


def scores(
    settings: Settings,
    arguments: TrainingArguments,
    model: torch.nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    name: str = "{}",
) -> dict[str, Any]:
    """`exact_match`, `f1` and `generated_examples` of greedy answers, as keys of summary.json; `name` renames them.

    `model` may be the wrapped one. Collective: call it on every rank. No keys without examples.
    """
    if not examples:
        return {}
    answers = answer_questions(
        model,
        tokenizer,
        examples,
        max_length=settings.max_length,
        batch_size=settings.eval_batch_size or settings.batch_size,
        max_new_tokens=settings.max_new_tokens,
        rank=arguments.process_index,
        world_size=arguments.world_size,
        synced=arguments.world_size > 1,
    )
    found = score(examples, answers)
    figures = {"exact_match": found["exact_match"], "f1": found["f1"], "generated_examples": len(examples)}
    return {name.format(key): figure for key, figure in figures.items()}


class ScoreBefore(TrainerCallback):
    """The held-out questions, answered by the model that the training starts from; GENERATE_BEFORE=true."""

    def __init__(self, settings: Settings, examples: Sequence[Example]) -> None:
        self.settings, self.examples = settings, examples
        self.summary: dict[str, Any] = {}

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: torch.nn.Module, processing_class: Any, **_: Any
    ) -> None:
        if state.global_step:  # resumed: this is no untrained model
            return
        self.summary = scores(self.settings, args, model, processing_class, self.examples, "{}_before")
        self.summary.pop("generated_examples_before", None)  # as many as after the training
        if torch.cuda.is_available():  # the memory that answering needs is not the training's
            torch.cuda.reset_peak_memory_stats()


def sentences(summary: dict[str, Any]) -> list[str]:
    """What the scores say, for people."""
    lines = []
    if "exact_match" in summary:
        line = f"held-out questions ({summary['generated_examples']}): {_pair(summary, '{}')}"
        before = f"; before the training {_pair(summary, '{}_before')}" if "f1_before" in summary else ""
        lines.append(line + before)
    if "train_exact_match" in summary:
        lines.append(f"training questions ({summary['train_generated_examples']}): {_pair(summary, 'train_{}')}")
    return lines


def _pair(summary: dict[str, Any], name: str) -> str:
    return f"exact match {summary[name.format('exact_match')]:.1f} %, F1 {summary[name.format('f1')]:.1f} %"
