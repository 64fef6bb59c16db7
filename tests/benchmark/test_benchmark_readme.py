"""What the README says can be run, is named or computed is so."""

import re
import subprocess
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from tests.launching import PATH, REPO
from tools.logs.mfu import PEAK_TFLOPS, flops_per_token
from tools.tables.markdown import grids
from workshop.training.models import shape_config

README = (REPO / "benchmark/README.md").read_text()


def test_laptop_command_of_the_readme_leaves_the_grid_its_precisions_and_sizes(tmp_path: Path) -> None:
    laptop = re.search(r"^    \(source tiny\.env && unset .*\)$", README, re.M)
    script = laptop[0].replace("--local", "--local --dry-run")
    environment = {"PATH": PATH, "LOG_DIR": str(tmp_path)}
    dry = subprocess.run(["bash", "-c", script], cwd=REPO, env=environment, capture_output=True, text=True)
    assert dry.returncode == 0, dry.stderr
    runs = re.findall(r"^would run here .*", dry.stdout, re.M)
    assert len(runs) == len(set(runs)) == 36
    (overrides,) = re.findall(r"^from your shell.*", dry.stdout, re.M)
    assert "MODEL_NAME=tiny" in overrides and not re.search("FP16|BATCH_SIZE|MAX_LENGTH|REPEAT", overrides)
    assert re.findall(r"^warning: .*: (.*)", dry.stdout, re.M) == ["MODEL_NAME=tiny, not gpt2"]


def test_flops_and_peaks_of_the_readme_are_those_that_mfu_is_computed_with() -> None:
    config = shape_config("gpt2")
    with torch.device("meta"):
        parameters = AutoModelForCausalLM.from_config(config).num_parameters()
    flops = flops_per_token(parameters, config.num_hidden_layers, config.hidden_size, 128)
    h200, h100 = (PEAK_TFLOPS[name] for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3"))
    assert h200 == h100
    half, full = h200["bf16"], h200["fp32"]
    (table,) = (grid for grid in grids(README) if grid.name == "Shape or GPU")
    assert table.rows == [
        ["GPT-2", f"{parameters / 1e6:.0f}", f"{flops / 1e9:.3f}", "", ""],
        ["H100 SXM, H200", "", "", f"{half}", f"{full}"],
    ]
