"""documents/PLANNER.md's worked example, computed again."""

import re

import pytest

from tests.launching import REPO
from tools.plan.constants import load
from tools.plan.gpus import GPUS
from tools.plan.memory import MIB
from tools.plan.predict import predict
from tools.plan.simulate import steps
from tools.plan.submitted_lines import workload_of
from tools.plan.timing import work_of
from tools.submit.submissions import read_argument

TEXT = (REPO / "documents/PLANNER.md").read_text()
LINE = read_argument("--gpus-per-node=2 deepspeed-multi-gpu/deepspeed.slurm ds_configs/zero2.json", {})


def test_worked_example_has_the_planners_terms_and_they_are_the_formulas() -> None:
    workload = workload_of(LINE)
    (prediction,) = predict([workload], GPUS["h200"])
    terms = {name: size for name, size in prediction.terms.items() if size}
    cells = {
        row[0]: float(row[1].replace(",", ""))
        for row in re.findall(r"^\| \**([a-z ]+)\** \|.*\| ([\d,.]+) \|$", TEXT, re.M)
    }
    assert cells.pop("sum") == pytest.approx(sum(terms.values()), abs=0.1)
    assert cells == {name: pytest.approx(size, abs=0.06) for name, size in terms.items()}
    (step,) = steps([workload.shape])
    parameters = step["parameters"]
    assert f"P = {parameters:,}" in TEXT
    assert cells["optimizer"] == pytest.approx(8 * parameters / 2 / MIB, abs=0.06)
    assert f"{4 * 512 * 250_880 * 4 / MIB:,.1f} MiB in fp32" in TEXT


def test_times_of_the_example_are_the_counted_ones() -> None:
    workload = workload_of(LINE)
    (step,) = steps([workload.shape])
    work = work_of(workload, step, GPUS["h200"])
    flops = sum(place["matrix product"]["flops"] for place in step["operations"].values())
    assert f"{flops / 1e12:.1f} TFLOP per micro-batch. Four take {work['half_products'] * 1000:.0f} ms" in TEXT
    assert f"{work['launches']:,} operations" in TEXT
    launch_s = load().constants["step_time_s"]["launches"]
    assert f"in {launch_s * 1e6:.0f} microseconds: {launch_s * work['launches']:.1f} s" in TEXT
    sent_gb = (2 * 4 + 1) / 2 * 2 * step["parameters"] / 1e9
    assert f"{sent_gb:.1f} GB, {work['link'] * 1000:.0f} ms" in TEXT
