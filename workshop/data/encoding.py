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
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Literal

import torch
from transformers import AutoTokenizer, GPT2TokenizerFast, PreTrainedTokenizerBase

from workshop.data.hub import hub_error
from workshop.data.rows import Row
from workshop.data.squad import SAMPLE_DIR, Example
from workshop.errors import WorkshopError

IGNORE = -100  # torch.nn.CrossEntropyLoss leaves positions with this label out of the loss
PROMPT, CONTEXT, TARGET = "prompt", "context", "target"  # what a part of a text is

Encoded = dict[str, list[int]]
Parts = list[tuple[str, str]]  # texts, each with what it is
Tokens = tuple[list[int], list[str]]  # ids, each with what its part is


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
    """Prompt, first answer and end-of-sequence of every example: `input_ids`, `attention_mask`, `labels`, not padded.

    With labels="answer" the prompt's labels are -100; with "text" every token is a target. An example longer than
    `max_length` loses tokens from the end of its context, possibly those with the answer, as is usual for this task.
    Raises WorkshopError if an example does not fit even without context.
    """
    texts = [
        [*_prompt(example), (f" {example.answers[0].strip()}{tokenizer.eos_token}", TARGET)] for example in examples
    ]
    found = zip(examples, _tokenised(texts, tokenizer), strict=True)
    return [_encoded(*_cut(example.id, tokens, max_length), labels) for example, tokens in found]


def encode_prompts(examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase, max_length: int) -> list[Encoded]:
    """`input_ids` and `attention_mask` up to and including ` Answer:`, from where a model generates."""
    found = zip(examples, _tokenised([*map(_prompt, examples)], tokenizer), strict=True)
    prompts = [_cut(example.id, tokens, max_length)[0] for example, tokens in found]
    return [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in prompts]


def encode_conversations(
    rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, max_length: int, labels: str = "answer"
) -> list[Encoded]:
    """The same of rows with `id` and `messages`; one that is too long loses its end.

    With labels="answer" only the assistant's turns and the end of each are targets: what the tokenizer's chat template
    marks as generated; without marks, all that it adds for such a turn. Raises WorkshopError for a conversation none
    of whose targets fits into `max_length` tokens.
    """
    # A prompt and its completion are no turns, which a template is for.
    pairs = [all(one["role"] in ("", "assistant") for one in row["messages"]) for row in rows]
    templated = [bool(tokenizer.chat_template) and not pair for pair in pairs]
    marked = "endgeneration" in (tokenizer.chat_template or "")
    texts = [
        _plain(row, tokenizer.eos_token, pair) if not own else [] if marked else [*_by_template(row, tokenizer)]
        for row, pair, own in zip(rows, pairs, templated, strict=True)
    ]
    encoded = []
    for row, own, tokens in zip(rows, templated, _tokenised(texts, tokenizer, templated), strict=True):
        ids, kinds = _cut(row["id"], _by_marks(row, tokenizer) if own and marked else tokens, max_length)
        if labels == "answer" and TARGET not in kinds[1:]:
            raise WorkshopError(
                f"MAX_LENGTH={max_length}: {row['id']}: no turn of the assistant begins in its first {max_length} "
                "tokens; expected a larger MAX_LENGTH, or the example left out"
            )
        encoded.append(_encoded(ids, kinds, labels))
    return encoded


def _prompt(example: Example) -> Parts:
    # SQuAD has questions and answers with stray spaces; without them every part begins after exactly one space.
    head = f"Question: {example.question.strip()} Context:"
    return [(head, PROMPT), (f" {example.context.strip()}", CONTEXT), (" Answer:", PROMPT)]


def _plain(row: Row, end: str, pair: bool) -> Parts:
    """A conversation without a template: a pair as it is, turns with their roles; `end` after the assistant's."""
    parts = []
    for number, message in enumerate(row["messages"]):
        role, text = message["role"], message["content"]
        if not pair:
            parts.append((f"{chr(10) if number else ''}{role.capitalize()}:", PROMPT))
            text = f" {text.strip()}"
        parts.append((text + end, TARGET) if role == "assistant" else (text, PROMPT))
    return parts


def _by_template(row: Row, tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[str, str]]:
    """A turn is what the template adds for it; what it writes before an assistant's turn is no target."""
    messages, before = row["messages"], ""
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue  # written with the next answer; after the last one there is nothing to learn
        for some, kind in ((messages[:number], PROMPT), (messages[: number + 1], TARGET)):
            if not some:
                continue
            after = tokenizer.apply_chat_template(some, tokenize=False, add_generation_prompt=kind == PROMPT)
            if not after.startswith(before):
                raise WorkshopError(
                    f"{row['id']}: the tokenizer's chat template writes a turn otherwise once there are later ones; "
                    "expected one answer per example, or a tokenizer without a template"
                )
            yield after[len(before) :], kind
            before = after


def _by_marks(row: Row, tokenizer: PreTrainedTokenizerBase) -> Tokens:
    """What the template marks as generated is a target."""
    found = tokenizer.apply_chat_template(row["messages"], return_dict=True, return_assistant_tokens_mask=True)
    return found["input_ids"], [TARGET if mask else PROMPT for mask in found["assistant_masks"]]


def _tokenised(
    texts: Sequence[Parts], tokenizer: PreTrainedTokenizerBase, templated: Sequence[bool] = ()
) -> Iterator[Tokens]:
    """The tokens of each text, and of which kind of part each is. A template has written its own opening.

    A text is tokenised whole and the parts are found by their place in it: joining parts tokenised one by one gives
    other ids wherever a tokenizer treats the beginning of a text specially (Llama's does).
    """
    probe = tokenizer("a", return_special_tokens_mask=True)  # `<s>` for Llama, nothing for BLOOM and GPT-2
    special = zip(probe["input_ids"], probe["special_tokens_mask"], strict=True)
    opening = [token_id for token_id, is_special in takewhile(lambda pair: pair[1], special)]
    whole = ["".join(text for text, _ in parts) for parts in texts]
    if not whole:
        return
    batch = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    for number, parts in enumerate(texts):
        ends = [*accumulate(len(text) for text, _ in parts)][:-1]
        kinds = [parts[bisect_right(ends, start)][1] for start, _ in batch["offset_mapping"][number]]
        first = [] if templated and templated[number] else opening
        yield first + batch["input_ids"][number], [PROMPT] * len(first) + kinds


def _cut(at: str, tokens: Tokens, max_length: int) -> Tokens:
    """At most `max_length` tokens: what is too much is taken from the end of the context, or else of the text."""
    ids, kinds = tokens
    excess = max(0, len(ids) - max_length)
    end = len(kinds) - kinds[::-1].index(CONTEXT) if CONTEXT in kinds else len(kinds)
    if CONTEXT in kinds and excess > kinds.count(CONTEXT):
        needed = len(ids) - kinds.count(CONTEXT)
        raise WorkshopError(
            f"MAX_LENGTH={max_length}: example {at} has {needed} tokens without any context, expected room for more "
            "than these"
        )
    return ids[: end - excess] + ids[end:], kinds[: end - excess] + kinds[end:]


def _encoded(ids: list[int], kinds: list[str], labels: str) -> Encoded:
    targets = [token if labels == "text" or kind == TARGET else IGNORE for token, kind in zip(ids, kinds, strict=True)]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": targets}


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
