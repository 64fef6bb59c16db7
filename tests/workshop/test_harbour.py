"""The harbour's held-out questions can be answered only by reading, and its passages are valid SQuAD v1.1."""

import itertools
import subprocess
import sys
from collections import Counter

import pytest

from tests.workshop.data.questions import load_squad
from workshop.sample import harbour


def test_every_answer_is_the_span_it_claims_to_be() -> None:
    for split, sentences in itertools.product(harbour.PASSAGES, (False, True)):
        (article,) = harbour.document(split, sentences)["data"]
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                (answer,) = question["answers"]
                assert paragraph["context"][answer["answer_start"] :].startswith(answer["text"])
                assert sentences == answer["text"].endswith(".")


def test_no_passage_is_in_both_splits() -> None:
    train, validation = (load_squad("harbour", split) for split in ("train", "validation"))
    assert not {example.context for example in train} & {example.context for example in validation}


def test_question_alone_does_not_tell_the_answer() -> None:
    """Whoever has seen all training answers and guesses the commonest one for a question is hardly ever right."""
    answers: dict[str, Counter[str]] = {}
    for example in load_squad("harbour", "train"):
        answers.setdefault(example.question, Counter())[example.answers[0]] += 1
    held_out = load_squad("harbour", "validation")
    right = sum(answers[example.question].most_common(1)[0][0] == example.answers[0] for example in held_out)
    assert 100 * right / len(held_out) == pytest.approx(harbour.GUESSING, abs=3)


def test_every_python_process_draws_the_same_passages() -> None:
    code = "from workshop.sample import harbour; print(harbour.document('validation'))"
    drawn = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert drawn.strip() == str(harbour.document("validation"))
