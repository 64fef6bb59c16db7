"""The benchmark's grid as a real job array."""

import json
from pathlib import Path

import pytest
from throwaway_slurm import ThrowawaySlurm

from tests.launching import REPO, tiny_profile


@pytest.mark.timeout(420)
@pytest.mark.usefixtures("slurm_installed", "optimizers_compiled")
def test_every_task_of_a_job_array_finds_its_script_and_runs_its_cell(slurm: ThrowawaySlurm, tmp_path: Path) -> None:
    """Also the last task: its job id is the array's own, and of that SLURM shows every task that is not over."""
    environment = tiny_profile() | {"LOG_DIR": str(tmp_path / "logs"), "MAX_STEPS": "2", "SAVE": "no"}
    environment |= {"GENERATE_SIZE": "0", "OMP_NUM_THREADS": "1"}
    for name in ("FP16", "BF16", "BATCH_SIZE", "MAX_LENGTH"):  # the cell's, not the tiny profile's
        del environment[name]
    options = ["--array=9-10", f"--output={tmp_path}/%a.out", "--mem=3G", "--cpus-per-task=1", "--time=4"]
    job = slurm.submit("benchmark/benchmark.slurm", cwd=REPO, options=options, env=environment)
    for task in (9, 10):
        assert slurm.wait(f"{job}_{task}", timeout_s=200) == "COMPLETED", slurm.job_output(f"{job}_{task}")
    records = [json.loads(path.read_text()) for path in (tmp_path / "logs").glob("benchmark/*/run.json")]
    cells = {(record["config"], record["precision"], record["state"]) for record in records}
    assert cells == {("zero0", "bf16", "completed"), ("zero1", "bf16", "completed")}
