"""Chats and instructions: only what the assistant says is learnt, and every file trains with one variable."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workshop.data.forms import CHATML
from tests.workshop.environment import ENVIRONMENT
from workshop.data.encoding import IGNORE, encode_all, load_tokenizer
from workshop.data.load import Data, load_data
from workshop.settings import Settings

TOKENIZER = load_tokenizer("sample")
TURNS = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ann."}]


def loaded(path: Path, *chats: Any, **changes: str) -> Data:
    path.write_text("\n".join(json.dumps({"messages": turns}) for turns in chats))
    small_sizes = {"TRAIN_SIZE": "2", "EVAL_SIZE": "1", "MAX_LENGTH": "64", "GENERATE_SIZE": "0"}
    environ = ENVIRONMENT | small_sizes | {"DATASET": str(path)} | changes
    return load_data(Settings.from_environment(environ), TOKENIZER)


def learnt(encoded: dict[str, list[int]]) -> str:
    return TOKENIZER.decode([label for label in encoded["labels"] if label != IGNORE])


def test_only_the_assistant_s_turns_and_their_ends_are_learnt(tmp_path: Path) -> None:
    long = [*TURNS, {"role": "user", "content": "Why? " * 50}, *TURNS[1:]]
    chats = [[{"role": "system", "content": "Be brief."}, *TURNS, *TURNS], long, TURNS]
    data = loaded(tmp_path / "chat.jsonl", *chats)
    text = "System: Be brief.\nUser: Who?\nAssistant: Ann.</s>\nUser: Who?\nAssistant: Ann.</s>"
    assert TOKENIZER.decode(data.train[0]["input_ids"]) == text
    assert learnt(data.train[0]) == " Ann.</s> Ann.</s>"
    assert (len(data.train[1]["input_ids"]), learnt(data.train[1])) == (64, " Ann.</s>"), "the end does not fit"
    assert learnt(loaded(tmp_path / "chat.jsonl", *chats, LABELS="text").train[0]) == text


@pytest.mark.parametrize("marks", [("", ""), ("{% generation %}", "{% endgeneration %}")])
def test_tokenizer_s_own_template_is_used_and_what_it_writes_before_an_answer_is_no_target(marks: Any) -> None:
    tokenizer = load_tokenizer("sample")
    tokenizer.chat_template = CHATML.replace("{{ m.content }}</s>", f"{marks[0]}{{{{ m.content }}}}</s>{marks[1]}")
    (encoded,) = encode_all([{"id": "x", "messages": TURNS * 2}], tokenizer, 64, "answer")
    assert tokenizer.decode(encoded["input_ids"]) == "<|user|>Who?</s><|assistant|>Ann.</s>" * 2
    assert learnt(encoded) == "Ann.</s>" * 2


def test_file_without_questions_trains_with_one_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The defaults ask for answers to score, and for more examples than a small file has."""
    sizes = {"TRAIN_SIZE": "400", "EVAL_SIZE": "100", "GENERATE_SIZE": "4", "GENERATE_BEFORE": "true"}
    for name, rows in (("chat.jsonl", [8, 2]), ("book.txt", [400, 100])):  # text begins again
        data = loaded(tmp_path / name, *[TURNS] * 10, **sizes)
        assert data.examples == data.train_examples == []
        assert [len(data.train), len(data.evaluation)] == rows
        said = capsys.readouterr().out
        assert f"{name} is trained on without SQuAD's questions: no answers are scored" in said
        shares = "has 10 examples, fewer than TRAIN_SIZE + EVAL_SIZE = 500: 8 to train on, 2 held out"
        assert (shares in said) == (name == "chat.jsonl")
