"""The shipped data sets are valid SQuAD v1.1; the harbour's questions can be answered only by reading."""

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.workshop.data.questions import load_squad
from workshop.data.forms import SAMPLE_FILES
from workshop.sample import harbour


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
