"""The rows of a data set: which columns are read as questions, conversations or text, and what a row must hold.

messages                       [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]
conversations                  [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]
prompt, completion             two texts, one after the other as they are; or two lists of messages
instruction, output            or `question`; or `answer`, `response`; an `input` or `context` belongs to the request
"""

from collections.abc import Iterator
from typing import Any

from workshop.errors import WorkshopError

Row = dict[str, Any]

# Columns to the roles of their texts, in the order in which they are looked for; None: a list of messages.
LAYOUTS: dict[tuple[str, ...], tuple[str | None, ...]] = {
    ("messages",): (None,),
    ("conversations",): (None,),
    ("prompt", "completion"): ("", "assistant"),
    ("instruction", "output"): ("user", "assistant"),
    ("instruction", "response"): ("user", "assistant"),
    ("instruction", "answer"): ("user", "assistant"),
    ("question", "answer"): ("user", "assistant"),
    ("question", "output"): ("user", "assistant"),
    ("question", "response"): ("user", "assistant"),
}
ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}  # other names of the same


def layout_of(row: Row) -> tuple[str, ...] | None:
    """The columns of a conversation that the row has."""
    return next((columns for columns in LAYOUTS if {*columns} <= row.keys()), None)


def messages_of(at: str, row: Row) -> list[dict[str, str]]:
    """Role ("" of plain text) and content of each turn. Raises WorkshopError naming the place `at` and the column."""
    if not (columns := layout_of(row)):
        found, expected = ", ".join(map(str, row)) or "none", "; ".join(map(" and ".join, LAYOUTS))
        raise WorkshopError(f"{at}: found the columns {found}; expected {expected}; or text")
    messages = []
    for column, role in zip(columns, LAYOUTS[columns], strict=True):
        if role is None or isinstance(row[column], list):
            messages += [_message(place, one) for place, one in items_of(f"{at}: ", row, column)]
            continue
        texts = [text_of(at, row, column)]
        if role == "user":
            texts += [row[name] for name in ("input", "context") if str(row.get(name) or "").strip()][:1]
        messages.append({"role": role, "content": "\n\n".join(texts)})
    if not any(message["role"] == "assistant" for message in messages):
        raise WorkshopError(f"{at}: found no turn of an assistant, expected one to learn from")
    return messages


def _message(at: str, message: Any) -> dict[str, str]:
    names = ("from", "value") if isinstance(message, dict) and "from" in message else ("role", "content")
    role, content = (text_of(at, message, name) for name in names)
    return {"role": ROLES.get(role, role), "content": content}


def article_rows(at: str, article: Any) -> Iterator[tuple[str, Row]]:
    """Each question of one article of a SQuAD file with its place, in the columns of a table. Raises WorkshopError."""
    title = text_of(at, article, "title")
    for paragraph_at, paragraph in items_of(f"{at}.", article, "paragraphs"):
        context = text_of(paragraph_at, paragraph, "context")
        for place, asked in items_of(f"{paragraph_at}.", paragraph, "qas"):
            texts = [text_of(answer_at, one, "text") for answer_at, one in items_of(f"{place}.", asked, "answers")]
            yield place, asked | {"title": title, "context": context, "answers": {"text": texts}}


def question_of(at: str, row: Row) -> Row:
    """An Example's attributes; a table has `answers` as {"text": [...], "answer_start": [...]}."""
    answers = items_of(f"{at}.answers.", row["answers"], "text")
    texts = [text_of(place, {"text": text}, "text") for place, text in answers]
    if not texts:  # SQuAD v2.0 marks an unanswerable question so
        raise WorkshopError(f"{at}.answers: found an empty list, expected at least one answer (SQuAD v1.1, not v2.0)")
    return {key: text_of(at, row, key) for key in ("id", "title", "question", "context")} | {"answers": texts}


def text_of(at: str, row: Any, key: str) -> str:
    """The text `row[key]`, which must not be blank. Raises WorkshopError naming the place `at` and the key."""
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, str) or not value.strip():
        found = "nothing" if value is None else "an empty text" if isinstance(value, str) else repr(value)[:40]
        raise WorkshopError(f"{at}: {key}: found {found}, expected a text")
    return value


def items_of(prefix: str, row: Any, key: str) -> Iterator[tuple[str, Any]]:
    """The elements of the list `row[key]`, each with its place: `prefix`, the key and a number."""
    items = row.get(key) if isinstance(row, dict) else None
    if not isinstance(items, list):
        found = "nothing" if items is None else repr(items)[:40]
        raise WorkshopError(f"{prefix}{key}: found {found}, expected a list")
    return ((f"{prefix}{key}[{index}]", item) for index, item in enumerate(items))
