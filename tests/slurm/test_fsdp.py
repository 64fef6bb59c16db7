"""FSDP through a real sbatch: two nodes become one world, and HYBRID_SHARD keeps a whole copy on each."""

from pathlib import Path

import pytest
from throwaway_slurm import ThrowawaySlurm

from tests.fsdp.test_fsdp_training import SETTINGS, record
from tests.launching import PATH, REPO


def test_two_nodes_train_as_one_world_with_a_copy_on_each(slurm: ThrowawaySlurm, tmp_path: Path) -> None:
    if not slurm.isolated_nodes:
        pytest.skip("needs nodes with hostnames of their own (root with CAP_SYS_ADMIN)")
    environment = SETTINGS | {"LOG_DIR": str(tmp_path), "PATH": PATH, "MAX_STEPS": "3", "GENERATE_SIZE": "3"}
    options = ["--nodes=2", "--gpus-per-node=2", f"--output={tmp_path}/job.out", "--mem=4G", "--cpus-per-task=1"]
    job = slurm.submit(
        "fsdp/multi_node.slurm", "fsdp_configs/hybrid_shard.json", cwd=REPO, options=options, env=environment
    )
    assert slurm.wait(job, timeout_s=240) == "COMPLETED", slurm.job_output(job)
    (run,) = (tmp_path / "fsdp").iterdir()
    assert [record(run)[key] for key in ("state", "nodes", "world_size")] == ["completed", 2, 4]
    sharding = record(run)["sharding"]
    assert (sharding["method"], sharding["parameters"], sharding["optimizer"]) == ("fsdp2", True, True)
    # Two ranks share each of the two copies.
    assert "a rank holds at most 50% of the parameters" in (run / "train.out").read_text()
    assert {path.name for path in run.glob("cpu_memory-*.txt")} == {f"cpu_memory-{node}.txt" for node in slurm.nodes}
