"""Rows of every form of data stay what they were: all losses hang on it. The shipped questions have their answers."""

import itertools
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.workshop.data.forms import CHATML, kept, load_squad, write_forms
from tests.workshop.environment import ENVIRONMENT
from workshop.data.encoding import load_tokenizer
from workshop.data.forms import SAMPLE_FILES
from workshop.data.hub import Repository
from workshop.data.load import load_data, load_text
from workshop.sample import harbour
from workshop.settings.settings import Settings

BEFORE = json.loads((Path(__file__).parent / "rows_before.json").read_text())
SIZES = {"TRAIN_SIZE": "5", "EVAL_SIZE": "2", "MAX_LENGTH": "96", "GENERATE_SIZE": "2", "GENERATE_TRAIN_SIZE": "5"}
DATA = os.environ.get("SHARDLAB_TEST_DATA")
OFFICIAL = {"TRAIN_SIZE": "300", "EVAL_SIZE": "100", "GENERATE_SIZE": "100", "GENERATE_TRAIN_SIZE": "300"}


@pytest.mark.parametrize("form", [form for form in BEFORE if form != "official file"])
def test_form_gives_the_rows_it_gave(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, variant = form.partition(" ")
    monkeypatch.setattr(Repository, "snapshot", lambda self, **_: tmp_path / "hub")
    changes = {"DATASET": write_forms(tmp_path)[name]}
    changes |= {"MAX_LENGTH": "256"} if name in ("sample", "harbour") and variant != "rows" else {}
    changes |= {"LABELS": "text"} if variant == "LABELS=text" else {}
    tokenizer = load_tokenizer("sample")
    tokenizer.chat_template = CHATML if variant == "chat template" else None
    load = load_text if variant == "rows" else load_data
    settings = Settings.from_environment(ENVIRONMENT | SIZES | changes, tmp_path / "none.sh")
    assert kept(load(settings, tokenizer)) == BEFORE[form]


@pytest.mark.skipif(not DATA, reason="SHARDLAB_TEST_DATA is not set")
def test_official_files_are_read_whole_and_give_the_rows_they_gave(tmp_path: Path) -> None:
    files = {"DATASET": f"{DATA}/squad/train-v1.1.first44.json", "EVAL_DATASET": f"{DATA}/squad/dev-v1.1.json"}
    development = load_squad(files["EVAL_DATASET"])
    assert (len(load_squad(files["DATASET"])), len(development)) == (11_877, 10_570)
    assert all(answer in row["context"] for row in development for answer in row["answers"])
    environ = ENVIRONMENT | SIZES | OFFICIAL | files | {"MAX_LENGTH": "256"}
    settings = Settings.from_environment(environ, tmp_path / "none.sh")
    assert kept(load_data(settings, load_tokenizer(f"{DATA}/gpt2-tokenizer"))) == BEFORE["official file"]


@pytest.mark.parametrize("file", SAMPLE_FILES.values(), ids=lambda path: path.stem)
def test_every_answer_is_the_span_it_claims_to_be(file: Path):
    paragraphs = [paragraph for article in json.loads(file.read_text())["data"] for paragraph in article["paragraphs"]]
    for paragraph in paragraphs:
        for question in paragraph["qas"]:
            for answer in question["answers"]:
                assert paragraph["context"][answer["answer_start"] :].startswith(answer["text"])


def test_every_answer_of_the_harbour_is_a_word_or_a_sentence_of_its_passage() -> None:
    for split, sentences in itertools.product(harbour.PASSAGES, (False, True)):
        for row in harbour.rows(split, sentences):
            (answer,) = row["answers"]["text"]
            assert f" {answer}" in f" {row['context']}"
            assert sentences == answer.endswith(".")


def test_question_alone_does_not_tell_the_answer() -> None:
    """Whoever has seen all training answers and guesses the commonest one for a question is hardly ever right."""
    answers: dict[str, Counter[str]] = {}
    for example in load_squad("harbour", "train"):
        answers.setdefault(example["question"], Counter())[example["answers"][0]] += 1
    held_out = load_squad("harbour", "validation")
    right = sum(answers[row["question"]].most_common(1)[0][0] == row["answers"][0] for row in held_out)
    assert 100 * right / len(held_out) == pytest.approx(harbour.GUESSING, abs=3)
