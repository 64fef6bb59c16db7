"""Exact match and F1 of the official SQuAD v1.1 evaluation (Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1).

Older material compares sets of words with the first answer only (erratum K5). Right: words are counted as often as they
occur, and each prediction is scored against the reference answer that it matches best.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from workshop.data.forms import Row

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def score(examples: Sequence[Row], predictions: Mapping[str, str]) -> dict[str, float]:
    """Score predictions by example id.

    Returns `exact_match` and `f1` in percent; `examples` must not be empty. An example without a prediction counts
    zero, predictions for other ids are ignored.
    """
    answered = [(predictions[row["id"]], row["answers"]) for row in examples if row["id"] in predictions]

    def percent(measure: Callable[[str, str], float]) -> float:
        best = (max(measure(text, answer) for answer in answers) for text, answers in answered)
        return 100.0 * sum(best) / len(examples)

    return {"exact_match": percent(exact_match), "f1": percent(f1)}


def normalise(text: str) -> str:
    """Lower case, then no punctuation, then no articles, then single spaces.

    The order matters: "the-end" loses its hyphen first and becomes one word, "theend", whose "the" is no article.
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, answer: str) -> bool:
    """Whether both texts are the same after normalising."""
    return normalise(prediction) == normalise(answer)


def f1(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall of the normalised words, 0 to 1.

    Words are counted as a multiset: "New York New York" shares two words with "New York", not one and not four. Without
    a shared word the value is 0, also where both texts are empty after normalising.
    """
    predicted, expected = normalise(prediction).split(), normalise(answer).split()
    shared = (Counter(predicted) & Counter(expected)).total()
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)
