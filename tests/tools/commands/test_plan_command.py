"""`python -m tools plan` on the exercises' own lines and on the reference runs; the simulation is the real one."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import REPO, run
from tests.workshop.environment import ENVIRONMENT
from tools.__main__ import main
from tools.logs.runs import find_runs
from tools.plan import measured
from workshop.record.errors import InputError
from workshop.settings.settings import Settings

REFERENCE = REPO / "logs" / "reference"
MODELS = REPO / "tests/foreign/models"


def test_line_is_planned_from_its_launchers_configuration_and_its_exercises_settings(capsys) -> None:
    line = "--gpus-per-node=2 deepspeed-multi-gpu/deepspeed.slurm"
    assert main(["plan", line, "--format", "json", "--gpu", "a100-80gb"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (planned,) = answer["runs"]
    assert answer["gpu"] == "a100-80gb"
    assert planned["verdict"] == "fits"
    # No configuration is named: the launcher takes ds_config.json, ZeRO-2.
    assert {"weights", "master weights", "activations"} <= planned["terms_mib"].keys()
    peaks = planned["peak_allocated_mib"], planned["peak_reserved_mib"], planned["nvidia_smi_mib"]
    assert all(peak["least"] <= peak["expected"] <= peak["largest"] for peak in peaks)
    assert peaks[0]["expected"] == pytest.approx(sum(planned["terms_mib"].values()), abs=1)
    step_s, tokens, hours = (planned[name] for name in ("step_time_s", "tokens_per_second", "gpu_hours"))
    assert tokens["expected"] == pytest.approx(4 * 4 * 2 * 512 / step_s["expected"], rel=1e-4)
    assert hours["expected"] == pytest.approx(2 * planned["total_runtime_s"]["expected"] / 3600, rel=1e-4)
    assert main(["plan", "dimensions/dimensions.slurm tp.py", "--format", "json"]) == 0
    (left_out,) = json.loads(capsys.readouterr().out)["runs"]
    assert left_out["verdict"] == "not planned" and left_out["gpus"] == 2 and "total_runtime_s" not in left_out
    assert main(["plan", line, "dimensions/dimensions.slurm tp.py", "--gpu", "rtx-4090", "--total"]) == 0
    assert re.search("Not simulated: 1 run, with our times .* Does not fit: 1 run, ", capsys.readouterr().out)


def test_printed_line_for_several_nodes_is_planned_as_in_the_answer_with_the_same_fabric(capsys) -> None:
    """`plan lines` had TCP sockets for every line, and 7.4 times the step's time."""
    fabric = ("--fabric", "50", "--gpu", "h200", "--format", "json")
    assert main(["plan", "model", "bloom-7b1", "--gpus", "2", "--nodes", "2", "--method", "full", *fabric]) == 0
    one = next(one for one in json.loads(capsys.readouterr().out)["candidates"] if one["strategy"] == "zero3")
    assert main(["plan", one["line"], *fabric]) == 0
    (planned,) = json.loads(capsys.readouterr().out)["runs"]
    assert planned["step_time_s"] == one["step_time_s"]


def test_states_that_a_save_holds_are_in_the_cpu_memory_of_the_plan() -> None:
    """Of Llama 3.1 8B on two GPUs 65 GiB; the training alone takes 4."""
    cases = measured.cases(find_runs(REFERENCE / "h100x4-2026-11-28", experiment="resilience"))
    errors = {one.runs[0].record.config: one.error_percent("cpu_mib") for one in cases if "cpu_mib" in one.measured}
    assert errors.keys() == {"full_shard", "full_shard_sharded_state"}
    assert max(map(abs, errors.values())) < 10


def test_simulation_shows_a_bar_at_once_and_ends_with_ctrl_c_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools", "plan", "model", "bloom-1b1", "--gpu", "h200", "--length", "600"]
    nothing_kept = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=REPO, env=nothing_kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as plan:
        shown = b""
        while b"simulating:   0%" not in shown:
            letter = plan.stderr.read(1)
            assert letter, shown
            shown += letter
        plan.send_signal(signal.SIGINT)
        out, rest = plan.communicate()
    assert plan.returncode == 130
    assert out == b"" and b"interrupted" in rest and b"Traceback" not in rest


