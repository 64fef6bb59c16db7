"""From a SQuAD example to the token ids and labels a causal language model trains on.

    Question: {question} Context: {context} Answer: {answer}</s>
    |<------------- prompt: label -100 ------------>|<- target ->|

The library shifts labels by one inside the model, so position i of `labels` is the token at position i of `input_ids`.
Older material tokenised prompt and answer apart and padded both to 512: its labels stood under unrelated tokens
(erratum K4). It also replaced BLOOM's `<pad>` by `</s>` and masked the padding by token id, so that no model ever
learnt to stop (erratum K6). Here padding is masked by position, and end-of-sequence is always part of the target.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoTokenizer, GPT2TokenizerFast, PreTrainedTokenizerBase

from workshop.data.conversations import Conversation
from workshop.data.hub import hub_error
from workshop.data.squad import SAMPLE_DIR, Example
from workshop.errors import WorkshopError

IGNORE = -100  # torch.nn.CrossEntropyLoss leaves positions with this label out of the loss

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
    answers = [f" {example.answers[0].strip()}" if with_answer else "" for example in examples]
    texts = [_prompt(example) + answer for example, answer in zip(examples, answers, strict=True)]
    batch: Any = {"input_ids": []}
    if texts:
        batch = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
    for row, (example, ids) in enumerate(zip(examples, batch["input_ids"], strict=True)):
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


def encode_conversations(
    conversations: Sequence[Conversation], tokenizer: PreTrainedTokenizerBase, max_length: int, labels: str
) -> list[Encoded]:
    """`input_ids`, `attention_mask`, `labels` of each, unpadded; one that is too long loses its end.

    With labels="answer" only the assistant's turns and the end of each are targets, with "text" every token. Raises
    WorkshopError for a conversation none of whose targets fits into `max_length` tokens.
    """
    opening, written = opening_ids(tokenizer), [_written(one, tokenizer) for one in conversations]
    # Tokenised whole, as a SQuAD example is: joining the parts' tokens gives other ids.
    texts = ["".join(part for part, _ in parts) for parts, _ in written]
    batch = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    encoded = []
    for one, (parts, templated), tokens, offsets in zip(
        conversations, written, batch["input_ids"], batch["offset_mapping"], strict=True
    ):
        ends = list(accumulate(len(part) for part, _ in parts))
        before = [] if templated else opening  # a template writes its own
        ids = [*before, *tokens][:max_length]
        targets = [parts[bisect_right(ends, start)][1] if start < ends[-1] else False for start, _ in offsets]
        kept = [labels == "text" or target for target in [False] * len(before) + targets]
        row = [token if target else IGNORE for token, target in zip(ids, kept, strict=False)]
        if all(label == IGNORE for label in row[1:]):
            raise WorkshopError(
                f"MAX_LENGTH={max_length}: {one.id}: no turn of the assistant begins in its first {max_length} tokens; "
                "expected a larger MAX_LENGTH, or the example left out"
            )
        encoded.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": row})
    return encoded


def _written(one: Conversation, tokenizer: PreTrainedTokenizerBase) -> tuple[list[tuple[str, bool]], bool]:
    """The text in parts, each a target or not; and whether the tokenizer's template wrote it, which is for turns."""
    pair = all(role in ("", "assistant") for role, _ in one.turns)  # a prompt and its completion
    templated = bool(tokenizer.chat_template) and not pair
    return list(_by_template(one, tokenizer) if templated else _parts(one, tokenizer.eos_token, pair)), templated


def _parts(one: Conversation, end: str, as_it_is: bool) -> Iterator[tuple[str, bool]]:
    """The text in parts, each a target or not; the assistant's end with an end of sequence."""
    for number, (role, text) in enumerate(one.turns):
        target = role == "assistant"
        if not as_it_is:
            yield f"{chr(10) if number else ''}{role.capitalize()}:", False
            text = f" {text.strip()}"
        yield text + (end if target else ""), target


def _by_template(one: Conversation, tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[str, bool]]:
    """A turn is what the template adds for it; what it writes before an assistant's turn is no target."""
    messages = [{"role": role, "content": text} for role, text in one.turns]
    before = ""
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue  # written with the next answer; after the last one there is nothing to learn
        for count, target in ((number, False), (number + 1, True)):
            after = ""
            if count:
                after = tokenizer.apply_chat_template(
                    messages[:count], tokenize=False, add_generation_prompt=not target
                )
            if not after.startswith(before):
                raise WorkshopError(
                    f"{one.id}: the tokenizer's chat template writes a turn otherwise once there are later ones; "
                    "expected one answer per example, or a tokenizer without a template"
                )
            yield after[len(before) :], target
            before = after


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
