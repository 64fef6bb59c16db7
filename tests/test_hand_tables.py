"""Tables that are written by hand into the results: each figure is computed again from the logs."""

import itertools

import pytest

from tests.filled_tables import filled_table
from tests.launching import REPO
from tests.simulated_here import simulated_here
from tools.__main__ import main
from tools.logs.runs import find_runs
from tools.tables import markdown


def table_headed(title: str, readme: str) -> list[list[str]]:
    """The rows below the header that has this cell."""
    lines = (REPO / readme).read_text().splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("|") and title in markdown.cells(line))
    below = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [markdown.cells(line) for line in below]


def test_answers_before_the_training_are_the_logged_ones() -> None:
    runs = find_runs(REPO / "logs/reference/h100x1-learning-shipped", experiment="baseline")
    before = next(run.summary for run in runs if "exact_match_before" in run.summary)
    shown = table_headed("SmolLM2-135M before the training", "baseline/RESULTS.md")
    exact_match, f1 = before["exact_match_before"], before["f1_before"]
    assert shown == [[f"{before['generated_examples']:,} held-out questions", f"{exact_match:.2f}", f"{f1:.2f}"]]


def test_scaling_in_the_ladder_s_results_is_that_of_each_machine() -> None:
    machines = "h200x2 h200x2-2026-11-22a h200x2-2026-11-25b h200x2-2026-11-22b h200x4-2026-11-22a h200x4-2026-11-22d"
    ladder, logs = REPO / "further/speed-ladder", REPO / "logs/reference"
    tables = [filled_table(ladder, "19" if "x4" in name else "19b", logs / name) for name in machines.split()]
    for method, *shown in table_headed("BLOOM-1b7, rung 11: GPUs, rows each", "further/speed-ladder/RESULTS.md"):
        measured = [table[method]["Of n times one GPU (%)"].replace("not measured", "-") for table in tables]
        assert shown == measured, method


DIMENSIONS, PROFILES = "further/dimensions/RESULTS.md", "further/profiles/README.md"


@pytest.mark.parametrize(
    ("document", "title", "machine"),
    [
        (DIMENSIONS, "tp", "h200x2-2026-11-25b-profiles"),
        (PROFILES, "zero2_offload", "h200x1-2026-11-24d-profiles"),
        (PROFILES, "sockets", "h200x2-2026-11-24a-profiles"),
    ],
)
def test_rows_of_a_profile_in_a_document_are_the_profiles(
    document: str, title: str, machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = sorted((REPO / "logs/reference" / machine).glob("*/*/"), key=lambda run: run.name)
    assert main(["profile", *map(str, runs)]) == 0
    printed = markdown.tables_in(capsys.readouterr().out)[0].rows
    shown = table_headed(title, document)
    assert shown and all(row in printed for row in shown)


def test_errors_of_the_sets_that_were_predicted_before_their_runs(capsys: pytest.CaptureFixture[str]) -> None:
    too_low = {}  # by a set's figures the number of its runs of which nvidia-smi showed 5 % more than predicted
    for file in (REPO / "logs/reference").glob("*/predictions.json"):
        if file.read_text().startswith("["):  # of layouts, of which the table has none
            continue
        with simulated_here():
            assert main(["plan", "check", str(file.parent), "--against", str(file)]) == 0
        *runs, errors, inside = markdown.tables_in(capsys.readouterr().out)[0].rows
        figures = (f"{len(runs)}", errors[1], *errors[3:6], inside[5])
        too_low[figures] = sum(1 / (1 + float(run[3]) / 100) > 1.05 for run in runs if run[3] != "-")
    shown = [tuple(figures) for _, *figures in table_headed("Step inside", "documents/PLANNER.md")]
    assert len(shown) == len(too_low) and set(shown) == too_low.keys()
    said = ["none", "one", "two", "three", "four"]
    parts = (shown[:4], shown[4:6], shown[6:8])
    newest, before, beside = (said[sum(too_low[figures] for figures in sets)] for sets in parts)
    page = " ".join((REPO / "documents/PLANNER.md").read_text().split())
    assert f"in {newest} of the newest 36, in {before} of the 22 before, and in {beside} of the thirteen" in page
