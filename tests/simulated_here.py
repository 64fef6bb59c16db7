"""The planner's simulated steps from the tests' own process, which has imported PyTorch already.

That the tools start processes for them, and what they make of the answers: tests/tools/commands/test_plan_command.py.
"""

import json
from contextlib import AbstractContextManager
from unittest.mock import patch

from tools.plan.simulate import Shape, Step
from workshop.run_folder.errors import InputError
from workshop.simulate.step_on_meta import answer


def simulated_here() -> AbstractContextManager:
    return patch("tools.plan.simulate.simulate", lambda shapes: (step(shape) for shape in shapes))


def step(shape: Shape) -> Step | InputError:
    found = json.loads(json.dumps(answer(shape)))
    return InputError(found["error"]) if "error" in found else found
