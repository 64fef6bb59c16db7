"""Columns that are read as questions, conversations or text, and checks of the rows.

Questions are SQuAD v1.1's (Rajpurkar et al. 2016, arXiv:1606.05250), of a hub's table or nested as in its files.

messages                       [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]
conversations                  [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]
prompt, completion             two texts, one after the other as they are; or two lists of messages
instruction, output            or `question`; or `answer`, `response`; an `input` or `context` belongs to the request
system, system_prompt          a column beside `conversations` or a request: the first turn
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from workshop.record.errors import InputError

SAMPLE_DIR = Path(__file__).parents[1] / "sample"
SAMPLE_FILES = {"train": SAMPLE_DIR / "train-v1.1.json", "validation": SAMPLE_DIR / "dev-v1.1.json"}
SUFFIXES = (".json", ".jsonl", ".csv", ".parquet", ".txt")  # of data files

Row = dict[str, Any]

# Columns and the roles of their texts, in the order of search; None: a list of messages.
LAYOUTS: dict[tuple[str, ...], tuple[str | None, ...]] = {
    ("messages",): (None,),
    ("conversations",): (None,),
    ("prompt", "completion"): ("", "assistant"),
    **dict.fromkeys(product(("instruction", "question"), ("output", "response", "answer")), ("user", "assistant")),
}
ROLES = {"human": "user", "prompter": "user"} | dict.fromkeys(("gpt", "bot", "model"), "assistant")  # other names
ROLES |= {role: role for role in ("system", "developer", "user", "assistant")}
# Keys of a row or a turn that would change the lesson and are not read; and values that change nothing, here and in any
# other key of an assistant's turn.
UNREAD = {"tools", "functions", "tool_calls", "tool_call_id", "function_call", "history", "weight", "train", "loss"}
UNREAD |= {"reasoning_content", "reasoning", "thinking", "chat_template_kwargs", "documents", "train_detail"}
UNREAD |= {"image", "images", "video", "videos", "audio", "audios"}
NOTHING = (None, "", [], {}, "[]", "null")
NO_CHANGE = (*NOTHING, 1, "1")  # True is 1
ABOUT_TRAINING = re.compile("train|learn|loss|mask|weight", re.IGNORECASE)


def name_and_slice(dataset: str) -> tuple[str, str]:
    """Return DATASET's name or path, and the split or slice after its colon; "" without one."""
    name, _, spec = (dataset, "", "") if Path(dataset).exists() else dataset.partition(":")
    return name, spec


def is_path(dataset: str) -> bool:
    """Return whether DATASET means files. `rajpurkar/squad` does not, unless that path exists here."""
    name = name_and_slice(dataset)[0]
    if name.endswith(SUFFIXES) or name.startswith(("/", "./", "../", "~")) or "*" in name:
        return True
    return Path(name).is_file() or ("/" in name and Path(name).exists())


def layout_of(row: Row) -> tuple[str, ...] | None:
    """Return the row's columns of a conversation; None if it has none."""
    return next((columns for columns in LAYOUTS if {*columns} <= row.keys()), None)


@dataclass
class Keys:
    """Keys of a file that nothing here reads: those that IGNORE_KEYS names, and what refuses the file."""

    ignored: Iterable[str] = ()
    refused: dict[str, str] = field(default_factory=dict)  # by key: the first place, and what was found

    def refuse(self, at: str, row: Row, keys: Iterable[str]) -> None:
        """Note these keys of a row or a turn."""
        for key in sorted({*keys} - {*self.ignored}):
            self.refused.setdefault(key, f"{at}: {key}: found {repr(row[key])[:40]}, which nothing here reads")

    def check(self) -> None:
        """Raises InputError for the keys of UNREAD and those that may say what is learnt."""
        if self.refused:
            names = ",".join(sorted(self.refused))
            raise InputError(f"{'; '.join(self.refused.values())}; expected none, or IGNORE_KEYS={names}")

    def of_turn(self, at: str, turn: Row) -> set[str]:
        """Refuse keys that change the lesson. Returns keys of an assistant's turn that are taken without effect."""
        unread = turn.keys() - {*_names(turn)}
        given = {key for key in unread if turn[key] not in (NO_CHANGE if key in UNREAD else NOTHING)}
        if ROLES.get(str(turn.get(_names(turn)[0]))) != "assistant":
            self.refuse(at, turn, (key for key in given & UNREAD if not ABOUT_TRAINING.search(key)))
            return set()
        marks = {key for key in given if key in UNREAD or _may_be_a_mark(key, turn[key])}
        self.refuse(at, turn, marks)
        return given - marks - {*self.ignored}


def _may_be_a_mark(key: str, value: Any) -> bool:
    """Return whether a turn's value may say that it is not to be trained on, or in part."""
    if isinstance(value, list | dict) or ABOUT_TRAINING.search(key):
        return True
    if isinstance(value, int | float):  # True and False are numbers, too
        return 0 <= value <= 1
    return str(value).strip().lower() in ("true", "false", "yes", "no", "all", "none")


