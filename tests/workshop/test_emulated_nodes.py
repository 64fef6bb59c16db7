"""One host as several nodes: every node has its own GPUs, and the failure of one ends all."""

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "workshop" / "emulated_nodes.sh"


def emulate(command: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"NNODES": "2", "NPROC_PER_NODE": "2", "CUDA_VISIBLE_DEVICES": "0,1,2,5"}
    return subprocess.run([SCRIPT, "bash", "-c", command], env=environment, capture_output=True, text=True, timeout=300)


def test_every_node_has_its_own_gpus_and_name() -> None:
    lines = emulate("echo $NCCL_HOSTID $CUDA_VISIBLE_DEVICES").stdout.splitlines()
    assert sorted(lines) == ["emulated-node-0 0,1", "emulated-node-1 2,5"]


def test_first_failure_ends_the_others_and_is_returned() -> None:
    assert emulate('[ "$NCCL_HOSTID" = emulated-node-1 ] && exit 7; exec sleep 1000').returncode == 7


def test_success_waits_for_all_nodes() -> None:
    job = emulate('[ "$NCCL_HOSTID" = emulated-node-1 ] && sleep 1; echo done')
    assert (job.returncode, job.stdout) == (0, "done\ndone\n")
