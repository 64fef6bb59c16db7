"""Chats, instructions and pairs of prompt and completion: a model is trained on what the assistant says, and only that.

One example per line of a .jsonl file, or per row of a hub's table. Its columns say what it is, in their usual names:

    messages                       [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]
    conversations                  [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]
    prompt, completion             two texts, one after the other as they are; or two lists of messages
    instruction, output            with an `input` or `context`, or none; `response` for `output`
    question, answer
    text                           no conversation: rows of text, see text_rows.py

A tokenizer's own chat template is used where it has one.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from workshop.encoding import IGNORE, Encoded, opening_ids
from workshop.errors import WorkshopError
from workshop.squad import hub_columns, hub_rows, is_path

ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}  # other names of the same
# Columns of a request, of what belongs to it, and of the answer; in the order in which they are looked for.
REQUESTS, ADDITIONS, ANSWERS = ("instruction", "question"), ("input", "context"), ("output", "response", "answer")
COLUMNS = "messages; conversations; prompt and completion; instruction and output; question and answer; or text"


@dataclass(frozen=True)
class Conversation:
    """Attributes: id: file and line; turns: role ("" of plain text) and text of each, an assistant's at least once."""

    id: str
    turns: tuple[tuple[str, str], ...]


def is_text(dataset: str) -> bool:
    """Whether a data set is plain text: a .txt file, or lines with `text`."""
    return dataset.endswith(".txt") or (dataset.endswith(".jsonl") and "text" in next(_lines(dataset))[1])


def is_conversations(dataset: str) -> bool:
    """Whether a data set has conversations: a .jsonl file, or a table of the hub with their columns."""
    if dataset.endswith(".jsonl") or dataset in ("sample", "harbour") or is_path(dataset):
        return dataset.endswith(".jsonl")
    columns = hub_columns(dataset)
    return (
        bool({"messages", "conversations", "completion", "instruction"} & columns) or {"question", "answer"} <= columns
    )


def load_conversations(dataset: str, split: str) -> list[Conversation]:
    """All of a .jsonl file, which has no splits, or of a hub's table. Raises WorkshopError naming file and line."""
    if dataset.endswith(".jsonl"):
        return [_conversation(at, row) for at, row in _lines(dataset)]
    if is_path(dataset):
        raise WorkshopError(f"EVAL_DATASET={dataset}: expected a .jsonl file, because DATASET has conversations")
    rows = enumerate(hub_rows(dataset, split))
    return [_conversation(f"{dataset}: {split}[{index}]", row) for index, row in rows]


def load_documents(dataset: str) -> list[str]:
    """The texts of a .txt file, which is one, or of a .jsonl file's column `text`. Raises WorkshopError as above."""
    if dataset.endswith(".jsonl"):
        return [_text(at, row, "text") for at, row in _lines(dataset)]
    text = _read(dataset)
    if not text.strip():
        raise WorkshopError(f"{dataset}: found an empty file, expected text")
    return [text]


def _read(dataset: str) -> str:
    try:
        return Path(dataset).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise WorkshopError(f"{dataset}: byte {error.start} is not UTF-8, expected text") from error
    except OSError as error:
        raise WorkshopError(f"{dataset}: {error.strerror}, expected a file that can be read") from error


