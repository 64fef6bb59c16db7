"""The instructor's answer key: a figure that nobody checks is wrong in front of forty people."""

import json
import math
import re
import statistics
from functools import cache

import pytest

from custom_model.flops import Shapes
from tests.launching import REPO, folder_of
from tools.logs.figures import figure
from tools.logs.mfu import PEAK_TFLOPS
from tools.logs.runs import find_runs
from tools.tables.markdown import grids
from workshop.run_folder.exercises import exercises_with

KEY = REPO / "instructor" / "answers"
CHAPTERS = [folder.name for folder in exercises_with("submit.txt")]
LENGTH = 512


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_settings_in_the_key_are_those_of_the_code(chapter: str) -> None:
    (table,) = (grid for grid in grids((KEY / f"{chapter}.md").read_text()) if grid.name == "From the settings")
    exports = re.findall(r"^export (\w+)=\"\$\{\w+:-([^}]*)\}", (folder_of(chapter) / "env_vars.sh").read_text(), re.M)
    known = dict(exports) | models() | custom_model() | elsewhere()
    assert table.rows == [[label, known[label]] for label, _ in table.rows]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_questions_in_the_key_are_those_of_the_readme(chapter: str) -> None:
    key, readme = (KEY / f"{chapter}.md").read_text(), (folder_of(chapter) / "README.md").read_text()
    for name, heading in (("Prediction", "Predict"), ("Quiz", "Quiz")):
        section = readme.partition(f"\n## {heading}")[2].partition("\n## ")[0].partition("<details>")[0]
        asked = re.findall(r"^\d\. (.+(?:\n   .+)*)", section, re.M)
        quoted = re.findall(rf"^> \*\*{name} \d\.\*\* (.+(?:\n> .+)*)", key, re.M)
        without_links = [re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", question) for question in asked]
        assert [" ".join(question.replace("\n>", "").split()) for question in quoted] == [
            " ".join(question.split()) for question in without_links
        ]
        assert asked or name == "Prediction"


@cache
def models() -> dict[str, str]:
    """Parameters as the runs counted them; arithmetic: 6 per parameter and token, and 12 L h S for attention."""
    counted: dict[str, int] = {}
    for path in REPO.glob("logs/reference/*/*/*/run.json"):
        record = json.loads(path.read_text())
        model = record.get("model") or {}
        adapted = model.get("trained_parameters", model.get("parameters")) != model.get("parameters")
        if "parameters" in model and not adapted:  # a rank of an older run counted its shard
            layers = (record.get("settings") or {}).get("num_layers")
            name = f"{model['name']} of {layers} layers" if layers else model["name"]
            counted[name] = max(model["parameters"], counted.get(name, 0))
    found = {f"{name}: parameters": f"{parameters:,}" for name, parameters in counted.items()}
    for name in ("bloom-560m", "bloom-1b7", "bloom-7b1"):
        shape = json.loads((REPO / f"workshop/shapes/{name}.json").read_text())
        layers, width, rows = shape["n_layer"], shape["hidden_size"], shape["vocab_size"]
        found[f"{name}: rows of the embedding"] = f"{rows:,}"
        flop = 6 * counted[name] + 12 * layers * width * LENGTH
        found[f"{name}: GFLOP per token"] = f"{flop / 1e9:.2f}"
        found[f"{name}: GFLOP per token, the head"] = f"{6 * width * rows / 1e9:.2f}"
    return found


def custom_model() -> dict[str, str]:
    shapes = Shapes(hidden_size=2048, ff_dim=8192, vocab_size=50_000, seq_length=LENGTH)
    large = Shapes(hidden_size=2048, ff_dim=8192, vocab_size=250_880, seq_length=LENGTH)
    rule = json.loads((REPO / "custom_model/weak_scaling_configs/published.json").read_text())["gpus"]
    work = {
        f"TFLOP per GPU and step, published rule, {gpus} GPUs": shapes.flops_per_step(*one.values()) / 1e12
        for gpus, one in rule.items()
    }
    return {
        "GFLOP per token, a block": f"{3 * shapes.block_flops / 1e9:.4f}",
        "GFLOP per token, the head": f"{3 * shapes.head_flops / 1e9:.4f}",
        "GFLOP per token, a head of 250,880 rows": f"{3 * large.head_flops / 1e9:.4f}",
        **{label: f"{tflop:.2f}" for label, tflop in work.items()},
    }


def elsewhere() -> dict[str, str]:
    """The data sheet's peaks, what of Table 1's run is padding, and Young's best interval between checkpoints."""
    peaks = PEAK_TFLOPS["NVIDIA H200"]
    (table_1,) = REPO.glob("logs/reference/h200x1/baseline/*/summary.json")
    speeds = json.loads(table_1.read_text())
    real_share = speeds["train/real_tokens_per_second"] / speeds["train/tokens_per_second"]
    return {
        "H200's Table 1: tokens among the positions (%)": f"{100 * real_share:.1f}",
        **{f"H200: TFLOP/s in {precision}": f"{peaks[precision]:g}" for precision in ("bf16", "fp32")},
        "best interval, save 30 s, failure every 7,200 s (s)": f"{math.sqrt(2 * 30 * 7200):.0f}",
    }


def test_memory_by_pytorch_s_count_in_the_key_is_that_of_the_runs() -> None:
    runs = find_runs(REPO / "logs/reference/h200x2", experiment="deepspeed-multi-gpu")
    runs = [run for run in runs if run.rung is None and run.world_size == 2]
    (table,) = (grid for grid in grids((KEY / "deepspeed-multi-gpu.md").read_text()) if "per GPU" in grid.name)
    for config, *peaks in table.rows:
        same = [run for run in runs if run.record.config == config]
        measured = [[figure(run, f"peak_{kind}_mib") for run in same] for kind in ("allocated", "reserved")]
        assert peaks == [f"{statistics.median(values):,.0f}" for values in measured]
