"""The formulas of what the other dimensions send, beside what GPUs sent."""

import pytest

from tests.launching import REPO
from tools.logs.figures import measure
from tools.logs.run import Run
from tools.logs.runs import find_runs

HOSTS = ("h200x2-2026-11-24a", "h200x2-2026-11-24b", "h200x2-2026-11-25a")
RUNS = [run for host in HOSTS for run in find_runs(REPO / f"logs/reference/{host}-dimensions")]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.folder.name)
def test_gpus_sent_what_the_formula_says(run: Run) -> None:
    """Of Llama 3.1 8B it said half: the record's settings have the custom model's hidden size, too."""
    sent, predicted = (measure(run, name) for name in ("sent_mib", "predicted_sent_mib"))
    assert sent == pytest.approx(predicted, rel=0.005)