def _lines(dataset: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row with its place, `chat.jsonl:12`; empty lines are left out."""
    empty = True
    for number, line in enumerate(_read(dataset).split("\n"), start=1):  # not splitlines: JSON may hold U+2028
        if not line.strip():
            continue
        empty = False
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise WorkshopError(
                f"{dataset}:{number}: column {error.colno}: {error.msg}; expected a JSON object on each line"
            ) from error
        if not isinstance(row, dict):
            raise WorkshopError(f"{dataset}:{number}: found {line.strip()[:40]!r}, expected a JSON object on each line")
        yield f"{dataset}:{number}", row
    if empty:
        raise WorkshopError(f"{dataset}: found no line, expected a JSON object on each")


def _conversation(at: str, row: dict[str, Any]) -> Conversation:
    turns = _turns(at, row)
    if not any(role == "assistant" for role, _ in turns):
        raise WorkshopError(f"{at}: found no turn of an assistant, expected one to learn from")
    return Conversation(at, tuple(turns))


def _turns(at: str, row: dict[str, Any]) -> list[tuple[str, str]]:
    for column in ("messages", "conversations"):
        if column in row:
            return _messages(f"{at}: {column}", row[column])
    if "prompt" in row and "completion" in row:
        if isinstance(row["prompt"], list):
            return [turn for key in ("prompt", "completion") for turn in _messages(f"{at}: {key}", row[key])]
        return [("", _text(at, row, "prompt")), ("assistant", _text(at, row, "completion"))]
    request = next((key for key in REQUESTS if key in row), None)
    answer = next((key for key in ANSWERS if key in row), None)
    if not request or not answer:
        found = ", ".join(map(str, row)) or "none"
        raise WorkshopError(f"{at}: found the columns {found}; expected {COLUMNS}")
    asked = [_text(at, row, request)]
    asked += [row[key] for key in ADDITIONS if isinstance(row.get(key), str) and row[key].strip()][:1]
    return [("user", "\n\n".join(asked)), ("assistant", _text(at, row, answer))]


def _messages(at: str, messages: Any) -> list[tuple[str, str]]:
    if not isinstance(messages, list):
        raise WorkshopError(f"{at}: found {str(messages)[:40]!r}, expected a list of messages")
    turns = []
    for number, message in enumerate(messages):
        place = f"{at}[{number}]"
        if not isinstance(message, dict):
            raise WorkshopError(f"{place}: found {str(message)[:40]!r}, expected an object with role and content")
        names = ("from", "value") if "from" in message else ("role", "content")
        role, text = (_text(place, message, name) for name in names)
        turns.append((ROLES.get(role, role), text))
    return turns


def _text(at: str, row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        found = "nothing" if value is None else "an empty text" if isinstance(value, str) else repr(value)[:40]
        raise WorkshopError(f"{at}: {key}: found {found}, expected a text")
    return value


def encode_conversations(
    conversations: list[Conversation], tokenizer: PreTrainedTokenizerBase, max_length: int, labels: str
) -> list[dict[str, list[int]]]:
    """`input_ids`, `attention_mask`, `labels` of each, unpadded; one that is too long loses its end.

    With labels="answer" only the assistant's turns and the end of each are targets, with "text" every token. Raises
    WorkshopError for a conversation none of whose targets fits into `max_length` tokens.
    """
    return [_encode(one, tokenizer, max_length, labels) for one in conversations]


def _encode(one: Conversation, tokenizer: PreTrainedTokenizerBase, max_length: int, labels: str) -> Encoded:
    text, spans = "", []
    pair = all(role in ("", "assistant") for role, _ in one.turns)  # a prompt and its completion
    templated = bool(tokenizer.chat_template) and not pair
    for part, target in _by_template(one, tokenizer) if templated else _parts(one, tokenizer.eos_token, pair):
        if target or labels == "text":
            spans.append(range(len(text), len(text) + len(part)))
        text += part
    # Tokenised whole, as a SQuAD example is: joining the parts' tokens gives other ids.
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    opening = [] if templated else opening_ids(tokenizer)  # a template writes its own
    starts = (start for start, _ in found["offset_mapping"])
    ids = [*opening, *found["input_ids"]][:max_length]
    targets = [any(start in span for span in spans) for start in starts]
    kept = zip(ids, [labels == "text"] * len(opening) + targets, strict=False)
    encoded = {"input_ids": ids, "attention_mask": [1] * len(ids)}
    encoded["labels"] = [token if target else IGNORE for token, target in kept]
    if all(label == IGNORE for label in encoded["labels"][1:]):
        raise WorkshopError(
            f"MAX_LENGTH={max_length}: {one.id}: no turn of the assistant begins in its first {max_length} tokens; "
            "expected a larger MAX_LENGTH, or the example left out"
        )
    return encoded


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
