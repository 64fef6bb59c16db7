"""The doctor on a real SLURM: what its nodes say, and a queue that does not move."""

import json
import os
import subprocess
import sys
from pathlib import Path

from throwaway_slurm import ThrowawaySlurm

from tools.doctor import checks, on_node
from tools.doctor.checks import Place

REPO = Path(__file__).parents[2]


def test_node_of_the_cluster_answers_through_the_logs_folder(slurm: ThrowawaySlurm, tmp_path: Path) -> None:
    """Its GPUs are such in name only, which the node's own PyTorch tells."""
    options = ["fsdp", "--job", "--json", "--space", "0", "--logs", str(tmp_path)]
    command = [sys.executable, "-m", "tools", "doctor", *options]
    environment = slurm.env | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{slurm.env['PATH']}"}
    answer = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True)
    assert answer.returncode == 1, answer.stderr
    found = {one["name"]: one for one in json.loads(answer.stdout)["findings"]}
    assert found["job"]["status"] == found["slurm"]["status"] == found["torch"]["status"] == "ok", found
    assert slurm.nodes[0] in found["job"]["text"] and "1 GPU" in found["slurm"]["text"]
    assert found["gpus"]["status"] == "error" and "none in this job" in found["gpus"]["text"]
    assert found["cache"]["fix"].startswith("python -m workshop.data.prefetch fsdp")
    assert list(tmp_path.iterdir()) == []


def test_partition_that_is_down_is_seen_and_its_job_is_not_left_behind(
    slurm: ThrowawaySlurm, tmp_path: Path, monkeypatch
) -> None:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.env[name])
    partition = slurm.run("sinfo", "--noheader", "--format=%R").split()[0]
    place = Place(slurm.env)
    assert checks.slurm(place).status == "ok"
    assert "fsdp/multi_node.slurm" not in checks.launchers(place).text, "two nodes with two GPUs each are here"
    slurm.run("scontrol", "update", f"PartitionName={partition}", "State=DOWN")
    try:
        assert checks.slurm(Place(slurm.env)).status == "error"
        (found,) = on_node.findings(slurm.env, tmp_path, ["--space", "0"], wait_s=3)
    finally:
        slurm.run("scontrol", "update", f"PartitionName={partition}", "State=UP")
    assert found.status == "error" and "PENDING (PartitionDown" in found.text
    assert "doctor" not in slurm.run("squeue", "--noheader", "--format=%j")
