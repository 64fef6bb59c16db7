"""What cannot be trained on is refused with its file and place, what was found, and what is expected."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workshop.environment import ENVIRONMENT
from workshop.data.encoding import load_tokenizer
from workshop.data.load import load_data
from workshop.data.sources import load_splits
from workshop.record.errors import InputError
from workshop.settings.settings import Settings

CHAT = {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ann."}]}
FLAT = {"id": "1", "title": "Ann", "question": "Who?", "context": "Ann.", "answers": {"text": ["Ann"]}}
LATE = {"messages": [{"role": "user", "content": "Why? " * 50}, *CHAT["messages"][1:]]}


def squad(**changes: Any) -> dict[str, Any]:
    """A document of two questions; `changes` replace keys of the second question."""
    first = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    second = {"id": "q2", "question": "What?", "answers": [{"text": "a boat", "answer_start": 9}]} | changes
    return {"data": [{"title": "Ann", "paragraphs": [{"context": "Ann owns a boat.", "qas": [first, second]}]}]}


@pytest.mark.parametrize("name", ["missing.json", "folder/missing.json", "/nowhere/squad", "./squad"])
def test_missing_file_is_not_looked_up_on_the_hub(name: str) -> None:
    with pytest.raises(InputError, match=f"^{Path(name)}: no such file"):
        load_splits(name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"DATASET": "chat.jsonl:train[:x]"}, r"train\[:x\]: .*found the splits train \(3\), expected one of them"),
        ({"DATASET": "chat.jsonl:train[5:9]"}, r"train\[5:9\]: The slice has no rows.; found the splits train \(3\)"),
        ({"DATASET": "mixed.jsonl"}, r"^mixed.jsonl:2\.answers\.text: found nothing, expected a list"),
        ({"DATASET": "no row.json"}, r"^no row.json: rows\[1\]: found 'b', expected a row"),
        ({"DATASET": "twice.csv"}, "^twice.csv: found the column output twice"),
        ({"DATASET": "chat.jsonl", "EVAL_DATASET": "dev.json"}, "EVAL_DATASET=dev.json: found rows of another kind"),
        ({"DATASET": "book.txt", "EVAL_DATASET": "chat.jsonl"}, "EVAL_DATASET=chat.jsonl: of plain text the rows"),
        ({"DATASET": "dev.json", "EVAL_DATASET": "dev.json"}, "found 2 of its examples among the training"),
        ({"DATASET": "sample", "TRAIN_SIZE": "1000000"}, "TRAIN_SIZE=1000000: found 192 examples in sample"),
        ({"DATASET": "sample", "MAX_LENGTH": "16"}, r"MAX_LENGTH=16: example \S+ has \d\d tokens without any context"),
        ({"DATASET": "sample", "GENERATE_SIZE": "1", "MAX_NEW_TOKENS": "60"}, " for MAX_NEW_TOKENS=60"),
        ({"DATASET": "sample", "GENERATE_TRAIN_SIZE": "1", "MAX_NEW_TOKENS": "64"}, "MAX_NEW_TOKENS=64: leaves no"),
        ({"DATASET": "late.jsonl"}, "MAX_LENGTH=64: late.jsonl:2: no turn of the assistant begins in its first 64"),
    ],
)  # fmt: skip
def test_data_that_does_not_fit_the_settings(changes, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in (("chat", [CHAT] * 3), ("one", [CHAT]), ("late", [CHAT, LATE, CHAT]), ("mixed", [FLAT, CHAT])):
        Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    others = {"dev.json": json.dumps(squad()), "no row.json": '[{"text": "a"}, "b"]', "book.txt": "A text."}
    for name, text in (others | {"twice.csv": "question,output,output\na,b,c"}).items():
        Path(name).write_text(text)
    sizes = {"TRAIN_SIZE": "2", "EVAL_SIZE": "1" if changes.get("EVAL_DATASET") != "dev.json" else "2"}
    with pytest.raises(InputError, match=message):
        environ = ENVIRONMENT | sizes | {"MAX_LENGTH": "64", "GENERATE_SIZE": "0"} | changes
        load_data(Settings.from_environment(environ), load_tokenizer("sample"))
