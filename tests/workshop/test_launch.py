"""The launcher without SLURM: a run completes, a mistake is named, and a missing logger is only a warning."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import PATH, REPO, tiny_profile
from workshop.sample import harbour

TINY = f"source {REPO}/tiny.env && exec bash {REPO}/baseline/baseline.slurm"


def launch(log_dir: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"LOG_DIR": str(log_dir), "PATH": PATH}
    # `env` after tiny.env: what a participant sets last wins.
    command = TINY.replace("exec bash", "exec env " + " ".join(f"{k}={v}" for k, v in changes.items()) + " bash")
    return subprocess.run(["bash", "-c", command], env=environ, capture_output=True, text=True, timeout=300)


def only_run(log_dir: Path) -> Path:
    (run,) = (log_dir / "baseline").iterdir()
    return run


def test_quickstart_learns_to_answer_questions_it_has_not_seen_and_fills_the_tables(tmp_path: Path) -> None:
    environ = os.environ | {"LOG_DIR": str(tmp_path), "PATH": PATH}
    command = f"source {REPO}/quickstart.env && exec bash {REPO}/baseline/baseline.slurm"
    job = subprocess.run(["bash", "-c", command], env=environ, capture_output=True, text=True, timeout=600)
    assert job.returncode == 0, job.stdout[-4000:] + job.stderr[-2000:]
    run = only_run(tmp_path)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["exact_match_before"] < 1
    assert summary["f1_before"] < 1
    # Six times what guessing a word of the right kind gives.
    assert summary["exact_match"] > 6 * harbour.GUESSING
    assert summary["f1"] > 6 * harbour.GUESSING
    # Not known by heart: then training questions would be answered and these not.
    assert summary["exact_match"] > summary["train_exact_match"] - 15
    assert re.search(
        r"^held-out questions \(200\): exact match .*; before the training exact match 0\.", job.stdout, re.M
    )
    losses = summary["eval_loss"]
    assert losses[0] > losses[1] > losses[2]
    saved = {path.name for path in (run / "bloom-qa-finetuned").iterdir()}
    assert {"model.safetensors", "tokenizer.json", "checkpoint-200", "checkpoint-600"} <= saved
    fill = [sys.executable, "-m", "tools", "fill", "baseline", "--logs", str(tmp_path)]
    tables = subprocess.run(fill, cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert f"| Eval Loss (Epoch 3) | {losses[2]:.4f} |" in tables
    assert f"| Exact Match (%) | {summary['exact_match']:.2f} |" in tables
    assert "| Peak CPU Memory, PSS (MiB) | " in tables
    assert "not measured" not in tables


def test_K1_bad_value_ends_the_run_as_failed_and_names_the_variable(tmp_path: Path) -> None:
    job = launch(tmp_path, TRAIN_SIZE="many")
    assert job.returncode == 1
    record = json.loads((only_run(tmp_path) / "run.json").read_text())
    assert record["state"] == "failed"
    assert "TRAIN_SIZE='many'" in record["reason"]
    assert "expected a whole number" in record["reason"]


def test_more_examples_than_there_are_says_how_many(tmp_path: Path) -> None:
    job = launch(tmp_path, TRAIN_SIZE="100000")
    reason = json.loads((only_run(tmp_path) / "run.json").read_text())["reason"]
    assert job.returncode == 1
    assert "TRAIN_SIZE" in reason
    assert "192" in reason


def test_log_dir_that_cannot_be_written_is_named() -> None:
    job = launch(Path("/proc/nowhere"))
    assert job.returncode == 1
    assert "error: LOG_DIR='/proc/nowhere': cannot write there" in job.stderr


def test_more_than_one_gpu_for_the_baseline_is_refused(tmp_path: Path) -> None:
    job = launch(tmp_path, GPUS_PER_NODE="2")
    assert job.returncode == 1
    assert "trains on one GPU, but this job has 1 node(s) x 2 GPU(s)" in job.stderr


@pytest.mark.parametrize("launcher", ["fsdp/multi_gpu.slurm", "custom_model/multi_gpu.slurm"])
def test_launcher_of_one_node_refuses_two_and_names_the_one_for_several(tmp_path: Path, launcher: str) -> None:
    environ = tiny_profile() | {"LOG_DIR": str(tmp_path), "EMULATED_NODES": "2"}
    job = subprocess.run(["bash", launcher], cwd=REPO, env=environ, capture_output=True, text=True, timeout=60)
    assert job.returncode != 0
    assert "multi_gpu.slurm trains on one node, but this job has 2; expected --nodes=1, or a launcher" in job.stderr
    assert "multi_node.slurm" in job.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("GPUS_PER_NODE", "0"), ("GPUS_PER_NODE", "two"), ("EMULATED_NODES", "1.5")]
)
def test_number_of_processes_that_is_none_is_refused_by_name(tmp_path: Path, name: str, value: str) -> None:
    environ = tiny_profile() | {"LOG_DIR": str(tmp_path), name: value}
    job = subprocess.run(["bash", "fsdp/multi_node.slurm"], cwd=REPO, env=environ, capture_output=True, text=True)
    assert (job.returncode, list(tmp_path.iterdir())) == (1, [])
    assert job.stderr == f"error: {name}='{value}': expected a whole number of at least 1\n"


def test_missing_loggers_are_one_warning_each_and_the_rest_goes_on(tmp_path: Path) -> None:
    """PATH without nvidia-smi and psrecord; Python is reached through a script, not through its folder."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python").write_text(f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    (tools / "python").chmod(0o755)
    environ = {"PATH": f"{tools}:/usr/bin:/bin", "RUN_DIR": str(tmp_path), "PYTHONPATH": str(REPO)}
    command = [str(REPO / "workshop" / "with_loggers.sh"), "sleep", "3"]
    job = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert job.stdout.count("nvidia-smi not found: no GPU memory log") == 1
    assert job.stdout.count("psrecord not found: no CPU memory log") == 1
    assert len((tmp_path / "cpu_pss.txt").read_text().splitlines()) >= 2
    assert not (tmp_path / "cpu_memory.txt").exists()


def test_processes_share_the_processors_unless_the_shell_says_otherwise(tmp_path: Path) -> None:
    script = "cd fsdp; source ../workshop/launch.sh; start_run >/dev/null; echo $OMP_NUM_THREADS"

    def threads(**changes: str) -> str:
        environ = tiny_profile() | {"LOG_DIR": str(tmp_path), "SLURM_CPUS_ON_NODE": "12", "CUDA_VISIBLE_DEVICES": ""}
        command = ["bash", "-c", script]
        return subprocess.run(
            command, cwd=REPO, env=environ | changes, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert threads(OMP_NUM_THREADS="", GPUS_PER_NODE="4") == "3", "torchrun would give each process one thread"
    assert threads(OMP_NUM_THREADS="", GPUS_PER_NODE="3", EMULATED_NODES="2") == "2"
    assert threads(OMP_NUM_THREADS="", SLURM_CPUS_ON_NODE="1", GPUS_PER_NODE="4") == "1"
    assert threads(OMP_NUM_THREADS="7", GPUS_PER_NODE="4") == "7"


def test_K1_mistyped_setting_of_the_shell_ends_the_launcher_before_it_starts_anything(tmp_path: Path) -> None:
    job = launch(tmp_path, BATCHSIZE="2", GPUPERNODE="1")
    assert job.returncode == 1
    assert job.stderr.startswith("error: your shell sets BATCHSIZE=2 (did you mean BATCH_SIZE?), GPUPERNODE=1 (did you")
    assert list(tmp_path.iterdir()) == []


def test_python_without_the_packages_is_told_what_to_run(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    job = launch(tmp_path / "logs", WORKSHOP_VENV=str(bare))
    assert (job.returncode, (tmp_path / "logs").exists()) == (1, False)
    (line,) = job.stderr.splitlines()
    assert line.startswith(f"error: {bare}/bin/python has no torch, transformers") and "`make install`" in line


def test_run_that_is_cancelled_before_its_training_starts_does_not_stay_running(tmp_path: Path) -> None:
    script = "source ../workshop/launch.sh; start_run; begin_run train; kill -TERM $$; run_step touch $LOG_DIR/started;"
    script += "end_run $?"
    environ = tiny_profile() | {"LOG_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    job = subprocess.run(["bash", "-c", script], cwd=REPO / "baseline", env=environ, capture_output=True, text=True)
    assert job.returncode == 143, job.stderr
    record = json.loads((only_run(tmp_path) / "run.json").read_text())
    assert (record["state"], record["reason"]) == ("cancelled", "the launcher received SIGTERM")
    assert not (tmp_path / "started").exists()
