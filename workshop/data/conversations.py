"""Chats, instructions and pairs of prompt and completion, by the usual names of their columns:

messages                       [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]
conversations                  [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]
prompt, completion             two texts, one after the other as they are; or two lists of messages
instruction, output            with an `input` or `context`, or none; `response` for `output`
question, answer
"""

from dataclasses import dataclass
from typing import Any

from workshop.data.names import items_of, text_of
from workshop.errors import WorkshopError

ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}  # other names of the same
# Columns of a request, of what belongs to it, and of the answer; in the order in which they are looked for.
REQUESTS, ADDITIONS, ANSWERS = ("instruction", "question"), ("input", "context"), ("output", "response", "answer")
COLUMNS = "messages; conversations; prompt and completion; instruction and output; question and answer; or text"


@dataclass(frozen=True)
class Conversation:
    """Attributes: id: file and line; turns: role ("" of plain text) and text of each, an assistant's at least once."""

    id: str
    turns: tuple[tuple[str, str], ...]


def conversation(at: str, row: dict[str, Any]) -> Conversation:
    """A row of a table or of a .jsonl file. Raises WorkshopError naming its place `at` and the column."""
    turns = _turns(at, row)
    if not any(role == "assistant" for role, _ in turns):
        raise WorkshopError(f"{at}: found no turn of an assistant, expected one to learn from")
    return Conversation(at, tuple(turns))


def _turns(at: str, row: dict[str, Any]) -> list[tuple[str, str]]:
    for column in ("messages", "conversations"):
        if column in row:
            return _messages(at, row, column)
    if "prompt" in row and "completion" in row:
        if isinstance(row["prompt"], list):
            return [turn for key in ("prompt", "completion") for turn in _messages(at, row, key)]
        return [("", text_of(at, row, "prompt")), ("assistant", text_of(at, row, "completion"))]
    request = next((key for key in REQUESTS if key in row), None)
    answer = next((key for key in ANSWERS if key in row), None)
    if not request or not answer:
        found = ", ".join(map(str, row)) or "none"
        raise WorkshopError(f"{at}: found the columns {found}; expected {COLUMNS}")
    asked = [text_of(at, row, request)]
    asked += [row[key] for key in ADDITIONS if isinstance(row.get(key), str) and row[key].strip()][:1]
    return [("user", "\n\n".join(asked)), ("assistant", text_of(at, row, answer))]


def _messages(at: str, row: dict[str, Any], column: str) -> list[tuple[str, str]]:
    turns = []
    for place, message in items_of(f"{at}: ", row, column):
        names = ("from", "value") if isinstance(message, dict) and "from" in message else ("role", "content")
        role, text = (text_of(place, message, name) for name in names)
        turns.append((ROLES.get(role, role), text))
    return turns
