"""RESULTS.md's table of disk need, computed from the shapes of the models and what the runs of each submit.txt save.

A checkpoint holds, in bytes per parameter, as seen in those of tiny runs: the Trainer's (DDP's too) 4 for the weights
and 8 for AdamW's moments; FSDP's, gathered, the weights twice, once as FSDP names them; DeepSpeed's 12 for fp32 weights
and moments, 2 for 16-bit weights, in stages 1 and 2 twice. Weights that sharding has cut from the tied head have both.
"""

import math
import re
from functools import cache
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from custom_model.model import SimpleGPTConfig, SimpleGPTModel
from custom_model.weak_scaling import read_rule
from tests.launching import REPO
from tools.submit.submissions import Submission, read
from tools.submit.submitted import effective_settings
from workshop.run_folder.exercises import exercises_with
from workshop.run_folder.json_file import read_json
from workshop.training.models import ModelSize, model_size, shape_config

SAVE_NOTHING = ("by-hand",)  # whatever SAVE says
PER_CHECKPOINT = {  # bytes per parameter, bytes per parameter of the head
    "trainer": (12, 0),
    "fsdp": (16, 8),
    "fsdp, sharded": (12, 4),
    "zero 1, 2": (16, 2),
    "zero 3": (14, 0),
}


@cache
def size_of(model: str, layers: int | None) -> ModelSize:
    with torch.device("meta"):
        if layers:
            return model_size(SimpleGPTModel(SimpleGPTConfig(num_layers=layers)))
        return model_size(AutoModelForCausalLM.from_config(shape_config(model)))


def method(run: Submission, gpus: int) -> str:
    configs = [run.exercise / argument for argument in run.arguments if argument.endswith(".json")]
    named = re.search(r'start_run "\$\{(?:1|DS_CONFIG):-([\w/.]+)\}"', (run.exercise / run.launcher).read_text())
    path = configs[0] if configs else run.exercise / named[1] if named else None
    if run.exercise.name == "custom_model":
        return "fsdp" if gpus > 1 else "trainer"
    config = read_json(path) if path else {"fsdp": False}
    if "zero_optimization" in config:
        return "zero 3" if config["zero_optimization"]["stage"] == 3 else "zero 1, 2"
    if not config.get("fsdp", True):
        return "trainer"
    return "fsdp, sharded" if config.get("state_dict_type") == "SHARDED_STATE_DICT" else "fsdp"


def saved_bytes(run: Submission) -> int:
    """Checkpoints and final model; logs are less than a megabyte."""
    settings = effective_settings(run)
    gpus = run.count("nodes") * run.count("gpus-per-node")
    if settings["save"] == "no" or run.exercise.name in SAVE_NOTHING:
        return 0
    layers = int(settings["num_layers"]) if "num_layers" in settings else None
    batch, accumulation = int(settings["batch_size"]), int(settings["grad_acc"])
    if "weak_scaling" in run.launcher:
        sizes = read_rule(run.exercise / run.arguments[0])[gpus]
        layers, batch, accumulation = sizes.num_layers, sizes.batch_size, 1
    size = size_of(settings["model_name"], layers)
    steps_per_epoch = math.ceil(int(settings["train_size"]) / (batch * accumulation * gpus))
    steps = int(settings["max_steps"] or 0) or steps_per_epoch * int(settings["num_epochs"])
    checkpoints = math.ceil(steps / steps_per_epoch) if settings["save"] == "epoch" else 0
    if settings["save"] == "steps":  # one more before the oldest goes
        most = steps // int(settings["save_steps"]) if int(settings["save_steps"]) else steps
        checkpoints = min(most, int(settings["save_limit"]) + 1)
    per_parameter, per_head = PER_CHECKPOINT[method(run, gpus)]
    return checkpoints * (per_parameter * size.parameters + per_head * size.embedding) + 4 * size.parameters


def gigabytes(bytes_: int) -> str:
    return f"{bytes_ / 1e9:,.0f}"


def needed(exercise: Path) -> list[str]:
    """The row of the table."""
    saved = [saved_bytes(run) for run in read(exercise / "submit.txt", {})]
    return [exercise.name, *map(gigabytes, (max(saved), sum(saved)))]


def test_table_of_disk_need_is_computed() -> None:
    rows = {tuple(needed(folder)) for folder in exercises_with("submit.txt")}
    text = (REPO / "documents/RESULTS.md").read_text()
    found = re.findall(r"^\| ([\w-]+) \| ([\d,]+) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert set(found) == {row for row in rows if row[1] != "0"}
