"""From a SQuAD example to the token ids and labels a causal language model trains on.

    Question: {question} Context: {context} Answer: {answer}</s>
    |<------------- prompt: label -100 ------------>|<- target ->|

The library shifts labels by one inside the model, so position i of `labels` is the token at position i of `input_ids`.
Older material tokenised prompt and answer apart and padded both to 512: its labels stood under unrelated tokens
(erratum K4). It also replaced BLOOM's `<pad>` by `</s>` and masked the padding by token id, so that no model ever
learnt to stop (erratum K6). Here padding is masked by position, and end-of-sequence is always part of the target.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

import torch
from tqdm import tqdm
from transformers import AutoTokenizer, GPT2TokenizerFast, PreTrainedTokenizerBase

from workshop.errors import WorkshopError
from workshop.hub import hub_error
from workshop.squad import SAMPLE_DIR, Example

IGNORE = -100  # torch.nn.CrossEntropyLoss leaves positions with this label out of the loss
SHOW_PROGRESS_ABOVE = 2_000  # examples; fewer are encoded before a bar could be read
CHUNK = 1_000  # examples per call of the tokenizer, which works on them in parallel

Encoded = dict[str, list[int]]


def load_tokenizer(name_or_path: str) -> PreTrainedTokenizerBase:
    """A fast tokenizer by name: `sample`, a folder (GPT-2's two original files are enough), or a hub name.

    Raises WorkshopError if it cannot be loaded, has no end-of-sequence token, or is not a fast tokenizer.
    """
    folder = SAMPLE_DIR / "tokenizer" if name_or_path == "sample" else Path(name_or_path)
    modern = any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json"))
    if not modern and (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        tokenizer = GPT2TokenizerFast(str(folder / "vocab.json"), str(folder / "merges.txt"))
    else:
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder if folder.is_dir() else name_or_path)
        except (OSError, ValueError) as error:
            what = f"tokenizer '{name_or_path}' (TOKENIZER_NAME, or else MODEL_NAME)"
            raise hub_error(what, name_or_path, error) from error
    if not tokenizer.is_fast:
        raise WorkshopError(f"tokenizer '{name_or_path}': found a slow tokenizer, expected a fast one (tokenizer.json)")
    if tokenizer.eos_token_id is None:
        raise WorkshopError(f"tokenizer '{name_or_path}': found no end-of-sequence token, expected one")
    if tokenizer.pad_token_id is None:
        # GPT-2 and Llama have no padding token. Any id would do, because padding is masked by position: a real
        # end-of-sequence keeps its label and its attention although it has the same id.
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def encode_all(
    examples: Sequence[Example],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    labels: Literal["answer", "text"] = "answer",
) -> list[Encoded]:
    """Encode prompt, first answer and end-of-sequence of every example; a list is all the Trainer needs as a data set.

    Each is `input_ids`, `attention_mask` and `labels`, not padded. With labels="answer" the prompt's labels are -100;
    with "text" every token is a target. An example longer than `max_length` loses tokens from the end of its context,
    possibly those with the answer, as is usual for this task. Raises WorkshopError if an example does not fit even
    without context.
    """
    if labels not in ("answer", "text"):
        raise WorkshopError(f"LABELS={labels}: expected answer or text")
    encoded = []
    for input_ids, prompt_length in _tokenise(examples, tokenizer, max_length, with_answer=True):
        masked = prompt_length if labels == "answer" else 0
        encoded.append(
            {
                "input_ids": input_ids,
                "attention_mask": [1] * len(input_ids),
                "labels": [IGNORE] * masked + input_ids[masked:],
            }
        )
    return encoded


def encode_prompts(examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase, max_length: int) -> list[Encoded]:
    """`input_ids` and `attention_mask` up to and including ` Answer:`, from where a model generates."""
    prompts = _tokenise(examples, tokenizer, max_length, with_answer=False)
    return [{"input_ids": input_ids, "attention_mask": [1] * len(input_ids)} for input_ids, _ in prompts]


def _head(example: Example) -> str:
    return f"Question: {example.question.strip()} Context:"


def _prompt(example: Example) -> str:
    # SQuAD has questions and answers with stray spaces; without them every part begins after exactly one space.
    return f"{_head(example)} {example.context.strip()} Answer:"


def _tokenise(
    examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase, max_length: int, with_answer: bool
) -> Iterator[tuple[list[int], int]]:
    """Token ids of each example's text and the length of the prompt among them.

    The text is tokenised whole and the parts are found by their place in it: joining parts tokenised one by one gives
    other ids wherever a tokenizer treats the beginning of a text specially (Llama's does).
    """
    opening = opening_ids(tokenizer)
    ending = [tokenizer.eos_token_id] if with_answer else []
    starts = range(0, len(examples), CHUNK)
    for start in tqdm(starts, "tokenising", unit="k", mininterval=5, disable=len(examples) <= SHOW_PROGRESS_ABOVE):
        chunk = examples[start : start + CHUNK]
        answers = [f" {example.answers[0].strip()}" if with_answer else "" for example in chunk]
        texts = [_prompt(example) + answer for example, answer in zip(chunk, answers, strict=True)]
        batch = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
        for row, example in enumerate(chunk):
            ids = batch["input_ids"][row]
            prompt_end = len(_prompt(example))
            head = batch.char_to_token(row, len(_head(example)) - 1) + 1  # one past the colon of "Context:"
            tail = batch.char_to_token(row, prompt_end - len("Answer:"))
            prompt = batch.char_to_token(row, prompt_end - 1) + 1
            excess = max(0, len(opening) + len(ids) + len(ending) - max_length)
            if excess > tail - head:
                needed = len(opening) + len(ids) + len(ending) - (tail - head)
                raise WorkshopError(
                    f"MAX_LENGTH={max_length}: example {example.id} has {needed} tokens without any context, expected "
                    "room for more than these"
                )
            yield [*opening, *ids[: tail - excess], *ids[tail:], *ending], len(opening) + prompt - excess


def opening_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """What the tokenizer puts before every text: `<s>` for Llama, nothing for BLOOM and GPT-2."""
    probe = tokenizer("a", return_special_tokens_mask=True)
    special = zip(probe["input_ids"], probe["special_tokens_mask"], strict=True)
    return [token_id for token_id, is_special in takewhile(lambda pair: pair[1], special)]


@dataclass(frozen=True)
class PaddingCollator:
    """Makes a batch of equally long rows: `pad_to` tokens, or as many as the longest row if `pad_to` is None.

    Padding has attention 0 and label -100 by its position, whatever its token id. Pad on the right to train, on the
    left to generate, where the next token must follow the prompt's last one.
    """

    pad_token_id: int
    pad_to: int | None
    side: Literal["right", "left"] = "right"

    def __call__(self, rows: Sequence[Encoded]) -> dict[str, torch.Tensor]:
        """int64 tensors of shape [rows, length] for the keys the rows have. Raises ValueError if a row is too long."""
        longest = max(len(row["input_ids"]) for row in rows)
        length = longest if self.pad_to is None else self.pad_to
        if longest > length:
            raise ValueError(f"found a row of {longest} tokens, expected at most pad_to={length}")
        fill = {"input_ids": self.pad_token_id, "attention_mask": 0, "labels": IGNORE, "document_ids": 0}
        return {key: torch.tensor([self._pad(row[key], length, fill[key]) for row in rows]) for key in rows[0]}

    def _pad(self, values: list[int], length: int, fill: int) -> list[int]:
        padding = [fill] * (length - len(values))
        return values + padding if self.side == "right" else padding + values
