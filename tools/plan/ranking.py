"""Which strategy: the candidates of a question, predicted from the same few simulated micro-batches, best first."""

from dataclasses import replace
from typing import Any

from tools.errors import InputError
from tools.plan import constants
from tools.plan.candidates import ADAPTERS, EIGHT_BITS, Candidate, Question, candidates, layouts
from tools.plan.gpus import Gpu
from tools.plan.predict import first_choice, predict, predict_from
from tools.plan.simulate import prepare, step_of


def rank(question: Question) -> list[Candidate]:
    """All candidates: the first choice, then by their speed; last those that cannot be simulated, with the reason.

    The first trains all weights with exact moments if such a one fits, or adapters if only they are asked for. Raises
    InputError for what no candidate can do.
    """
    question.check()
    every = _largest(question, _predicted(question)) if question.largest else _predicted(question)
    failed = [one for one in every if one.error]
    ranked = sorted((one for one in every if not one.error), key=lambda one: one.prediction.sort_key[:2])
    if not ranked:
        raise InputError(failed[0].error)
    kinds = [("",), (EIGHT_BITS,)] if question.method not in ("lora", "qlora") else [ADAPTERS]
    options = [[one for one in ranked if one.method in kind] for kind in kinds]
    fitting = [some for some in options if some and some[0].prediction.verdict == "fits"]
    chosen = (fitting or [some for some in options if some] or [ranked])[0]
    first = chosen[first_choice([one.prediction for one in chosen])]
    return [first, *(one for one in ranked if one is not first), *failed]


def _predicted(question: Question) -> list[Candidate]:
    found = []
    if question.method in ("", "full"):
        found = [*candidates(question), *layouts(question), *candidates(question, (EIGHT_BITS,))]
    found += candidates(question, [one for one in ADAPTERS if question.method in ("", one.lower())])
    prepare([one.workload.shape for one in found])
    return [_with_prediction(one, question.hardware) for one in found]


def _with_prediction(one: Candidate, gpu: Gpu) -> Candidate:
    try:
        return replace(one, prediction=predict(one.workload, gpu))
    except InputError as error:
        return replace(one, error=str(error))


def shapes_of(model: str) -> list[dict[str, Any]]:
    """What a question about the model has to simulate, on one GPU or several."""
    question = Question(model, 1, 1, "h200")
    return [one.workload.shape for one in [*candidates(question), *candidates(question, ADAPTERS)]]


def _largest(question: Question, every: list[Candidate]) -> list[Candidate]:
    """Of each strategy, with and without checkpointing, the one with the largest micro-batch that fits, if one does."""
    found: dict[tuple[str, bool], Candidate] = {}
    for one in every:
        other = found.get((one.strategy, one.checkpointing))
        if not other or (not one.error and one.prediction.verdict == "fits"):  # from one row on
            found[one.strategy, one.checkpointing] = one
    return [_resized(question, one) for one in found.values()]


def _resized(question: Question, one: Candidate) -> Candidate:
    """With the largest micro-batch below its double that fits; between two simulated sizes sizes are straight lines."""
    rows = one.workload.shape["batch_size"]
    if one.error or one.prediction.verdict != "fits" or one.workload.layout or rows == 1:
        return one
    ends = [step_of(one.workload.shape | {"batch_size": size}) for size in (rows, 2 * rows)]
    for size in range(2 * rows - 1, rows, -1):
        # The same work, with at least --batch rows in a step.
        accumulation, steps = question.split(size)
        strategy, shape = replace(one.workload.strategy, accumulation=accumulation), one.workload.shape
        workload = replace(one.workload, shape=shape | {"batch_size": size}, strategy=strategy, max_steps=steps)
        step = _between(*ends, (size - rows) / rows)
        prediction = predict_from(step, workload, question.hardware, constants.load())
        if prediction.verdict == "fits":
            settings = one.settings | {"batch_size": size, "grad_acc": accumulation, "max_steps": steps}
            return replace(one, settings=settings, workload=workload, prediction=prediction)
    return one


def _between(low: Any, high: Any, share: float) -> Any:
    """Each number of a step that share of the way from the first to the second one."""
    if isinstance(low, dict):
        return {name: _between(value, high[name], share) for name, value in low.items()}
    if isinstance(low, list):
        return [_between(*pair, share) for pair in zip(low, high, strict=True)]
    return low + (high - low) * share if isinstance(low, int | float) and not isinstance(low, bool) else low


def best_of_each(ranked: list[Candidate]) -> list[Candidate]:
    """The first of each strategy."""
    strategies = [one.strategy for one in ranked]
    return [one for place, one in enumerate(ranked) if one.strategy not in strategies[:place]]
