"""What a job's processes get of its processors: with an optimizer in CPU memory they decide how long a step takes."""

from pathlib import Path

from throwaway_slurm import ThrowawaySlurm

from tests.launching import REPO, tiny_profile

JOB = f"""#!/bin/bash
cd {REPO}/fsdp && exec bash -c '
source ../workshop/launch.sh
start_run
echo "threads of a process: $OMP_NUM_THREADS"
launch bash -c "echo step \\$(scontrol show step \\$SLURM_JOB_ID.\\$SLURM_STEP_ID | grep -o CPUs=[0-9]*)"
' multi_node.slurm
"""


def test_launcher_of_each_node_shares_out_all_its_processors(slurm: ThrowawaySlurm, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(JOB)
    options = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=6", "--gpus-per-node=2", "--mem=1G"]
    environment = tiny_profile() | {"LOG_DIR": str(tmp_path), "OMP_NUM_THREADS": ""}
    job = slurm.submit(tmp_path / "job.sh", options=[*options, f"--output={tmp_path}/job.out"], env=environment)
    assert slurm.wait(job) == "COMPLETED", slurm.job_output(job)
    output = slurm.job_output(job)
    assert output.count("step CPUs=12") == 2
    assert "threads of a process: 3" in output, "torchrun would give each process one"
