"""A grid of real trainings: stopped in the middle and gone on with, and on two processes."""

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import REPO, tiny_profile, wait_until
from tests.trainings_on_ranks import Ranks, training

SMALL = {"MAX_STEPS": "7", "TRAIN_SIZE": "32", "EVAL_SIZE": "4", "MAX_LENGTH": "64", "GENERATE_SIZE": "0", "SAVE": "no"}

pytestmark = pytest.mark.usefixtures("optimizers_compiled")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    tiny = {name: value for name, value in tiny_profile().items() if name not in ("FP16", "BF16", "BATCH_SIZE")}
    return tiny | SMALL | {"OMP_NUM_THREADS": "1", "LOG_DIR": str(tmp_path_factory.mktemp("logs"))}


def submit(environment: dict[str, str]) -> subprocess.Popen[str]:
    axes = ["--stages", "0", "--precisions", "fp32,bf16", "--repeats", "1", "--batch", "4"]
    path = Path(environment["LOG_DIR"]).parent / "grid.txt"
    with path.open("w") as file:
        subprocess.run([sys.executable, "benchmark/grid.py", *axes], cwd=REPO, stdout=file, check=True)
    command = [sys.executable, "-m", "tools", "submit", "--local", "--list", str(path)]
    return subprocess.Popen(command, cwd=REPO, env=environment, stdout=subprocess.PIPE, text=True)


def states(environment: dict[str, str]) -> list[str]:
    records = sorted(Path(environment["LOG_DIR"]).glob("benchmark/*/run.json"))
    return [json.loads(path.read_text())["state"] for path in records]


def steps(run: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((run / "steps.csv").read_text().splitlines()))


def test_interrupted_grid_goes_on_where_it_stopped_and_fills_the_table(environment: dict[str, str]) -> None:
    runner = submit(environment)
    wait_until(lambda: len(states(environment)) == 2)  # the first has completed
    runner.send_signal(signal.SIGINT)
    assert runner.wait(timeout=240) == 130
    assert states(environment) == ["completed", "cancelled"]
    runner = submit(environment)
    assert runner.wait(timeout=240) == 0
    assert "skipped: completed" in runner.stdout.read()
    assert states(environment) == ["completed", "cancelled", "completed"]

    fill = [sys.executable, "-m", "tools", "fill", "benchmark", "--tiny", "--format", "csv"]
    answer = subprocess.run(fill, cwd=REPO, env=environment | {"PYTHONPATH": str(REPO)}, capture_output=True, text=True)
    values = {
        (cell["row"], cell["column"]): cell["value"] or cell["text"]
        for cell in csv.DictReader(answer.stdout.splitlines())
    }
    for precision in ("fp32", "bf16"):
        name = f"zs0_{precision}_gpus1"
        assert float(values[name, "Tokens/s"]) > 0
        assert values[name, "Tokens/s, std"] == "one run only"
        assert values[name, "MFU (%)"] == "no GPU"
    assert values["zs1_bf16_gpus1", "Tokens/s"] == "not measured"


def test_B3_two_ranks_report_twice_the_tokens_of_one(ranks: Ranks, tmp_path: Path) -> None:
    one, two = (tmp_path / str(count) for count in (1, 2))
    for run, count in ((one, 1), (two, 2)):
        ranks.train([training(run, "benchmark", "ds_configs/zero0.json", **SMALL)], ranks=count)
    assert {row["tokens"] for row in steps(one)} == {str(4 * 2 * 64)}  # 4 rows, 2 micro-batches
    assert {row["tokens"] for row in steps(two)} == {str(2 * 4 * 2 * 64)}
    assert {row["real_tokens"] for row in steps(two)} == {str(2 * 4 * 2 * 64)}, "rows of text have no padding"
    assert steps(two)[0]["loss"] != steps(one)[0]["loss"], "the second rank has rows of its own"
