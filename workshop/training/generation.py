"""Answers by greedy generation, batched, on every rank of a job: one GPU, DDP, ZeRO-3 and FSDP alike."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from workshop.data.encoding import Encoded, PaddingCollator, encode_prompts
from workshop.data.squad import Example
from workshop.errors import WorkshopError
from workshop.job.hangs import progress


@torch.no_grad()
def answer_questions(
    model: torch.nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    *,
    max_length: int,
    batch_size: int,
    max_new_tokens: int = 32,
    rank: int = 0,
    world_size: int = 1,
    synced: bool = False,
    device: torch.device | None = None,
) -> dict[str, str]:
    """The model's answer to every question, by example id, the same on all ranks.

    All ranks must call this together. `model` may be the wrapped one (DDP, DeepSpeed, FSDP). `synced` keeps ranks that
    are done running until the last one is: needed where a forward pass is collective (ZeRO-3, FSDP). Prompt and answer
    together have at most `max_length` tokens. `device` is where the model computes, by default this process's GPU if
    there is one: the parameters do not tell, they may be offloaded. The model keeps the mode, training or not, that it
    came in. Raises WorkshopError if `max_length` leaves no room for a prompt.
    """
    if max_new_tokens >= max_length:
        raise WorkshopError(
            f"MAX_NEW_TOKENS={max_new_tokens}: leaves no room for a prompt, expected less than MAX_LENGTH={max_length}"
        )
    if device is None:
        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    collate = PaddingCollator(tokenizer.pad_token_id, None, side="left")
    prompts = encode_prompts(examples, tokenizer, max_length - max_new_tokens)
    mine = _share(prompts, rank, world_size)
    starts = range(0, len(mine), batch_size)

    answers = {}
    with _generating(model) as generator:
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
                synced_gpus=synced,
            )
            progress()
            new_tokens = sequences[:, batch["input_ids"].shape[1] :].tolist()
            answers |= {
                examples[index].id: _answer(tokenizer, ids) for index, ids in zip(indices, new_tokens, strict=True)
            }

    if world_size > 1:
        shares: list[dict[str, str]] = [{}] * world_size
        dist.all_gather_object(shares, answers)
        answers = {key: text for share in shares for key, text in share.items()}
    return {example.id: answers[example.id] for example in examples}


def _share(prompts: Sequence[Encoded], rank: int, world_size: int) -> list[int]:
    """Indices of the prompts of one rank: every world_size-th by length, longest first, equally many on every rank.

    Neighbours in length share a batch and waste little on padding; a run that is short of memory fails at once, not at
    its end. The last prompt is repeated to fill up: a rank with a batch less would leave the others waiting for it.
    """
    order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]["input_ids"]))
    order += order[-1:] * (-len(order) % world_size)
    return order[rank::world_size]


@contextmanager
def _generating(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The Hugging Face model inside the wrappers, in evaluation mode, ready for `generate`."""
    was_training = model.training
    model.eval()
    try:
        if isinstance(model, FullyShardedDataParallel):
            # `generate` calls the inner model and so passes by FSDP1's outermost unit, which holds the embedding:
            # gather that one here. The blocks are units of their own and gather themselves.
            with FullyShardedDataParallel.summon_full_params(model, writeback=False, recurse=False):
                yield model.module
        else:
            # DDP and DeepSpeed's engine have the model in `module`; FSDP2 shards it in place.
            yield model if hasattr(model, "generate") else model.module
    finally:
        model.train(was_training)


def _answer(tokenizer: PreTrainedTokenizerBase, new_tokens: list[int]) -> str:
    """The first line of what was generated before end-of-sequence."""
    ids = list(takewhile(lambda token_id: token_id != tokenizer.eos_token_id, new_tokens))
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False).strip()
    return text.partition("\n")[0].strip()
