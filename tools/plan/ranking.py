"""Which strategy: the candidates of a question, predicted from the same few simulated micro-batches, best first."""

from collections.abc import Sequence
from dataclasses import replace

from tools.errors import InputError
from tools.plan import constants
from tools.plan.candidates import ADAPTERS, EIGHT_BITS, PURE, PURE_8, RUNGS, Candidate, Question, candidates, layouts
from tools.plan.predict import SAME_HOST_ERROR, Prediction, predict_from
from tools.plan.simulate import Shape, known, steps
from tools.plan.workload import Workload

KEPT_LENGTHS = (512, 2048, 4096)  # of rows; questions about shipped models are answered without a simulation
_SLOW = (*RUNGS, PURE, PURE_8)  # recipes that are left out without --packed unless all their steps are known
_TIE = 0.03  # a difference between predicted times that says nothing


def rank(question: Question) -> list[Candidate]:
    """All candidates: the first choice, then by their speed; last those that cannot be simulated, with the reason.

    The first trains all weights with exact moments if such a one fits, or adapters if only they are asked for. Raises
    InputError for what no candidate can do.
    """
    found, kinds = [], [ADAPTERS]
    if question.method in ("", "full"):
        kinds = [("",), (EIGHT_BITS,), (PURE, PURE_8)]
        found = [*candidates(question), *layouts(question), *candidates(question, (EIGHT_BITS, *_SLOW))]
    found += candidates(question, [one for one in ADAPTERS if question.method in ("", one.lower())])
    slow = {one.recipe for one in found if one.recipe in _SLOW and not known(one.workload.shape)}
    found = [one for one in found if question.packed or one.recipe not in slow]
    fitted, every = constants.load(), []
    for one, step in zip(found, steps([one.workload.shape for one in found]), strict=True):
        try:
            if "error" in step:
                raise InputError(step["error"])
            every.append(replace(one, prediction=predict_from(step, one.workload, question.hardware, fitted)))
        except InputError as error:  # also of a precision that the GPU does not have
            every.append(replace(one, error=str(error)))
    if question.largest:
        every = _largest(every)
    failed = [one for one in every if one.error]
    ranked = sorted((one for one in every if not one.error), key=lambda one: one.prediction.sort_key[:2])
    if not ranked:
        raise InputError(failed[0].error)
    options = [some for kind in kinds if (some := [one for one in ranked if one.recipe in kind])] or [ranked]
    chosen = min(options, key=lambda some: some[0].prediction.sort_key[0])
    first = chosen[first_choice([one.prediction for one in chosen])]
    return [first, *(one for one in ranked if one is not first), *failed]


def _largest(every: list[Candidate]) -> list[Candidate]:
    """Of each strategy, with and without checkpointing, the one with the largest micro-batch that fits, if one does."""
    found: dict[tuple[str, bool], Candidate] = {}
    for one in sorted(every, key=lambda one: one.verdict != "fits"):  # of those that fit, too, the largest one first
        found.setdefault((one.strategy, one.checkpointing), one)
    return [*found.values()]


def merits(workload: Workload) -> tuple[bool, bool, bool]:
    """No offload, plain training on one GPU, a way that a run of ours took: the first one counts most."""
    return not workload.strategy.offloads, workload.plain, workload.way in constants.load().ways


def first_choice(options: Sequence[Prediction]) -> int:
    """The index of the row that an expert takes.

    One with the best merits, unless a row without them is faster beyond both rows' errors. Of these the fastest; of
    rows within 3 % of it with no more accumulation the one with the least memory. Where memory is tight also of slower
    rows that save twice that share.
    """
    fastest = min(options, key=lambda one: one.sort_key)
    kind, least, _ = fastest.sort_key
    most = least if fastest.verdict == "does not fit" else least * (1 + fastest.surely_faster)
    pool = [one for one in options if one.sort_key[:2] <= (kind, most)]
    best = max(merits(one.workload) for one in pool)
    pool = [one for one in pool if merits(one.workload) == best]
    fastest = min(pool, key=lambda one: one.sort_key)

    def saves(one: Prediction) -> bool:
        slower = one.sort_key[1] / fastest.sort_key[1]
        if slower <= 1 + _TIE:
            whole = one.workload.strategy.accumulation <= fastest.workload.strategy.accumulation
            return (whole or fastest.tight) and one.needed_mib <= fastest.needed_mib
        return fastest.tight and slower <= 1 + SAME_HOST_ERROR and one.needed_mib * slower**2 <= fastest.needed_mib

    return options.index(min((one for one in pool if saves(one)), key=lambda one: one.sort_key[2]))


def best_of_each(ranked: list[Candidate]) -> list[Candidate]:
    """The first of each strategy."""
    found: dict[str, Candidate] = {}
    for one in ranked:
        found.setdefault(one.strategy, one)
    return [*found.values()]


def shapes_to_keep(model: str) -> list[Shape]:
    """What usual questions about a shipped model have to simulate, on one GPU or several."""
    found = []
    for length in KEPT_LENGTHS:
        try:
            question = Question(model, 1, 1, "h200", length=length)
        except InputError:  # it has fewer positions
            continue
        found += [*candidates(question), *candidates(question, ADAPTERS)]
    one, two = (Question(model, gpus, 1, "h200") for gpus in (1, 2))
    found += [*candidates(one, (*RUNGS, PURE)), *candidates(two, RUNGS)]
    return [candidate.workload.shape for candidate in found]
