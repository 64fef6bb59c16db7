"""Multi-node jobs of the custom model through a real sbatch: the fabric check first, then the training."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from throwaway_slurm import ThrowawaySlurm

from run_folder import nccl_log
from tests.custom_model.launching import REPO, SHORT, tiny_profile


@pytest.fixture(scope="module")
def three_nodes(slurm_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThrowawaySlurm]:
    """One GPU in name only per node, as the workshop's multi-node runs have."""
    with ThrowawaySlurm(tmp_path_factory.mktemp("three-nodes"), nodes=3, gpus_per_node=1) as cluster:
        if not cluster.isolated_nodes:
            pytest.skip("needs nodes with hostnames of their own (root with CAP_SYS_ADMIN)")
        yield cluster


def run_job(cluster: ThrowawaySlurm, tmp_path: Path, nodes: int, **variables: str) -> tuple[int, Path]:
    """The finished job's id and run folder."""
    environment = (
        tiny_profile() | SHORT | {"LOG_DIR": str(tmp_path), "MAX_STEPS": "2", "FABRIC_MAX_MIB": "1"} | variables
    )
    options = [f"--nodes={nodes}", f"--output={tmp_path}/job.out", "--mem=4G"]
    job = cluster.submit("custom_model/multi_node.slurm", cwd=REPO, options=options, env=environment)
    cluster.wait(job, timeout_s=240)
    (run,) = (tmp_path / "custom_model").iterdir()
    return job, run


def test_three_nodes_check_the_fabric_and_train(three_nodes: ThrowawaySlurm, tmp_path: Path) -> None:
    job, run = run_job(three_nodes, tmp_path, nodes=3)
    output = three_nodes.job_output(job)
    assert three_nodes.state(job) == "COMPLETED", output
    assert re.search(r"^Measured AllReduce BW: \d+\.\d+ GB/s$", output, re.MULTILINE)
    record = json.loads((run / "run.json").read_text())
    # The three nodes have hostnames of their own, but one host's speed: a table must say so.
    assert [record[key] for key in ("state", "world_size", "nodes", "emulated_nodes")] == ["completed", 3, 3, True]
    assert {path.name for path in run.glob("cpu_pss-*.txt")} == {f"cpu_pss-{node}.txt" for node in three_nodes.nodes}
    log = nccl_log.read(run / "nccl.log")
    assert (log.world_size, log.hosts) == (3, set(three_nodes.nodes))


def test_K12_slow_fabric_ends_the_job_with_46_before_it_trains(three_nodes: ThrowawaySlurm, tmp_path: Path) -> None:
    job, run = run_job(three_nodes, tmp_path, nodes=2, FABRIC_MIN_GB_PER_S="1e6")
    assert three_nodes.show(job)["ExitCode"] == "46:0", three_nodes.job_output(job)
    record = json.loads((run / "run.json").read_text())
    assert (record["state"], record["exit_code"]) == ("failed", 46)
    assert record["reason"].startswith("error: fabric check: found ")
    assert record["reason"].endswith("GB/s, expected FABRIC_MIN_GB_PER_S=1e+06 or more")
    assert nccl_log.read(run / "nccl.log").world_size == 2
    assert not (run / "steps.csv").exists()
