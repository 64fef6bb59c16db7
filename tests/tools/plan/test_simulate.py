"""steps.json holds what the simulation says today."""

import json
from pathlib import Path

import pytest

from tools.plan import simulate
from tools.plan.lines import workload_of
from tools.submit.submissions import every_list, read


def test_kept_steps_are_what_the_simulation_says() -> None:
    names = sorted(simulate._kept())
    chosen = [
        next(name for name in names if all(word in name for word in words))
        for words in (('"gpt2"', '"bf16"'), ('"flex"', '"bloom-560m"', '"compile": true'))
    ]
    for name, now in zip(chosen, simulate.simulate([json.loads(name) for name in chosen]), strict=True):
        kept = simulate._kept()[name]
        parts = [{key: part[key] for key in kept["parts"][0]} for part in now["parts"]]
        assert now | {"parts": parts} == kept, f"{name}: expected `python -m tools plan --fit` after a change"


@pytest.mark.parametrize("path", every_list(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_line_of_a_list_waits_for_a_simulation_before_it_is_queued(path: Path) -> None:
    """On a rented machine the GPU would wait meanwhile."""
    workloads = [workload_of(line) for line in read(path, {})]
    missing = {simulate.key(one.shape) for one in workloads if one} - simulate._kept().keys()
    assert not missing, "expected `python -m tools plan --fit` after a change of the list"
