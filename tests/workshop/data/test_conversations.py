"""Chats and instructions: only what the assistant says is learnt, and every file trains with one variable."""

import json
from pathlib import Path
from typing import Any

from tests.workshop.environment import ENVIRONMENT
from workshop.data.encoding import IGNORE, load_tokenizer
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
