"""From a SQuAD example or a conversation to the token ids and labels a causal language model trains on.

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
from itertools import accumulate
from os.path import commonprefix
from pathlib import Path
from typing import Literal

import torch
from jinja2 import TemplateError
from transformers import AutoTokenizer, GPT2TokenizerFast, PreTrainedTokenizerBase

from workshop.data.forms import SAMPLE_DIR, Row
from workshop.record.errors import InputError

IGNORE = -100  # torch.nn.CrossEntropyLoss ignores positions with this label
PROMPT, CONTEXT, TARGET = "prompt", "context", "target"  # kinds of parts of a text

Encoded = dict[str, list[int]]
Parts = list[tuple[str, str]]  # texts, each with its kind


def load_tokenizer(name_or_path: str) -> PreTrainedTokenizerBase:
    """Return a fast tokenizer by name: `sample`, a folder (GPT-2's two original files are enough), or a hub name.

    Raises InputError if it cannot be loaded, has no end-of-sequence token, or is not a fast tokenizer.
    """
    folder = SAMPLE_DIR / "tokenizer" if name_or_path == "sample" else Path(name_or_path)
    original = (folder / "merges.txt").exists() and not any(folder.glob("tokenizer*.json"))
    try:
        kind = GPT2TokenizerFast if original else AutoTokenizer
        tokenizer = kind.from_pretrained(folder if folder.is_dir() else name_or_path)
    except (OSError, ValueError) as error:
        from workshop.data.hub import hub_error

        what = f"tokenizer '{name_or_path}' (TOKENIZER_NAME, or else MODEL_NAME)"
        raise hub_error(what, name_or_path, error) from error
    if not tokenizer.is_fast:
        raise InputError(f"tokenizer '{name_or_path}': found a slow tokenizer, expected a fast one (tokenizer.json)")
    if tokenizer.eos_token_id is None:
        raise InputError(f"tokenizer '{name_or_path}': found no end-of-sequence token, expected one")
    if tokenizer.pad_token_id is None:
        # GPT-2 and Llama have no padding token. Any id works, because padding is masked by position: a real
        # end-of-sequence with the same id keeps its label and its attention.
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def encode_all(
    rows: Sequence[Row],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    labels: Literal["answer", "text"] = "answer",
) -> list[Encoded]:
    """Return `input_ids`, `attention_mask` and `labels`, not padded, of questions or conversations.

    With labels="answer" the first answer, or each of the assistant's turns, and its end are targets; other labels are
    -100. With "text" every token is a target. A question longer than `max_length` loses tokens from the end of its
    context, possibly the answer, as is usual for this task; a conversation loses its end. Raises InputError if a
    question does not fit even without context, or no target of a conversation fits.
    """
    encoded = []
    for at, ids, kinds in _tokenised([_text(row, tokenizer) for row in rows], tokenizer, max_length):
        if labels == "answer" and TARGET not in kinds[1:]:
            raise InputError(
                f"MAX_LENGTH={max_length}: {at}: no turn of the assistant begins in its first {max_length} "
                "tokens; expected a larger MAX_LENGTH, or the example left out"
            )
        learnt = [labels == "text" or kind == TARGET for kind in kinds]
        targets = [token if is_target else IGNORE for token, is_target in zip(ids, learnt, strict=True)]
        encoded.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": targets})
    return encoded


def teaches_to_stop(row: Row, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a special token follows what the assistant says last in a conversation."""
    target = next(text for text, kind in reversed(_text(row, tokenizer)[1]) if kind == TARGET)
    said = next(turn["content"] for turn in reversed(row["messages"]) if turn["role"] == "assistant")
    end = tokenizer(target.rpartition(said.strip())[2], add_special_tokens=False)["input_ids"]
    return not tokenizer.added_tokens_decoder.keys().isdisjoint(end)


def encode_prompts(
    examples: Sequence[Row], tokenizer: PreTrainedTokenizerBase, max_length: int, max_new_tokens: int
) -> list[Encoded]:
    """Return `input_ids` and `attention_mask` up to and including ` Answer:`, where a model begins to generate.

    Prompt and answer together have at most `max_length` tokens. Raises InputError if that leaves no room for a prompt.
    """
    if max_new_tokens >= max_length:
        raise InputError(
            f"MAX_NEW_TOKENS={max_new_tokens}: leaves no room for a prompt, expected less than MAX_LENGTH={max_length}"
        )
    prompts = [(example["id"], _prompt(example), False) for example in examples]
    cut = _tokenised(prompts, tokenizer, max_length, max_new_tokens)
    return [{"input_ids": ids, "attention_mask": [1] * len(ids)} for _, ids, _ in cut]


def _text(row: Row, tokenizer: PreTrainedTokenizerBase) -> tuple[str, Parts, bool]:
    """Return a row's id, its text, and whether a chat template has written it, including the opening."""
    if "question" in row:
        answer = f" {row['answers'][0].strip()}{tokenizer.eos_token}"
        return row["id"], [*_prompt(row), (answer, TARGET)], False
    # A chat template is for turns; a prompt and its completion are none.
    pair = all(message["role"] in ("", "assistant") for message in row["messages"])
    if tokenizer.chat_template and not pair:
        return row["id"], [*_by_template(row, tokenizer)], True
    return row["id"], _plain(row, tokenizer.eos_token, pair), False


def _prompt(example: Row) -> Parts:
    # SQuAD has questions and answers with stray spaces; without them every part begins after exactly one space.
    head = f"Question: {example['question'].strip()} Context:"
    return [(head, PROMPT), (f" {example['context'].strip()}", CONTEXT), (" Answer:", PROMPT)]


def _plain(row: Row, end: str, pair: bool) -> Parts:
    """Return a pair as it is, turns with their roles, and `end` after the assistant's."""
    parts = []
    for number, message in enumerate(row["messages"]):
        role, text = message["role"], message["content"]
        if not pair:
            parts.append((f"{chr(10) if number else ''}{role.capitalize()}:", PROMPT))
            text = f" {text.strip()}"
        parts.append((text + end, TARGET) if role == "assistant" else (text, PROMPT))
    return parts


def _by_template(row: Row, tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[str, str]]:
    """Give the text that the template adds for each turn; its text before an assistant's turn is no target."""

    def write(turns: list[Row], **options: bool) -> str:
        try:
            return tokenizer.apply_chat_template(turns, tokenize=False, **options)
        except (TemplateError, TypeError, ValueError) as error:  # None + str: a tokenizer without bos_token
            raise InputError(f"{row['id']}: the tokenizer's chat template refuses it: {error}") from error

    messages, before, written = row["messages"], "", 0
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue  # written with the next answer; after the last answer nothing is learnt
        turns = messages[: number + 1]
        after, asked = write(turns), write(turns[:-1]) if number else ""
        begin = write(turns[:-1], add_generation_prompt=True) if number else ""
        asks = begin != asked and after.startswith(begin)
        if not asks:  # no generation prompt, or another: what another answer begins with, too, is the template's own
            other = message | {"content": "b" if message["content"].strip().startswith("a") else "a"}
            begin = commonprefix([after, write([*turns[:-1], other])])  # noqa: RUF071 (texts)
        if not ((asks or after.startswith(asked)) and begin.startswith(before)):
            raise InputError(
                f"{row['id']}: the tokenizer's chat template writes a turn otherwise once there are later ones; "
                "expected one answer per example, or a tokenizer without a template"
            )
        if lost := [turn["role"] for turn in turns[written:] if turn["content"].strip() not in after]:
            raise InputError(
                f"{row['id']}: the tokenizer's chat template leaves out what the {lost[0]} says; expected a "
                "conversation without it, or another tokenizer"
            )
        yield begin[len(before) :], PROMPT
        yield after[len(begin) :], TARGET
        before, written = after, len(turns)


def _tokenised(
    texts: Sequence[tuple[str, Parts, bool]], tokenizer: PreTrainedTokenizerBase, max_length: int, reserved: int = 0
) -> Iterator[tuple[str, list[int], list[str]]]:
    """Give each text's id, at most `max_length` less `reserved` of its tokens, and each token's kind.

    Excess is cut from the end of the context, or else of the text. A text is tokenised whole, and offsets tell the
    parts: tokenised one by one they have other ids if the tokenizer treats a text's beginning specially (Llama's does).
    """
    probe, bare = (tokenizer("a", add_special_tokens=some)["input_ids"] for some in (True, False))
    opening = probe[: probe.index(bare[0])]  # `<s>` for Llama, nothing for BLOOM and GPT-2
    whole = ["".join(text for text, _ in parts) for _, parts, _ in texts]
    batch = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    for (at, parts, by_template), text, encoding in zip(texts, whole, batch.encodings, strict=True):
        first = [] if by_template else opening
        ends = [*accumulate(len(text) for text, _ in parts)][:-1]
        kinds = [PROMPT] * len(first)
        for start, end in encoding.offsets:
            part = bisect_right(ends, start)
            if part < len(ends) and ends[part] < end:  # a token is of the part that has its first letter
                begins_blank = text[start : ends[part]].isspace()
                if begins_blank and not text[start:end].isspace():
                    part += 1
            kinds.append(parts[part][1])
        ids, context = first + encoding.ids, kinds.count(CONTEXT)
        excess = max(0, len(ids) + reserved - max_length)
        if 0 < context < excess:
            raise InputError(
                f"MAX_LENGTH={max_length}: example {at} has {len(ids) - context} tokens without any context, expected "
                f"room for more than these{f', and for MAX_NEW_TOKENS={reserved}' if reserved else ''}"
            )
        end = len(kinds) - kinds[::-1].index(CONTEXT) if context else len(kinds)
        yield at, ids[: end - excess] + ids[end:], kinds[: end - excess] + kinds[end:]


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
        """Return int64 tensors, [rows, length], for the keys of the rows, of which none is longer than `pad_to`."""
        length = self.pad_to or max(len(row["input_ids"]) for row in rows)
        fill = {"input_ids": self.pad_token_id, "attention_mask": 0, "labels": IGNORE, "document_ids": 0}
        return {key: torch.tensor([self._pad(row[key], length, fill[key]) for row in rows]) for key in rows[0]}

    def _pad(self, values: list[int], length: int, fill: int) -> list[int]:
        padding = [fill] * (length - len(values))
        return values + padding if self.side == "right" else padding + values
