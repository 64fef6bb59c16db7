"""What the library would guess, keep too long, or do on every rank."""

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from tests.workshop.environment import ENVIRONMENT
from workshop.data import encoding, sources
from workshop.data.encoding import load_tokenizer
from workshop.data.load import load_data
from workshop.data.sources import load_splits
from workshop.settings.settings import Settings

CSV = 'prompt,completion\nNA,007\n2001-01-01,"1,5\nand more"\n'
JSONL = '{"prompt": "NA", "completion": "007"}\n{"prompt": "2001-01-01", "completion": "1,5\\nand more"}\n'
READ = (("NA", "007"), ("2001-01-01", "1,5\nand more"))


def texts(dataset: str) -> Any:
    return tuple(tuple(turn["content"] for turn in row["messages"]) for row in load_splits(dataset)["train"])


def test_text_stays_text_in_every_form_and_globs_folders_and_slices_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.jsonl").write_text(JSONL)
    assert texts(f"{tmp_path}/a.csv") == texts(f"{tmp_path}/b.jsonl") == READ
    assert texts(f"{tmp_path}/*.*") == READ * 2
    assert texts(f"{tmp_path}:train[1:]+train[:25%]") == (*READ[1:], *READ, *READ[:1])
    (tmp_path / "b.jsonl").write_text(JSONL.replace("NA", "Ann"))
    assert texts(f"{tmp_path}/b.jsonl")[0] == ("Ann", "007"), "not what the cache has of the file as it was"
    (tmp_path / "two").mkdir()
    for name in ("train.csv", "validation.csv"):
        (tmp_path / "two" / name).write_text(CSV)
    assert {split: len(rows) for split, rows in load_splits(f"{tmp_path}/two").items()} == {"train": 2, "validation": 2}


def test_edited_prompt_is_encoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"TRAIN_SIZE": "5", "EVAL_SIZE": "3", "GENERATE_SIZE": "0"}
    settings = Settings.from_environment(ENVIRONMENT | {"DATASET": "sample"} | sizes)
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path)
    first = load_data(settings, load_tokenizer("sample")).train.to_list()

    def again(*_: Any) -> Any:
        raise AssertionError("encoded again")

    with monkeypatch.context() as patched:
        patched.setattr(encoding, "_tokenised", again)
        assert load_data(settings, load_tokenizer("sample")).train.to_list() == first
    code = Path(encoding.__file__).read_text()
    real, prompt = Path.read_text, encoding._prompt
    edited = code.replace("Question: {example", "Asked: {example")
    assert edited != code
    monkeypatch.setattr(Path, "read_text", lambda self, **k: edited if self.name == "encoding.py" else real(self, **k))
    monkeypatch.setattr(encoding, "_prompt", lambda example: [("Asked: who? Context:", "prompt"), *prompt(example)[1:]])
    assert load_data(settings, load_tokenizer("sample")).train.to_list() != first


def test_one_process_encodes_while_the_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"TRAIN_SIZE": "50", "EVAL_SIZE": "3", "GENERATE_SIZE": "0"}
    settings = Settings.from_environment(ENVIRONMENT | {"DATASET": "sample"} | sizes)
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path)
    said, real, both = (tmp_path / "said").open("a", buffering=1), encoding._tokenised, multiprocessing.Barrier(2)

    def slowly(*arguments: Any, **named: Any) -> Any:
        print("encodes", file=said)
        time.sleep(0.2)  # for the other to do it too, if it does not wait
        return real(*arguments, **named)

    def rank() -> None:
        both.wait()
        print(len(load_data(settings, load_tokenizer("sample")).train), file=said)

    monkeypatch.setattr(encoding, "_tokenised", slowly)
    ranks = [multiprocessing.get_context("fork").Process(target=rank) for _ in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    # Training and evaluation, once.
    assert sorted((tmp_path / "said").read_text().split()) == ["50", "50", "encodes", "encodes"]