def test_what_the_shell_sets_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """After `source tiny.env` the baseline was planned with 96 MiB, without a word."""
    monkeypatch.setenv("MODEL_NAME", "gpt2")
    assert main(["plan", "baseline/baseline.slurm", "--gpu", "h200"]) == 0
    said = capsys.readouterr()
    assert "from your shell, for every run: MODEL_NAME=gpt2" in said.err
    assert "steps per epoch" in said.out and "examples/s" in said.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "expected an exercise, a line in quotes, or --list FILE"),
        (["GPUS_PER_NODE=2 fsdp/multi_gpu.slurm"], "found 'GPUS_PER_NODE', expected the option --gpus-per-node=N"),
        (["multi_gpu.slurm"], "'multi_gpu.slurm': found 'multi_gpu.slurm', expected a launcher with its exercise"),
        (["baseline", "--node-memory", "0"], "--node-memory 0: expected more than 0 GiB"),
        (["nothere"], "no folder with a submit.txt"),
        (["--nodes=0 baseline/baseline.slurm", "--total"], "--nodes=0: expected a whole number of at least 1"),
        (["fsdp/multi_gpu.slurm fsdp_configs/ddp.json --nodes=2"], "multi_gpu.slurm reads no argument 2"),
        (["RUNG=0_textbook FLOAT8=rowwise further/speed-ladder/ladder.slurm"], "float8 is bf16; expected BF16=true"),
        (["BF16=true baseline/baseline.slurm"], "FP16=true and BF16=true: expected at most one of them to be true"),
        (["BF16=false lora/lora.slurm ds_configs/zero2.json"], "zero2.json is DeepSpeed's, which would change"),
        (["model", "gpt2", "--length", "2048"], "--length 2048: gpt2 has 1024 positions; expected at most that"),
        ([f"MODEL_NAME={MODELS}/opt MODEL_INIT=random MAX_LENGTH=513 baseline/baseline.slurm"], "MAX_LENGTH=513: "),
        (["model", "bloom-9b"], "--model bloom-9b: unknown; the nearest are bloom-3b, bloom-7b1, "),
        (["model", "Qwen/Qwen2.5-7B", "--gpu", "h200", "--gpus", "16"], "H200 holds 8; expected at most 8"),
        (["model", "gpt2", "--gpus", "12", "--nodes", "5"], "expected as many GPUs on each node"),
        (["baseline", "--fabric", "50"], "--fabric changes nothing on one node"),
        (["--nodes=2 fsdp/multi_node.slurm", "--fabric", "0"], "--fabric 0: expected more than 0 GB/s"),
        (["model", "tiny", "--fabric", "50"], "--fabric changes nothing on one node; expected --nodes 2 or more"),
    ],
)
def test_bad_input_is_named_with_what_is_expected(words: list[str], says: str, capsys) -> None:
    assert main(["plan", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["t5", "bert"])
def test_what_no_row_can_run_is_said_without_a_simulation(tmp_path: Path, capsys, monkeypatch, kind: str) -> None:
    """T5 ended after 67 s with 200 names of classes, BERT was planned."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, "d_model": 512}))
    monkeypatch.setattr("tools.plan.simulate.simulate", lambda shapes: pytest.fail("simulates"))
    assert main(["plan", "model", str(tmp_path / "config.json")]) == 2
    assert f"{kind} is no decoder of Transformers; expected a causal language model" in capsys.readouterr().err
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: pytest.fail("tries for half a minute"))
    assert main(["plan", "model", "nobody/nothing"]) == 2


def test_checkpoint_of_integers_is_refused_as_its_training_is(tmp_path: Path, capsys) -> None:
    """GPTQ's 4-bit weights were planned as fp32 ones, and to fit; the job then asked for optimum."""
    model = json.loads((REPO / "workshop/shapes/tiny-llama.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(model | {"quantization_config": {"quant_method": "gptq"}}))
    own = ENVIRONMENT | {"MODEL_NAME": str(tmp_path), "MODEL_INIT": "random"}
    Settings.from_environment(own, tmp_path / "none")
    (tmp_path / "model.safetensors").touch()
    assert main(["plan", "model", str(tmp_path)]) == 2
    assert f"{tmp_path}: found weights quantized by gptq; expected floating point" in capsys.readouterr().err
    with pytest.raises(InputError, match="found weights quantized by gptq"):
        Settings.from_environment(own | {"MODEL_INIT": "pretrained"}, tmp_path / "none")


def test_question_is_remembered_and_another_kind_of_gpu_simulates_nothing(tmp_path, monkeypatch) -> None:
    """The same question took 44 s again. The second process has no PyTorch to simulate with."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    model = tmp_path / "own.json"
    model.write_text((REPO / "workshop/shapes/tiny-llama.json").read_text())
    command = ("python", "-m", "tools", "plan", "model", model, "--batch", "1", "--length", "64")
    asked = run(*command, "--gpu", "h200")
    first = asked.stdout
    assert "First: one GPU" in first and "the second time is instant" in asked.stderr, "nothing said why to wait"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run(*command, "--gpu", "h200").stdout == first
    assert "First: one GPU" in run(*command, "--gpu", "V100").stdout
    assert "no torch here" in run(*command[:-1], "63", code=2).stderr
