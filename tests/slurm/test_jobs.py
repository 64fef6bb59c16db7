"""The launchers through a real sbatch: several nodes, an array, other jobs beside them, and each end told apart.

The jobs are independent of each other. They are submitted together, so that all need as long as the longest.
"""

import re
import subprocess
import sys
from typing import Any

import pytest
from submitting import Job, stand_in, submit
from throwaway_slurm import ThrowawaySlurm, memory_cgroup_writable

from tests.launching import REPO, losses, record
from workshop.record import nccl_log

pytestmark = pytest.mark.long

PROCESSORS = f"""#!/bin/bash
cd {REPO}/fsdp && unset OMP_NUM_THREADS && exec bash -c '
source ../workshop/launch.sh
start_run
echo "threads of a process: $OMP_NUM_THREADS"
exec python -m workshop.job.supervisor bash -c "
    echo step \\$(scontrol show step \\$SLURM_JOB_ID.\\$SLURM_STEP_ID | grep -o CPUs=[0-9]*)
    echo finished >> \\$RUN_DIR/.control"
' multi_node.slurm
"""
CELL = dict.fromkeys(("FP16", "BF16", "BATCH_SIZE", "MAX_LENGTH"), "")  # the array task's, not the tiny profile's


@pytest.fixture(scope="module")
def jobs(slurm: ThrowawaySlurm, optimizers_compiled: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    folder = tmp_path_factory.mktemp("jobs")
    processors = folder / "processors.slurm"
    processors.write_text(PROCESSORS)
    # What a task gives its training is told; that a cell trains: tests/benchmark/test_benchmark.py.
    cell = 'echo "a cell with FP16=$FP16 BF16=$BF16 MAX_LENGTH=$MAX_LENGTH"; echo finished >> $RUN_DIR/.control'
    cells = stand_in(folder, "deepspeed", cell)
    learns = {"MAX_STEPS": "", "GRAD_ACC": "2", "GENERATE_SIZE": "2"}

    def started(name: str, script: str, *arguments: str, options: str = "", **settings: Any) -> Job:
        return submit(slurm, folder / name, script, *arguments, options=options, **settings)

    offload_launcher, shares = "deepspeed-zero3-offload/run.slurm", "--nodes=2 --gpus-per-node=2 --cpus-per-task=6"
    baseline, two_nodes, on_one_node = "baseline/baseline.slurm", "--nodes=2 --gpus-per-node=1", "--nodelist=node1"
    offload = f"--gpus-per-node=2 {on_one_node}"
    return {
        "tables": started("tables", "baseline.slurm", options=on_one_node, cwd=REPO / "baseline", **learns),
        "memory": started("memory", baseline, options="--mem=300M"),
        "zero": started("zero", "deepspeed-multi-gpu/deepspeed.slurm", "ds_configs/zero2.json", options=two_nodes),
        "offload": started("offload", offload_launcher, "--steps=16", options=offload),
        "fsdp": started("fsdp", "fsdp/multi_node.slurm", "fsdp_configs/full_shard.json", options=two_nodes),
        "fabric": started("fabric", "custom_model/multi_node.slurm", options=two_nodes, FABRIC_MAX_MIB="1"),
        "array": started("array", "benchmark/benchmark.slurm", options="--array=9-10", **CELL | cells),
        "processors": started("processors", str(processors), options=shares),
    }


def test_sbatch_completes_and_fills_the_tables(jobs: dict[str, Job]) -> None:
    """From inside the exercise's folder; the others are started from the root."""
    job = jobs["tables"]
    found = job.record()
    assert (found["state"], found["slurm_job_id"]) == ("completed", str(job.id))
    assert sum(losses(job.run)[-16:]) < sum(losses(job.run)[:16]), "the loss did not fall from first to last epoch"
    fill = [sys.executable, "-m", "tools", "fill", "baseline", "--tiny", "--logs", str(job.folder)]
    tables = subprocess.run(fill, cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert "| Steps per Epoch | 16 |" in tables
    assert "not measured" not in tables


@pytest.mark.skipif(not memory_cgroup_writable(), reason="this machine lets nobody set memory limits (cgroup v1)")
def test_out_of_memory_is_recorded_as_oom(jobs: dict[str, Job]) -> None:
    assert jobs["memory"].record("OUT_OF_MEMORY")["state"] == "oom"


@pytest.mark.parametrize("name", ["zero", "fsdp"])
def test_two_nodes_train_as_one_world_and_log_from_both(jobs: dict[str, Job], name: str) -> None:
    found, run = jobs[name].record(), jobs[name].run
    assert (found["state"], found["world_size"], found["nodes"]) == ("completed", 2, 2)
    assert found["sharding"]["method"] == {"zero": "zero2", "fsdp": "fsdp2"}[name]
    for log, least in (("cpu_memory", 3), ("cpu_pss", 2)):
        files = sorted(run.glob(f"{log}-node*.txt"))
        assert len(files) == 2 and all(file.read_text().count("\n") >= least for file in files), log


def test_K11_zero3_offload_is_started_by_srun_with_one_task_per_gpu_beside_another_job(jobs: dict[str, Job]) -> None:
    job = jobs["offload"]
    found = job.record()
    assert (found["state"], found["world_size"], found["slurm_job_id"]) == ("completed", 2, str(job.id))
    assert {job.cluster.show(jobs[name].id)["NodeList"] for name in ("tables", "offload")} == {"node1"}
    assert found["command"][:3] == ["srun", "--ntasks=2", "--ntasks-per-node=2"] and "train.py" in found["command"]
    output = (job.run / "train.out").read_text()
    for line in ("ZeRO stage +3", "parameter offload +cpu", "optimizer offload +cpu", "rank +1 of 2"):
        assert re.search(line, output), line
    assert output.count(": ok") == 2
    assert "NOT SO" not in output
    assert len((job.run / "cpu_memory.txt").read_text().splitlines()) > 2
    # SLURM says so when a logger keeps the job's output open and with it the job, for a minute that is billed.
    assert "Abandoning IO" not in "".join(log.read_text() for log in job.cluster.base_dir.glob("log/node*.log"))


def test_nodes_check_the_fabric_and_train(jobs: dict[str, Job]) -> None:
    job = jobs["fabric"]
    found = job.record()
    assert re.search(r"^Measured AllReduce BW: \d+\.\d+ GB/s$", job.output, re.MULTILINE)
    # The nodes have hostnames of their own, but one host's speed: a table must say so.
    assert [found[key] for key in ("state", "world_size", "nodes", "emulated_nodes")] == ["completed", 2, 2, True]
    hosts = {path.stem.removeprefix("cpu_pss-") for path in job.run.glob("cpu_pss-*.txt")}
    assert nccl_log.read(job.run / "nccl.log").world_size == 2 == len(hosts)


def test_every_task_of_a_job_array_finds_its_script_and_runs_its_cell(jobs: dict[str, Job]) -> None:
    """Also the last task: its job id is the array's own, and of that SLURM shows every task that is not over."""
    array = jobs["array"]
    for task in (9, 10):
        assert array.cluster.wait(f"{array.id}_{task}", timeout_s=400) == "COMPLETED", array.output
    runs = [path.parent for path in array.folder.glob("benchmark/*/run.json")]
    found = {(record(run)["config"], record(run)["state"]) for run in runs}
    assert found == {("zero0", "completed"), ("zero1", "completed")}
    for run in runs:
        assert "a cell with FP16=false BF16=true MAX_LENGTH=128" in (run / "train.out").read_text()


def test_launcher_of_each_node_shares_out_all_its_processors(jobs: dict[str, Job]) -> None:
    """With an optimizer in CPU memory they decide how long a step takes."""
    job = jobs["processors"]
    job.record()
    assert job.output.count("step CPUs=12") == 2
    assert "threads of a process: 3" in job.output, "torchrun would give each process one"
