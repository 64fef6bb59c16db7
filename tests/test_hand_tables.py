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


TP = "h200x2-2026-11-25b-profiles/dimensions/20261125- 062321-p3857 062351-p4097 062419-p4300"
OFFLOAD = "h200x1-2026-11-24d-profiles/ speed-ladder/20261124-161127-p4050 speed-ladder/20261124-161147-p4174"
OFFLOAD += " deepspeed-single-gpu/20261124-161300-p4467"
SOCKETS = "h200x2-2026-11-24a-profiles/fsdp/20261124- 192627-p3184 192705-p3449"
DIMENSIONS, PROFILES = "further/dimensions/RESULTS.md", "further/profiles/README.md"


@pytest.mark.parametrize(
    ("document", "title", "runs"),
    [(DIMENSIONS, "tp", TP), (PROFILES, "zero2_offload", OFFLOAD), (PROFILES, "sockets", SOCKETS)],
)
def test_rows_of_a_profile_in_a_document_are_the_profiles(
    document: str, title: str, runs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start, *ends = runs.split()
    assert main(["profile", *(f"{REPO}/logs/reference/{start}{end}" for end in ends)]) == 0
    printed = markdown.tables_in(capsys.readouterr().out)[0].rows
    shown = table_headed(title, document)
    assert shown and all(row in printed for row in shown)


PREDICTED = {
    "2026-11-27, two H200 of four: ZeRO-1 to 3, FSDP2, DDP, LoRA": "h200x2-2026-11-27-unseen",
    "2026-11-27, one H200 of four: baseline, ZeRO, adapters, rung 11": "h200x1-2026-11-27-unseen",
    "2026-11-27, two H200 beside another job: ZeRO-3, FSDP2": "h200x2-heldout",
    "2026-11-27, one H200 beside another job: LoRA, QLoRA, ZeRO-3": "h200x1-heldout",
    "2026-11-26, one H100: the ladder, three times": "h100x1-ladder",
    "2026-11-24, one H200: LoRA and QLoRA": "h200x1-2026-11-24f-lora",
    "2026-11-23, one H200: 7 billion parameters, many rows": "h200x1-2026-11-23c-unseen",
    "2026-11-23, one H200: offload of BLOOM-3b": "h200x1-2026-11-23a-unseen",
    "2026-11-23, one H100, constants from H200s only": "h100x1-unseen",
    "2026-11-22, two H200": "h200x2-2026-11-22b-unseen",
    "2026-11-22, up to two H200: the first ten": "h200x4-2026-11-22e-unseen",
}


def test_errors_of_the_sets_that_were_predicted_before_their_runs(capsys: pytest.CaptureFixture[str]) -> None:
    too_low = []  # runs of a set in which nvidia-smi showed more than 5 % above the prediction
    for name, *shown in table_headed("Step inside", "documents/PLANNER.md"):
        folder = REPO / "logs/reference" / PREDICTED[name]
        with simulated_here():
            assert main(["plan", "check", str(folder), "--against", str(folder / "predictions.json")]) == 0
        *runs, errors, inside = markdown.tables_in(capsys.readouterr().out)[0].rows
        assert shown == [f"{len(runs)}", errors[1], *errors[3:6], inside[5]], name
        too_low.append(sum(1 / (1 + float(run[3]) / 100) > 1.05 for run in runs if run[3] != "-"))
    said = ["two", "three", "four"]
    newest, beside = (said[sum(sets) - 2] for sets in (too_low[:2], too_low[2:4]))
    page = " ".join((REPO / "documents/PLANNER.md").read_text().split())
    assert f"in {newest} of the newest 22, and in {beside} of the thirteen" in page
