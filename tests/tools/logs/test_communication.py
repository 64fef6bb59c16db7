"""What ranks sent, counted and by formula."""

from pathlib import Path

import pytest

from tests.launching import REPO
from tools.errors import LogError
from tools.logs.figures import measure, value_of
from tools.logs.run import Run
from tools.logs.runs import find_runs, read_run
from workshop.record import collectives

HEADER = ",".join(collectives.COLUMNS) + "\n"


def test_what_a_pipeline_sends_is_that_of_its_largest_rank_and_leaves_a_node_once(make_run) -> None:
    """Ranks 0 to 3, two to a node: those in the middle send activations on and gradients back."""
    lines = [f"{rank},send,0 1 2 3,{rank + 1},float32,{2**20},2" for rank in range(3)]
    lines += [f"{rank},send,0 1 2 3,{rank - 1},float32,{2**20},2" for rank in range(1, 4)]
    lines += [f"{rank},receive,0 1 2 3,{rank - 1},float32,{2**20},2" for rank in range(1, 4)]
    facts = {"exercise": "dimensions", "experiment": "dimensions", "world_size": 4, "gpus_per_node": 4}
    run = read_run(make_run("r1", facts, **{"collectives.csv": HEADER + "".join(f"3,{line}\n" for line in lines)}))
    assert (value_of(run, "sent_mib"), value_of(run, "sends"), value_of(run, "other_collectives")) == (4, 4, 0)
    assert value_of(run, "sent_between_nodes_mib") == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("step,calls\n", 1),
        (HEADER + "3,0,all-gather,0 1,,float32,8\n", 2),
        (HEADER + "3,0,all-gather,,,float32,8,1\n", 2),
        (HEADER + "3,0,send,0 1,,float32,8,1\n", 2),
    ],
)
def test_damaged_file_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "collectives.csv").write_text(text)
    with pytest.raises(LogError) as error:
        collectives.read(tmp_path / "collectives.csv")
    assert error.value.line == line


HOSTS = ("h200x2-2026-11-24a", "h200x2-2026-11-24b", "h200x2-2026-11-25a")
RUNS = [run for host in HOSTS for run in find_runs(REPO / f"logs/reference/{host}-dimensions")]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.folder.name)
def test_gpus_sent_what_the_formula_says(run: Run) -> None:
    """Of Llama 3.1 8B it said half: the record's settings have the custom model's hidden size, too."""
    sent, predicted = (measure(run, name) for name in ("sent_mib", "predicted_sent_mib"))
    assert sent == pytest.approx(predicted, rel=0.005)
