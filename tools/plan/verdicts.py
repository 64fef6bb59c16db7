"""Before lines are queued: whether each fits, in one phrase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.errors import InputError
from tools.plan import constants
from tools.plan.gpus import Gpu
from tools.plan.lines import check_node, workload_of
from tools.plan.predict import Prediction, predict_from
from tools.plan.simulate import Step, steps_or_errors
from tools.plan.workload import Workload
from tools.submit.submissions import Submission


@dataclass(frozen=True)
class Verdict:
    """Attributes: text: for a human; fits: False only for a run that cannot."""

    text: str
    fits: bool


def verdicts(lines: Sequence[Submission], gpu: Gpu) -> list[Verdict]:
    """One for each line; of a line that cannot be planned it says why.

    Raises:
        InputError: a line asks for more GPUs than a node has.
    """
    for line in lines:
        check_node(line, gpu)
    workloads = [_workload(line) for line in lines]
    shapes = [one.shape for one in workloads if isinstance(one, Workload)]
    steps = iter(steps_or_errors(shapes))
    return [_verdict(_prediction(one, next(steps), gpu) if isinstance(one, Workload) else one) for one in workloads]


def _workload(line: Submission) -> Workload | InputError | None:
    try:
        return workload_of(line)
    except InputError as error:
        return error


def _prediction(workload: Workload, step: Step | InputError, gpu: Gpu) -> Prediction | InputError:
    if isinstance(step, InputError):
        return step
    try:
        return predict_from(step, workload, gpu, constants.load())
    except InputError as error:  # a precision that the GPU does not have
        return error


def _verdict(found: Prediction | InputError | None) -> Verdict:
    if not isinstance(found, Prediction):
        return Verdict(f"not planned: {found or 'starts no training that is simulated'}", True)
    allocated, minutes = found.ranges["peak_allocated_mib"].expected, found.ranges["total_runtime_s"].expected / 60
    text = f"{found.verdict}: {allocated:,.0f} MiB allocated of {found.gpu.memory_mib:,}, about {minutes:.1f} min"
    return Verdict(text, found.verdict != "does not fit")
