"""ZeRO through a real sbatch: two nodes with one process each, and two processes of one node started by srun."""

import json
from pathlib import Path

import pytest
from throwaway_slurm import ThrowawaySlurm

from tests.launching import REPO, tiny_profile

pytestmark = pytest.mark.usefixtures("slurm_installed", "optimizers_compiled")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    changes = {"LOG_DIR": str(tmp_path / "logs"), "GENERATE_SIZE": "4", "SAVE": "end", "MAX_STEPS": "8"}
    return tiny_profile() | changes | {"OMP_NUM_THREADS": "1"}


def run_job(
    slurm: ThrowawaySlurm,
    environment: dict[str, str],
    script: str,
    *arguments: str,
    options: list[str],
    state: str = "COMPLETED",
) -> Path:
    """Submit, wait for `state`, return the run folder."""
    output = Path(environment["LOG_DIR"]).parent / "job.out"
    options = [f"--output={output}", "--mem=4G", "--cpus-per-task=2", *options]
    job = slurm.submit(script, *arguments, cwd=REPO, options=options, env=environment)
    assert slurm.wait(job, timeout_s=400) == state, output.read_text()
    (run,) = Path(environment["LOG_DIR"]).glob("*/*")
    return run


@pytest.mark.timeout(500)
def test_two_nodes_train_as_one_world_and_log_from_both(slurm: ThrowawaySlurm, environment: dict[str, str]) -> None:
    script, options = "deepspeed-multi-gpu/deepspeed.slurm", ["--nodes=2", "--gpus-per-node=1"]
    run = run_job(slurm, environment, script, "ds_configs/zero2.json", options=options)
    record = json.loads((run / "run.json").read_text())
    assert (record["state"], record["world_size"], record["nodes"]) == ("completed", 2, 2)
    for node in ("node1", "node2"):
        assert len((run / f"cpu_memory-{node}.txt").read_text().splitlines()) > 2, node
        assert len((run / f"cpu_pss-{node}.txt").read_text().splitlines()) > 1, node


@pytest.mark.timeout(500)
def test_error_of_all_ranks_is_the_reason_not_the_step_that_srun_then_ends(
    slurm: ThrowawaySlurm, environment: dict[str, str]
) -> None:
    script, options = "deepspeed-multi-gpu/deepspeed.slurm", ["--nodes=2", "--gpus-per-node=1"]
    environment |= {"TRAIN_SIZE": "20000"}
    run = run_job(slurm, environment, script, "ds_configs/zero2.json", options=options, state="FAILED")
    record = json.loads((run / "run.json").read_text())
    assert record["state"] == "failed"
    assert "TRAIN_SIZE=20000: found 192 examples in sample, expected at most as many" in record["reason"]


@pytest.mark.timeout(500)
def test_zero3_offload_is_started_by_srun_with_one_task_per_gpu(
    slurm: ThrowawaySlurm, environment: dict[str, str]
) -> None:
    arguments = ["--model-name", "tiny", "--steps", "8"]
    run = run_job(slurm, environment, "deepspeed-zero3-offload/run.slurm", *arguments, options=["--nodes=1"])
    record = json.loads((run / "run.json").read_text())
    assert (record["state"], record["world_size"]) == ("completed", 2)
    assert record["command"][:2] == ["srun", "--ntasks-per-node=2"] and "train.py" in record["command"]
    output = (run / "train.out").read_text()
    for line in (
        "ZeRO stage          3",
        "parameter offload   cpu",
        "optimizer offload   cpu",
        "rank                1 of 2",
    ):
        assert line in output, line
    assert output.count(": ok") == 2
    assert "NOT SO" not in output
    assert len((run / "cpu_memory.txt").read_text().splitlines()) > 2
    # SLURM says so when a logger keeps the job's output open and with it the job, for a minute that is billed.
    assert "Abandoning IO" not in "".join(log.read_text() for log in slurm.base_dir.glob("log/node*.log"))
