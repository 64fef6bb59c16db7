"""Our exact match and F1 must be the official ones, or no figure here can be compared with a published one."""

import json
import os
from pathlib import Path

import pytest

from tests.workshop.data.forms import load_squad
from workshop.training.squad_metric import f1, normalise, score

DATA = os.environ.get("SHARDLAB_TEST_DATA")


@pytest.mark.skipif(not DATA, reason="SHARDLAB_TEST_DATA is not set")
@pytest.mark.parametrize(
    ("predictions", "official_em", "official_f1"),
    [
        ("span-classifier-google-nyc", 65.71428571428571, 74.6941571558475),
        ("logistic-regression", 40.14191106906339, 50.98153647324461),  # without an answer to 13 questions
    ],
)
def test_K5_official_scores_of_real_predictions(predictions, official_em, official_f1):
    development = load_squad(f"{DATA}/squad/dev-v1.1.json", "validation")
    answers = json.loads(Path(f"{DATA}/squad/predictions/{predictions}.json").read_text())
    scores = score(development, answers)
    assert scores["exact_match"] == pytest.approx(official_em, abs=1e-9)
    assert scores["f1"] == pytest.approx(official_f1, abs=1e-9)


def test_K5_f1_is_multiset_overlap_and_maximum_over_answers():
    assert f1("New York New York", "New York") == pytest.approx(2 / 3)  # on sets of words it would be 1
    assert f1("very very good", "very good") == pytest.approx(0.8)
    row = {"id": "q", "answers": ["Santa Clara, California", "Levi's Stadium"]}
    assert score([row], {"q": "Levi's Stadium"}) == {"exact_match": 100.0, "f1": 100.0}


def test_normalising_in_another_order_would_find_an_article_in_the_end():
    assert normalise("The-End  of\tan (Era).") == "theend of era"
    assert f1("the", "a") == 0.0  # nothing is left of both
    assert normalise("a.n. other") == "other"  # the full stops go first and leave the article "an"
