"""Which strategy: the candidates of a question, predicted from the same few simulated micro-batches, best first."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tools.errors import InputError
from tools.plan.candidates import ADAPTERS, EIGHT_BITS, PURE, PURE_8, RUNG, Candidate, Question, candidates, layouts
from tools.plan.gpus import Gpu
from tools.plan.predict import first_choice, predict
from tools.plan.simulate import is_known, prepare
from workshop.settings.model_file import model_file, most_positions

KEPT_LENGTHS = (512,)  # of rows; questions about shipped models are answered without a simulation


def rank(question: Question) -> list[Candidate]:
    """All candidates: the first choice, then by their speed; last those that cannot be simulated, with the reason.

    The first trains all weights with exact moments if such a one fits, or adapters if only they are asked for. Raises
    InputError for what no candidate can do.
    """
    question.check()
    every = _predicted(question)
    if question.largest:
        every = _largest(every)
    failed = [one for one in every if one.error]
    ranked = sorted((one for one in every if not one.error), key=lambda one: one.prediction.sort_key[:2])
    if not ranked:
        raise InputError(failed[0].error)
    full = question.method not in ("lora", "qlora")
    kinds: list[Sequence[str]] = [("",), (EIGHT_BITS,), (PURE, PURE_8)] if full else [ADAPTERS]
    options = [[one for one in ranked if one.method in kind] for kind in kinds]
    fitting = [some for some in options if some and some[0].prediction.verdict == "fits"]
    chosen = (fitting or [some for some in options if some] or [ranked])[0]
    first = chosen[first_choice([one.prediction for one in chosen])]
    return [first, *(one for one in ranked if one is not first), *failed]


def _predicted(question: Question) -> list[Candidate]:
    found = []
    if question.method in ("", "full"):
        found = [*candidates(question), *layouts(question), *candidates(question, (EIGHT_BITS,))]
        extra = [*candidates(question, (RUNG,)), *candidates(question, (PURE, PURE_8))]
        found += [one for one in extra if question.packed or is_known(one.workload.shape)]
    found += candidates(question, [one for one in ADAPTERS if question.method in ("", one.lower())])
    prepare([one.workload.shape for one in found])
    return [_with_prediction(one, question.hardware) for one in found]


def _with_prediction(one: Candidate, gpu: Gpu) -> Candidate:
    try:
        return replace(one, prediction=predict(one.workload, gpu))
    except InputError as error:
        return replace(one, error=str(error))


def shapes_of(model: str, length: int) -> list[dict[str, Any]]:
    """What a usual question about the model has to simulate, on one GPU or several."""
    if (most_positions(model_file(model)) or length) < length:
        return []
    question = Question(model, 1, 1, "h200", length=length)
    return [one.workload.shape for one in [*candidates(question), *candidates(question, ADAPTERS)]]


def packed_shapes_of(model: str) -> list[dict[str, Any]]:
    """The same of rung 12, and of weights in bf16."""
    one, two = (Question(model, gpus, 1, "h200") for gpus in (1, 2))
    found = [*candidates(one, (RUNG,)), *candidates(two, (RUNG,)), *candidates(one, (PURE,))]
    return [candidate.workload.shape for candidate in found]


def _largest(every: list[Candidate]) -> list[Candidate]:
    """Of each strategy, with and without checkpointing, the one with the largest micro-batch that fits, if one does."""
    found: dict[tuple[str, bool], Candidate] = {}
    for one in every:  # from the largest one on
        kind = one.strategy, one.checkpointing
        if kind not in found or (found[kind].verdict != "fits" and one.verdict == "fits"):
            found[kind] = one
    return [*found.values()]


def best_of_each(ranked: list[Candidate]) -> list[Candidate]:
    """The first of each strategy."""
    strategies = [one.strategy for one in ranked]
    return [one for place, one in enumerate(ranked) if one.strategy not in strategies[:place]]