def conversation_of(at: str, row: Row, keys: Keys) -> Row:
    """Return `at` as `id`, `messages`: role ("" of a prompt) and content of each turn, and `note`: keys without effect.

    Raises InputError.
    """
    if not (columns := layout_of(row)):
        found, expected = ", ".join(map(str, row)) or "none", "; ".join(map(" and ".join, LAYOUTS))
        raise InputError(f"{at}: found the columns {found}; expected {expected}; or text")
    keys.refuse(at, row, (key for key in UNREAD & row.keys() if row[key] not in NO_CHANGE))
    not_to_learn = ("false", "0") if "completion" in columns else ("false",)  # of KTO's pairs, also in csv
    keys.refuse(at, row, ["label"] if str(row.get("label")).lower() in not_to_learn else [])
    messages, unread = [], set()
    for column, role in zip(columns, LAYOUTS[columns], strict=True):
        if role is None or _is_list_of(dict, row[column]):
            for place, turn in items_of(f"{at}: ", row, column):
                if isinstance(turn, dict):
                    unread |= keys.of_turn(place, turn)
                messages.append(_message(place, turn))
            if column == "prompt" and "assistant" in [message["role"] for message in messages]:
                raise InputError(f"{at}: prompt: found a turn of an assistant, which is no target; expected messages")
            continue
        texts = [text_of(at, row, column)]
        if role == "user":
            texts += [text_of(at, row, name) for name in ("input", "context") if str(row.get(name) or "").strip()]
        messages.append({"role": role, "content": "\n\n".join(texts)})
    for name in ("system", "system_prompt"):
        if str(row.get(name) or "").strip():
            if messages[:1] and messages[0]["role"] in ("", "system"):
                raise InputError(f"{at}: {name}: found a text, expected one turn of the system, in messages")
            messages.insert(0, {"role": "system", "content": text_of(at, row, name)})
    if not any(message["role"] == "assistant" for message in messages):
        raise InputError(f"{at}: found no turn of an assistant, expected one to learn from")
    return {"id": at, "messages": messages, "note": ", ".join(sorted(unread))}


def _names(turn: Row) -> tuple[str, str]:
    """Return the keys of a turn's role and text. Of a turn with both pairs, the second is not read."""
    return ("from", "value") if "from" in turn else ("role", "content")


def _message(at: str, message: Any) -> dict[str, str]:
    names = _names(message) if isinstance(message, dict) else ("role", "content")
    role = text_of(at, message, names[0])
    if role not in ROLES:
        raise InputError(f"{at}: {names[0]}: found {role!r}, expected one of {', '.join(ROLES)}")
    return {"role": ROLES[role], "content": text_of(at, message, names[1])}


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, kind) for item in value)


def article_rows(at: str, article: Any) -> Iterator[tuple[str, Row]]:
    """Give each question of a SQuAD file's article with its place, in the columns of a table. Raises InputError."""
    title = text_of(at, article, "title")
    for paragraph_at, paragraph in items_of(f"{at}.", article, "paragraphs"):
        context = text_of(paragraph_at, paragraph, "context")
        for place, asked in items_of(f"{paragraph_at}.", paragraph, "qas"):
            texts = [
                text_of(answer_at, answer, "text") for answer_at, answer in items_of(f"{place}.", asked, "answers")
            ]
            yield place, asked | {"title": title, "context": context, "answers": {"text": texts}}


def question_of(at: str, row: Row, keys: Keys) -> Row:
    """Return id, title, question, context and `answers`: the texts, never empty, the training target first.

    `note` is the place of a target that is not in its context. A table has `answers` as {"text": [...],
    "answer_start": [...]}.
    """
    if _is_list_of(str, row.get("answers")):
        raise InputError(f'{at}: answers: found a list of texts, expected {{"text": a list, "answer_start": a list}}')
    answers = items_of(f"{at}.answers.", row.get("answers"), "text")
    texts = [text_of(place, {"text": text}, "text") for place, text in answers]
    if not texts:  # SQuAD v2.0 marks an unanswerable question so
        raise InputError(f"{at}.answers: found an empty list, expected at least one answer (SQuAD v1.1, not v2.0)")
    read = {key: text_of(at, row, key) for key in ("id", "title", "question", "context")} | {"answers": texts}
    return read | {"note": "" if texts[0].strip() in read["context"] else at}


def document_of(at: str, row: Row, keys: Keys) -> Row:
    return {"text": text_of(at, row, "text")}


def text_of(at: str, row: Any, key: str) -> str:
    """Return the text `row[key]`. Raises InputError, naming the place `at` and the key, if it is blank or no text."""
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, str) or not value.strip():
        found = "nothing" if value is None else "an empty text" if isinstance(value, str) else repr(value)[:40]
        found = "a list of texts" if _is_list_of(str, value) else found
        raise InputError(f"{at}: {key}: found {found}, expected a text")
    if half := re.search("[\ud800-\udfff]", value):  # JSON allows it, UTF-8 does not
        raise InputError(f"{at}: {key}: found {half[0]!r}, half of a character that was cut; expected a text")
    return value


def items_of(prefix: str, row: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Give the elements of the list `row[key]`, each with its place: `prefix`, the key and a number."""
    items = row.get(key) if isinstance(row, dict) else None
    if not isinstance(items, list):
        found = "nothing" if items is None else repr(items)[:40]
        raise InputError(f"{prefix}{key}: found {found}, expected a list")
    return ((f"{prefix}{key}[{index}]", item) for index, item in enumerate(items))
