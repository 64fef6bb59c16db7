"""A card whose key is wrong teaches the wrong choice; a form that is read wrongly costs a group its points."""

from collections.abc import Iterator

import pytest

from choose.cards import CARDS, Card
from tests.simulated_here import simulated_here
from tests.tools.conftest import write_run
from tools.__main__ import main
from tools.commands.choice import FORM, strategies

TABLE_1 = "**Table 1** *Summary*\n\n| Metric | Value |\n|---|---:|\n| Train Loss (mean) | 0.7039 |\n"
DEAR = 1.25  # times the GPU-hours of the cheapest accepted strategy


@pytest.fixture(scope="module", autouse=True)
def without_processes() -> Iterator[None]:
    with simulated_here():
        yield


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.question)
def test_accepted_strategies_fit_and_rejected_ones_do_not_or_are_dear(card: Card) -> None:
    found = strategies(card)
    hours = {name: one.prediction.ranges["gpu_hours"].expected for name, one in found.items() if not one.error}
    assert {name: found[name].prediction.verdict for name in card.accepted} == dict.fromkeys(card.accepted, "fits")
    for name in card.rejected:
        alike = [hours[one] for one in card.accepted if found[one].trains == found[name].trains]
        assert found[name].prediction.verdict == "does not fit" or hours[name] >= DEAR * min(alike), name


def test_form_is_compared_with_the_planner_and_the_runs_it_names(logs, tmp_path, capsys) -> None:
    speed = {"train/steps_per_second": 2.0}
    for name, config, states_mib in (("090000", "ddp", 8533.0), ("090500", "full_shard", 2133.0)):
        record = {"exercise": "fsdp", "config": config, "sharding": {"states_mib": states_mib}}
        write_run(logs, f"20261129-{name}-p1", record, speed)
    ddp = strategies(CARDS[5])["ddp"].prediction
    rows = [
        f"| A | ddp | {ddp.needed_mib / 1024:.1f} | {ddp.least_cpu_gib:.0f} | 1 |",
        "| B | full_shard | ? | ? | ? |",
        "| A | logs/fsdp/20261129-090000-p1 | 8,533 | 8,533 | 900 | 500 |",
        "| B | 20261129-090500-p1 | 8,533 | 8,533 | 520 | 500.0 |",
    ]
    lines, filled = FORM.read_text().splitlines(), iter(rows)
    text = "\n".join(next(filled) if line.startswith(("| A", "| B")) else line for line in lines)
    form = tmp_path / "my_results_choose.md"

    form.write_text(text.replace("Card: ?", "Card: 6"))
    assert main(["check", str(form), "--logs", str(logs)]) == 1
    printed = capsys.readouterr().out
    assert "Table 29: compared with `python -m tools plan model bloom-1b7 --gpus 2" in printed
    assert "Table 29, A, Tokens/s/GPU: found 1: too small" in printed
    assert "Table 30, B, States (MiB): found 8,533: too large" in printed
    assert "10 cells: 5 right, 2 wrong, 3 not filled in" in printed
    assert "prediction A, States: 8,533\n  Table 30, A, States (MiB): 8,533.00: right\n" in printed
    assert "prediction A, Step time: 900\n  Table 30, A, Step time (ms): 500.0: within a factor of two\n" in printed
    assert "prediction B, States: 8,533\n  Table 30, B, States (MiB): first read it\n" in printed
    assert "its run was" not in printed
    form.write_text(text.replace("Card: ?", "Card: 6").replace("| ddp", "| DDP"))
    assert main(["check", str(form), "--logs", str(logs), "--show"]) == 1
    assert "  Table 30, B, States (MiB): 2,133.00: off\n" in capsys.readouterr().out
    form.write_text(text.replace("Card: ?", "Card: 6").replace("20261129-090500-p1", "20261129-090000-p1"))
    main(["check", str(form), "--logs", str(logs)])
    assert "B is full_shard, but its run was ddp\n" in capsys.readouterr().out

    baseline = write_run(logs, "20261129-091000-p1")
    form.write_text(f"{text.replace('Card: ?', 'Card: 6')}\n\n{TABLE_1}")
    assert main(["check", str(form), "--logs", str(logs)]) == 1
    printed = capsys.readouterr().out
    assert f"Table 1: compared with `{baseline}`" in printed and "Table 30: compared with `" in printed
    unrecorded = f"| A | {baseline} | ? | 8,533 | ? | ? |"
    form.write_text(text.replace("Card: ?", "Card: 6").replace(rows[2], unrecorded))
    main(["check", str(form), "--logs", str(logs)])
    assert "Table 30, A, States (MiB): found 8,533: the logs have no such figure" in capsys.readouterr().out

    for changed, error in (("Card: 9", "no card"), ("Card: 1", "my_results_choose.md:9: strategy 'ddp'")):
        form.write_text(text.replace("Card: ?", changed))
        assert main(["check", str(form), "--logs", str(logs)]) == 2
        assert error in capsys.readouterr().err
