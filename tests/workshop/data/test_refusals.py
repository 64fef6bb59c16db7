"""What cannot be trained on is refused with its file and place, what was found, and what is expected."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.workshop.data.forms import CHATML, QUESTIONS
from tests.workshop.environment import ENVIRONMENT
from workshop.data.encoding import load_tokenizer
from workshop.data.hub import Repository
from workshop.data.load import load_data
from workshop.data.sources import load_splits
from workshop.run_folder.errors import InputError
from workshop.settings import Settings

CHAT = {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ann."}]}
LATE = {"messages": [{"role": "user", "content": "Why? " * 50}, *CHAT["messages"][1:]]}
QAS = r"data\[0\]\.paragraphs\[0\]\.qas\[1\]"


def squad(**changes: Any) -> dict[str, Any]:
    """A document of two questions; `changes` replace keys of the second question."""
    first = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    second = {"id": "q2", "question": "What?", "answers": [{"text": "a boat", "answer_start": 9}]} | changes
    return {"data": [{"title": "Ann", "paragraphs": [{"context": "Ann owns a boat.", "qas": [first, second]}]}]}


def content_of(given: Any) -> bytes:
    return (
        given if isinstance(given, bytes) else given.encode() if isinstance(given, str) else json.dumps(given).encode()
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"messages": [}', r"column 15: .*; expected a JSON object on each line"),
        ("[1]", r"found '\[1\]', expected a JSON object on each line"),
        ({"title": "x"}, "found the columns title; expected messages; .* question and answer"),
        ({"messages": "hello"}, "messages: found 'hello', expected a list"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\]: content: found nothing, expected a text"),
        ({"messages": ["hello"]}, r"messages\[0\]: role: found nothing, expected a text"),
        ({"messages": CHAT["messages"][:1]}, "found no turn of an assistant"),
        ({"prompt": "Who?", "completion": " "}, "completion: found an empty text, expected a text"),
        ({"instruction": 3, "output": "x"}, "instruction: found 3, expected a text"),
    ],
)
def test_mistake_in_a_line_is_named_with_the_line(line: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_bytes(content_of(CHAT) + b"\n" + content_of(line))
    with pytest.raises(InputError, match=rf"^{tmp_path}/chat\.jsonl:2: {message}"):
        load_splits(f"{tmp_path}/chat.jsonl")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", squad(answers=[{"text": 7}]), rf"{QAS}\.answers\[0\]: text: found 7, expected a text"),
        ("a.json", squad(answers="a boat"), rf"{QAS}\.answers: found 'a boat', expected a list"),
        ("a.json", squad(answers=[" "]), rf"{QAS}\.answers\[0\]: text: found nothing, expected a text"),
        ("a.json", squad(answers=[{"text": " "}]), rf"{QAS}\.answers\[0\]: text: found an empty text"),
        ("a.json", squad(id=None), f"{QAS}: id: found nothing, expected a text"),
        ("a.json", squad(answers=[], is_impossible=True), rf"{QAS}\.answers: found an empty list, expected at least"),
        ("a.json", squad(id="q1"), "id: found q1 2 times, expected unique ids"),
        ("a.json", '{"data": [\n  {"title": "Ann"]}', "Expecting ',' delimiter: line 2 column 18"),
        ("a.json", "[1, 2]", "data: found nothing, expected a list"),
        ("a.json", {"rows": []}, "data: found nothing, expected a list"),
        ("a.json", {"data": [3]}, r"data\[0\]: title: found nothing, expected a text"),
        ("a.json", b'{"data": "\xe9"}', "can't decode byte 0xe9 in position 10: "),
        ("a.csv", "prompt,completion\nx,y\nx,y,z\n", ".*Expected 2 fields in line 3, saw 3"),
        ("a.csv", "prompt,completion\nx,\n", "row 1: completion: found an empty text, expected a text"),
        ("a.csv", "", "found an empty file"),
        ("a.jsonl", "\n\n", "found no row"),
        ("a.txt", " \n", "text: found an empty text"),
        ("a.txt", b"caf\xe9", "can't decode byte 0xe9 in position 3: "),
        ("a.parquet", b"no table", ""),
        ("a.xml", "<a/>", r"found '\.xml', expected a \.json"),
        ("b/c.xml", "<a/>", "found a folder without data"),
    ],
)  # fmt: skip
def test_mistake_in_a_file_is_named_with_its_place(name: str, content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content_of(content))
    path = path if path.parent == tmp_path else path.parent
    with pytest.raises(InputError, match=rf"^{path}: (.*codec )?{message}"):
        load_splits(str(path))


@pytest.mark.parametrize("name", ["missing.json", "folder/missing.json", "/nowhere/squad", "./squad"])
def test_missing_file_is_not_looked_up_on_the_hub(name: str) -> None:
    with pytest.raises(InputError, match=f"^{Path(name)}: no such file"):
        load_splits(name)


def test_mistake_in_a_data_set_of_the_hub_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repository, "snapshot", lambda self, **_: tmp_path)
    table = pa.Table.from_pylist([QUESTIONS[0] | {"answers": {"text": []}}])
    for name, message in (
        ("plain_text", r"train\[0\]\.answers: found an empty list"),
        ("other", "found 2 config.*text"),
    ):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "train-00000-of-00001.parquet")
        with pytest.raises(InputError, match=rf"somebody/boats: {message}"):
            load_splits("somebody/boats")


STREAM = {"STREAMING": "true", "DATASET": "chat.jsonl", "MAX_STEPS": "2"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"DATASET": "chat.jsonl:train[:x]"}, r"train\[:x\]: .*found the splits train \(3\), expected one of them"),
        ({"DATASET": "one.jsonl"}, "one.jsonl: found 1 example, expected 2 or more"),
        ({"DATASET": "chat.jsonl", "EVAL_DATASET": "dev.json"}, "EVAL_DATASET=dev.json: found rows of another kind"),
        ({"DATASET": "book.txt", "EVAL_DATASET": "chat.jsonl"}, "EVAL_DATASET=chat.jsonl: of plain text the rows"),
        ({"DATASET": "dev.json", "EVAL_DATASET": "dev.json"}, "found 2 of its examples among the training"),
        ({"DATASET": "sample", "TRAIN_SIZE": "1000000"}, "TRAIN_SIZE=1000000: found 192 examples in sample"),
        ({"DATASET": "sample", "EVAL_SIZE": "1000000"}, "EVAL_SIZE=1000000: found 48 examples in sample"),
        ({"DATASET": "sample", "MAX_LENGTH": "16"}, r"MAX_LENGTH=16: example \S+ has \d\d tokens without any context"),
        ({"DATASET": "late.jsonl"}, "MAX_LENGTH=64: late.jsonl:2: no turn of the assistant begins in its first 64"),
        (STREAM | {"MAX_STEPS": "0"}, "STREAMING=true: found MAX_STEPS=0 and PADDING=max_length, expected MAX_STEPS=1"),
        (STREAM | {"PADDING": "dynamic"}, "found MAX_STEPS=2 and PADDING=dynamic, expected .* PADDING=max_length"),
        (STREAM | {"DATASET": "chat.jsonl:train[:2]"}, r"train\[:2\]: a stream has no length to slice; expected chat"),
        (STREAM | {"EVAL_SIZE": "3"}, "chat.jsonl: found 3 examples, all held out; expected more"),
        (STREAM | {"EVAL_DATASET": "sample"}, "EVAL_DATASET=sample: found rows of another kind"),
        (STREAM | {"DATASET": "book.txt"}, "STREAMING=true: plain text is cut into rows before the training"),
    ],
)  # fmt: skip
def test_data_that_does_not_fit_the_settings(
    changes: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in (("chat.jsonl", [CHAT] * 3), ("one.jsonl", [CHAT]), ("late.jsonl", [CHAT, LATE, CHAT])):
        Path(name).write_text("\n".join(map(json.dumps, lines)))
    Path("dev.json").write_text(json.dumps(squad()))
    Path("book.txt").write_text("A text.")
    sizes = {"TRAIN_SIZE": "2", "EVAL_SIZE": "1" if changes.get("EVAL_DATASET") != "dev.json" else "2"}
    with pytest.raises(InputError, match=message):
        environ = ENVIRONMENT | sizes | {"MAX_LENGTH": "64", "GENERATE_SIZE": "0"} | changes
        load_data(Settings.from_environment(environ), load_tokenizer("sample"))


def test_template_that_rewrites_earlier_turns_is_an_error(tmp_path: Path) -> None:
    tokenizer = load_tokenizer("sample")
    tokenizer.chat_template = "{{ messages | length }}" + CHATML
    (tmp_path / "chat.jsonl").write_text("\n".join([json.dumps(CHAT)] * 2))
    settings = Settings.from_environment(ENVIRONMENT | {"DATASET": f"{tmp_path}/chat.jsonl"})
    with pytest.raises(InputError, match=r"chat.jsonl:1: the tokenizer's chat template writes a turn otherwise"):
        load_data(settings, tokenizer)
