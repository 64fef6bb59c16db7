"""`python -m tools plan` on the exercises' own lines and on the reference runs; the simulation is the real one."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import REPO
from tools.__main__ import main
from tools.commands.plan import with_subcommand
from tools.logs.runs import find_runs
from tools.plan import accuracy
from tools.plan.gpus import GPUS
from tools.plan.submitted_lines import fits
from tools.submit.submissions import read_argument

REFERENCE = REPO / "logs" / "reference"


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


def test_run_that_ran_out_of_memory_is_said_not_to_fit_and_the_completed_one_to_fit() -> None:
    found = accuracy.cases(find_runs(REFERENCE / "h200x2", experiment="deepspeed-zero3-offload"))
    verdicts = {case.ran_out: case.predicted.verdict for case in found}
    assert verdicts == {True: "does not fit", False: "fits"}
    (completed,) = (case for case in found if not case.ran_out)
    assert abs(completed.error_percent("peak_allocated_mib")) < 1


def test_loop_without_a_trainer_takes_the_memory_that_was_measured() -> None:
    cases = accuracy.cases(find_runs(REFERENCE / "h200x4-2026-11-22b", experiment="by-hand"))
    assert len(cases) == 24
    errors = sorted(abs(case.error_percent("peak_allocated_mib")) for case in cases)
    assert errors[-2] < 3 and errors[-1] < 8  # the last: ZeRO-2's textbook reduction, accumulating


def test_file_of_no_predictions_and_predictions_of_no_gpu_run_are_errors(
    make_run, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = REFERENCE / "h100x1-unseen/predictions.json"
    exercise, line = json.loads(kept.read_text())["runs"][0]["run"].split(": ")
    make_run("r", {"exercise": exercise, "submission": line, "device": "cpu"})
    assert main(["plan", str(logs), "--against", str(kept)]) == 2
    assert "none of its 20 lines completed on a GPU in these logs" in capsys.readouterr().err
    file = tmp_path / "predictions.json"
    for predictions in (None, [], [7], [{"run": "no exercise"}], [{"run": "baseline: x"}]):
        file.write_text(json.dumps({"runs": predictions}))
        assert main(["plan", str(logs), "--against", str(file)]) == 2
        assert f"{file}: no predictions; expected what plan --format json prints" in capsys.readouterr().err


def test_check_says_each_familys_error(capsys) -> None:
    assert main(["plan", "--check", str(REFERENCE / "h200x1"), "--plain"]) == 0
    (row,) = (row for row in capsys.readouterr().out.splitlines() if row.startswith("| baseline |"))
    _, _, allocated, *_ = row.split(" | ")
    assert float(allocated.split()[0]) < 0.5


def test_predictions_stand_beside_what_was_measured(capsys) -> None:
    logs = ["--logs", str(REFERENCE / "h200x1")]
    assert main(["fill", "baseline", *logs, "--predicted", "--plain"]) == 0
    assert "| Peak allocated (MiB) | 19,597 (predicted 19,597) |" in capsys.readouterr().out
    names = "peak_allocated_mib,predicted_peak_allocated_mib"
    assert main(["runs", "baseline", *logs, "--figures", names]) == 0
    header, run, *_ = capsys.readouterr().out.splitlines()
    assert "predicted_peak_allocated_mib (MiB)" in header
    assert run.split().count("19,597") == 2
    assert main(["runs", "baseline", *logs, "--figures", "predicted_f1"]) == 2
    assert "--figures predicted_f1: unknown; predictions are predicted_peak_allocated_mib" in capsys.readouterr().err


def test_simulation_shows_a_bar_at_once_and_ends_with_ctrl_c_without_a_traceback() -> None:
    command = [sys.executable, "-m", "tools", "plan", "--model", "bloom-1b1", "--gpu", "h200"]
    with subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as plan:
        shown = b""
        while b"simulating:   0%" not in shown:
            shown += plan.stderr.read(1)
        plan.send_signal(signal.SIGINT)
        out, rest = plan.communicate()
    assert plan.returncode == 130
    assert out == b"" and b"interrupted" in rest and b"Traceback" not in rest


def test_what_the_shell_sets_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """After `source tiny.env` the baseline was planned with 96 MiB, without a word."""
    monkeypatch.setenv("MODEL_NAME", "gpt2")
    monkeypatch.setenv("LR", "1")
    assert main(["plan", "baseline/baseline.slurm", "--gpu", "h200"]) == 0
    said = capsys.readouterr()
    assert "from your shell, for every run: MODEL_NAME=gpt2" in said.err
    assert "your shell sets LR=1 (for the workshop it is LEARNING_RATE): nothing here reads it" in said.err
    assert "steps per epoch" in said.out and "examples/s" in said.out
    monkeypatch.setenv("BATCHSIZE", "1")
    assert main(["plan", "baseline/baseline.slurm", "--gpu", "h200"]) == 2
    assert "BATCHSIZE=1 (did you mean BATCH_SIZE?)" in capsys.readouterr().err


def test_model_that_cannot_be_simulated_spoils_no_other_lines_verdict() -> None:
    """Of the three that are simulated the first and the last are in one process."""
    names = ("gpt2-nowhere", "tiny", "tiny-llama", "bigscience/bloom-560m")
    lines = [f"MODEL_NAME={name} fsdp/multi_gpu.slurm fsdp_configs/ddp.json" for name in names]
    (unknown, _), *others = fits([read_argument(line, {}) for line in lines], GPUS["h200"])
    assert unknown.startswith("not planned: MODEL_NAME='gpt2-nowhere'")
    assert [text.split(":")[0] for text, _ in others] == ["fits"] * 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "expected an exercise, a line in quotes, or --list FILE"),
        (["GPUS_PER_NODE=2 fsdp/multi_gpu.slurm"], "found 'GPUS_PER_NODE', expected the option --gpus-per-node=N"),
        (["MODEL=gpt2 fsdp/multi_gpu.slurm"], "found 'MODEL', expected a setting; did you mean MODEL_NAME?"),
        (["fsdp/multi_gpu.slurm fsdp_configs/full.json"], "found 'fsdp_configs/full.json', expected a config"),
        (["multi_gpu.slurm"], "'multi_gpu.slurm': found 'multi_gpu.slurm', expected a launcher with its exercise"),
        (["# fsdp/multi_gpu.slurm"], "found 'no launcher', expected a launcher with"),
        (["baseline", "--node-memory", "0"], "--node-memory 0: expected more than 0 GiB"),
        (["baseline", "--list", "runs.txt"], "expected an exercise, a line in quotes, or --list FILE, and not both"),
        (["nothere"], "no folder with a submit.txt"),
        (["--gpus-per-node=0 baseline/baseline.slurm"], "--gpus-per-node=0: expected at least 1"),
        (["--nodes=0 baseline/baseline.slurm", "--total"], "--nodes=0: expected at least 1"),
        (["--check", "--output", "plan.txt"], "--output plan.txt: expected a name that ends in .png, .svg or .pdf, in"),
        (["check", "--output", "no/a.png"], "--output no/a.png: expected a name that ends"),
        (
            ["MAX_LENGTH=no fsdp/multi_gpu.slurm"],
            "error: 'MAX_LENGTH=no fsdp/multi_gpu.slurm': MAX_LENGTH='no': expect",
        ),
        (["baseline", "--gpu", "b300"], "--gpu b300: unknown; expected one of h200"),
        (["RUNG=1_bf16 further/speed-ladder/ladder.slurm", "--gpu", "v100-32gb"], "no bf16"),
        (["MODEL_NAME=llama-3.2-1b RUNG=variant_float8 speed-ladder/ladder.slurm", "--gpu", "a100-80gb"], "no fp8"),
        (["RUNG=0_textbook FLOAT8=rowwise further/speed-ladder/ladder.slurm"], "FLOAT8=rowwise: expected BF16=true"),
        (["--check", "logs/nothere"], "no such folder"),
        (["--model", "olmoe-1b-7b"], "--model olmoe-1b-7b: has experts, which are not planned"),
        (["--model", "tiny", "--gpus", "2", "--nodes", "2", "--fabric", "nan"], "--fabric nan: expected more than 0"),
        (["--model", "bloom-9b"], "--model bloom-9b: unknown; expected one of tiny, bloom-1b1"),
        (["--model", "gpt2", "--gpu", "b300"], "--gpu b300: unknown"),
        (["--model", "gpt2", "--gpu", "h200", "--gpus", "16"], "a node of NVIDIA H200 holds 8; expected at most 8"),
        (["--model", "gpt2", "--gpus", "12", "--nodes", "5"], "expected as many GPUs on each node"),
        (["--model", "gpt2", "--gpus", "0"], "--gpus 0: expected at least 1"),
        (["--model", "gpt2", "--tokens", "nan"], "--tokens nan: expected more than 0"),
        (["--model", "tiny", "--fabric", "50"], "--fabric changes nothing on one node; expected --nodes 2 or more"),
    ],
)
def test_bad_input_is_named_with_what_is_expected(words: list[str], says: str, capsys) -> None:
    assert main(["plan", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["baseline", "--total", "--format", "json"], "argument --format: not allowed with argument --total"),
        (["baseline", "--gpus", "4"], "unrecognized arguments: --gpus 4"),
        (["model", "tiny", "--plain"], "unrecognized arguments: --plain"),
        (["--check", "--model", "tiny"], "unrecognized arguments: --check"),
        (["fsdp", "--model", "tiny"], "unrecognized arguments: tiny"),
        (["published", "--gpu", "h200"], "unrecognized arguments: --gpu h200"),
    ],
)
def test_option_of_another_subcommand_is_a_usage_error(words: list[str], says: str, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["plan", *words])
    assert says in capsys.readouterr().err


def test_subcommand_may_be_left_out_or_named_by_its_option() -> None:
    assert with_subcommand(["fsdp", "--total"]) == ["lines", "fsdp", "--total"]
    assert with_subcommand(["--nodes=2 fsdp/multi_node.slurm"]) == ["lines", " --nodes=2 fsdp/multi_node.slurm"]
    for words in (["--model", "gpt2", "--gpus", "2"], ["--model=gpt2", "--gpus", "2"]):
        assert with_subcommand(words) == ["model", "gpt2", "--gpus", "2"]
    assert with_subcommand(["logs", "--against", "kept.json"]) == ["check", "logs", "--against", "kept.json"]
    assert with_subcommand(["check", "logs"]) == ["check", "logs"]
