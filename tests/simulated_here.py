"""The planner's simulated steps from the tests' own process, which has imported PyTorch already.

That the tools start processes for them, and what they make of the answers: tests/tools/commands/test_plan_command.py.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

from tools.plan.simulate import Shape, SimulatedStep
from workshop.simulate.step_on_meta import answer


@contextmanager
def simulated_here() -> Iterator[None]:
    """Nothing is remembered for other processes."""
    here = patch("tools.plan.simulate.simulate", lambda shapes: (step(shape) for shape in shapes))
    with here, patch("tools.plan.simulate._remembered", dict), patch("tools.plan.simulate._remember"):
        yield


def step(shape: Shape) -> SimulatedStep:
    return json.loads(answered(json.dumps(shape, sort_keys=True)))


@cache
def answered(shape: str) -> str:
    """For all tests of this process, which ask the same."""
    return json.dumps(answer(json.loads(shape)))
