"""steps.json holds what the simulation says today."""

import json
from pathlib import Path

import pytest

from tools.plan import published, simulate
from tools.plan.submitted_lines import workload_of
from tools.submit.submissions import every_list, read
from workshop.simulate import step_on_meta

KEPT = json.loads(simulate.FILE.read_text())


@pytest.mark.parametrize("words", [('"simple-gpt"',), ('"flex"', '"bloom-560m"', '"compile": true')])
def test_kept_steps_are_what_the_simulation_says(words: tuple[str, ...]) -> None:
    shape = json.loads(next(name for name in KEPT if all(word in name for word in words)))
    (kept,) = simulate.steps([shape])
    now = json.loads(json.dumps(step_on_meta.simulate(step_on_meta.StepShape(**shape))))
    parts = [{key: part[key] for key in kept["parts"][0]} for part in now["parts"]]
    assert now | {"parts": parts} == kept, "expected `python -m tools plan fit` after a change"


def test_published_tables_are_compared_without_a_simulation() -> None:
    missing = {simulate.key(shape) for shape in published.shapes()} - KEPT.keys()
    assert not missing, "expected `python -m tools plan fit` after a change"


@pytest.mark.parametrize("path", every_list(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_line_of_a_list_waits_for_a_simulation_before_it_is_queued(path: Path) -> None:
    """On a rented machine the GPU would wait meanwhile."""
    workloads = [workload_of(line) for line in read(path, {})]
    missing = {simulate.key(one.shape) for one in workloads if one} - KEPT.keys()
    assert not missing, "expected `python -m tools plan fit` after a change of the list"
