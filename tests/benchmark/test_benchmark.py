"""A cell of the grid is trained for real and fills its row; the grid is that of submit.txt."""

from pathlib import Path

import pytest

from tests.filled_tables import filled_table
from tests.launching import REPO, run, steps
from tests.trainings_on_ranks import Ranks, counted, training
from workshop.record.run_record import update_run_record

SMALL = {"MAX_STEPS": "7", "TRAIN_SIZE": "32", "BF16": "true"}


@pytest.mark.usefixtures("optimizers_compiled")
def test_B3_two_ranks_report_twice_the_tokens_of_one_and_a_cell_fills_its_row(ranks: Ranks, tmp_path: Path) -> None:
    one, two = (tmp_path / "logs/benchmark" / str(count) for count in (1, 2))
    for folder, count in ((one, 1), (two, 2)):
        ranks.train([training(folder, "benchmark", "ds_configs/zero0.json", **SMALL)], ranks=count)
    assert {row["tokens"] for row in steps(one)} == {str(4 * 2 * 64)}  # 4 rows, 2 micro-batches
    assert {row["tokens"] for row in steps(two)} == {str(2 * 4 * 2 * 64)}
    assert {row["real_tokens"] for row in steps(two)} == {str(2 * 4 * 2 * 64)}, "rows of text have no padding"
    assert steps(two)[0]["loss"] != steps(one)[0]["loss"], "the second rank has rows of its own"
    update_run_record(one, config="zero0")  # as its launcher does
    counted(one, "benchmark")
    rows = filled_table(REPO / "benchmark", "17", tmp_path / "logs", tiny=True)
    trained = rows["zs0_bf16_gpus1_bs32_sl128"]
    assert float(trained["Tokens/s"].replace(",", "")) > 0
    assert (trained["Tokens/s, std"], trained["MFU (%)"]) == ("one run only", "no GPU")
    assert rows["zs1_bf16_gpus1_bs32_sl128"]["Tokens/s"] == "not measured"


def grid(*options: str) -> str:
    return run("python", "benchmark/grid.py", *options).stdout


def test_submit_txt_is_the_grid_that_its_head_says() -> None:
    lines = (REPO / "benchmark/submit.txt").read_text().replace("  # must-do", "").splitlines()
    made = grid() + "".join(grid("--gpus", gpus, "--precisions", "bf16") for gpus in "24")
    assert lines[2:] == made.splitlines()
    assert len(set(lines[2:])) == 4 * 3 * 3 + 2 * 4 * 3
