"""Answers by greedy generation, batched, on every rank: one GPU, DDP, ZeRO-3 and FSDP alike; and their scores.

Only held-out questions show whether a model can answer. Training questions show whether it has memorised its lesson,
and an untrained model shows what the score is worth.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from tqdm import tqdm
from transformers import DynamicCache, PreTrainedConfig, PreTrainedTokenizerBase, TrainerCallback, TrainingArguments
from transformers.modeling_utils import unwrap_model

from workshop.data.encoding import Encoded, PaddingCollator, encode_prompts
from workshop.data.forms import Row
from workshop.record.run_record import add_to_summary, read_summary
from workshop.settings.settings import Settings
from workshop.training.callbacks import StepRecorder, forget_peak, gather_objects
from workshop.training.hangs import progress
from workshop.training.squad_metric import score


@torch.no_grad()
def answer_questions(
    settings: Settings,
    device: torch.device,
    model: torch.nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Row],
) -> dict[str, str]:
    """Return the model's answer to every question, by example id, the same on all ranks.

    Collective. `model` may be the wrapped one (DDP, DeepSpeed, FSDP). It computes on `device`: its parameters may be
    offloaded. It keeps its mode, training or evaluation.
    """
    max_new_tokens, batch_size = settings.max_new_tokens, settings.eval_batch_size or settings.batch_size
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    collate = PaddingCollator(tokenizer.pad_token_id, None, side="left")
    prompts = encode_prompts(examples, tokenizer, settings.max_length, max_new_tokens)
    mine = _share(prompts, rank, world_size)
    starts = range(0, len(mine), batch_size)

    answers = {}
    with _generating(model) as generator:
        use_cache = _can_cache(unwrap_model(generator).config)  # a DeepSpeed engine's own is DeepSpeed's
        for start in tqdm(starts, "answering", unit="batch", mininterval=10, disable=rank != 0 or len(starts) < 10):
            indices = mine[start : start + batch_size]
            batch = {key: value.to(device) for key, value in collate([prompts[index] for index in indices]).items()}
            sequences = generator.generate(
                **batch,
                max_new_tokens=max_new_tokens,
                do_sample=False,
                num_beams=1,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
                use_cache=use_cache,
                synced_gpus=world_size > 1,  # ranks that are done keep generating: a sharded forward pass is collective
            )
            progress()
            new_tokens = sequences[:, batch["input_ids"].shape[1] :].tolist()
            answers |= {
                examples[index]["id"]: _answer(tokenizer, ids) for index, ids in zip(indices, new_tokens, strict=True)
            }

    answers = {key: text for share in gather_objects(answers) for key, text in share.items()}
    return {example["id"]: answers[example["id"]] for example in examples}


def _share(prompts: Sequence[Encoded], rank: int, world_size: int) -> list[int]:
    """Return the indices of one rank's prompts: every world_size-th by length, longest first, equally many per rank.

    Prompts of a batch have similar lengths, so there is little padding; too little memory fails at once, not at the
    end. The last prompt is repeated to fill up: the others would wait for a rank with one batch less.
    """
    order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]["input_ids"]))
    order += order[-1:] * (-len(order) % world_size)
    return order[rank::world_size]


def _can_cache(config: PreTrainedConfig) -> bool:
    """Whether `generate` can use its cache, which counts positions in an attention layer.

    Models of Mamba or linear attention alone have none, such as a Jamba of less than five layers.
    """
    try:
        DynamicCache(config=config).get_seq_length()
    except ValueError:
        return False
    return True


@contextmanager
def _generating(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Give the Hugging Face model inside the wrappers, in evaluation mode, ready for `generate`."""
    was_training = model.training
    model.eval()
    try:
        if isinstance(model, FullyShardedDataParallel):
            # `generate` calls the inner model, not FSDP1's outermost unit, which holds the embedding: gather it here.
            # The blocks are units themselves and gather their own parameters.
            with FullyShardedDataParallel.summon_full_params(model, writeback=False, recurse=False):
                yield model.module
        else:
            # DDP and DeepSpeed's engine have the model in `module`; FSDP2 shards it in place.
            yield model if hasattr(model, "generate") else model.module
    finally:
        model.train(was_training)


def _answer(tokenizer: PreTrainedTokenizerBase, new_tokens: list[int]) -> str:
    """Return the first line before end-of-sequence."""
    ids = list(takewhile(lambda token_id: token_id != tokenizer.eos_token_id, new_tokens))
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False).strip()
    return text.partition("\n")[0].strip()


def scores(
    settings: Settings,
    arguments: TrainingArguments,
    model: torch.nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Row],
    name: str = "{}",
) -> dict[str, Any]:
    """Return `exact_match`, `f1`, `generated_examples` as keys of summary.json, renamed by `name`; {} without examples.

    `model` may be the wrapped one. Collective: call it on every rank.
    """
    if not examples:
        return {}
    answers = answer_questions(settings, arguments.device, model, tokenizer, examples)
    figures = score(examples, answers) | {"generated_examples": len(examples)}
    return {name.format(key): figure for key, figure in figures.items()}


class ScoreRecorder(TrainerCallback):
    """Scores answers to held-out questions before the training (GENERATE_BEFORE) and every GENERATE_STEPS steps.

    They are written at once: a run may end before its summary is.
    """

    def __init__(self, settings: Settings, recorder: StepRecorder, examples: Sequence[Row]) -> None:
        self.settings, self.recorder, self.examples = settings, recorder, examples

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: torch.nn.Module, processing_class: Any, **_: Any
    ) -> None:
        if state.global_step or not self.settings.generate_before:  # a resumed run has no untrained model
            return
        before = scores(self.settings, args, model, processing_class, self.examples, "{}_before")
        before.pop("generated_examples_before", None)  # as many as after the training
        if state.is_world_process_zero:
            add_to_summary(self.settings.run_dir, before)
        forget_peak()  # answering's memory is not the training's

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: torch.nn.Module, processing_class: Any, **_: Any
    ) -> None:
        every = self.settings.generate_steps
        if every and self.examples and state.global_step % every == 0:
            exact_match = scores(self.settings, args, model, processing_class, self.examples)["exact_match"]
            if state.is_world_process_zero:
                print(f"step {state.global_step}: exact match {exact_match:.1f} % of {len(self.examples)}", flush=True)
                earlier = read_summary(self.settings.run_dir).get("exact_match_by_step", {})
                by_step = earlier | {str(state.global_step): exact_match}
                add_to_summary(self.settings.run_dir, {"exact_match_by_step": by_step})
            forget_peak()
            self.recorder.start_clock()  # answering belongs to no step


def sentences(summary: dict[str, Any]) -> list[str]:
    """Return the scores as sentences."""

    def pair(name: str) -> str:
        return f"exact match {summary[name.format('exact_match')]:.1f} %, F1 {summary[name.format('f1')]:.1f} %"

    lines = []
    if "exact_match" in summary:
        before = f"; before the training {pair('{}_before')}" if "f1_before" in summary else ""
        lines.append(f"held-out questions ({summary['generated_examples']}): {pair('{}')}{before}")
    if "train_exact_match" in summary:
        lines.append(f"training questions ({summary['train_generated_examples']}): {pair('train_{}')}")
    return lines
