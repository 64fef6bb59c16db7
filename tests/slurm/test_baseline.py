"""The baseline through a real sbatch: found from any folder, and its end told apart, with nothing left behind."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from throwaway_slurm import ThrowawaySlurm, memory_cgroup_writable

from tests.launching import REPO, tiny_profile
from tests.leftovers import leftovers, processes_of

# A stand-in for a machine with a GPU: one line a second, like the real nvidia-smi with -lms 1000, until it is ended.
# Like that it is one process: a `sleep` of its own would outlive it.
NVIDIA_SMI = f"""#!{sys.executable}
import sys, time
if sys.argv[1] == "-L":
    sys.exit()  # launch.sh counts GPUs: none
print("timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]", flush=True)
while True:
    time.sleep(1)
    print(time.strftime("%Y/%m/%d %H:%M:%S.000, 0, No GPU, 0 MiB, 0 MiB, [N/A]"), flush=True)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The tiny profile with the logs in `tmp_path` and this test's Python first on PATH."""
    tiny = tiny_profile()
    stub = tmp_path / "bin"
    stub.mkdir()
    (stub / "nvidia-smi").write_text(NVIDIA_SMI)
    (stub / "nvidia-smi").chmod(0o755)
    path = f"{stub}:{tiny['PATH']}"
    return tiny | {"LOG_DIR": str(tmp_path / "logs"), "PATH": path, "GENERATE_SIZE": "4", "SAVE": "no"}


def only_run(environment: dict[str, str]) -> Path:
    (run,) = (Path(environment["LOG_DIR"]) / "baseline").iterdir()
    return run


def record(run: Path) -> dict[str, object]:
    return json.loads((run / "run.json").read_text())


def until(condition, timeout_s: float, what: str) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, f"after {timeout_s} s still no {what}"
        time.sleep(0.2)


def test_sbatch_completes_and_fills_the_tables(slurm: ThrowawaySlurm, environment: dict[str, str]) -> None:
    """From the root; from inside the exercise's folder: test_course.py."""
    output = Path(environment["LOG_DIR"]).parent / "job.out"
    options = [f"--output={output}", "--mem=4G"]
    job = slurm.submit("baseline/baseline.slurm", cwd=REPO, options=options, env=environment)
    assert slurm.wait(job, timeout_s=240) == "COMPLETED", output.read_text()
    run = only_run(environment)
    assert record(run)["state"] == "completed"
    assert record(run)["slurm_job_id"] == str(job)
    losses = [float(line.split(",")[4]) for line in (run / "steps.csv").read_text().splitlines()[1:]]
    assert sum(losses[-16:]) < sum(losses[:16]), "the loss did not fall from the first to the last epoch"
    fill = [sys.executable, "-m", "tools", "fill", "baseline", "--tiny", "--logs", environment["LOG_DIR"]]
    tables = subprocess.run(fill, cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert "| Steps per Epoch | 16 |" in tables
    assert "not measured" not in tables
    until(lambda: processes_of(run) == [], 60, f"end of {processes_of(run)}")


def start_long_job(slurm: ThrowawaySlurm, environment: dict[str, str]) -> tuple[int, Path]:
    """A job that would train for hours, waited for until it trains."""
    output = Path(environment["LOG_DIR"]).parent / "job.out"
    options = [f"--output={output}", "--mem=4G", "--time=10"]
    environment |= {"NUM_EPOCHS": "100000"}
    job = slurm.submit("baseline/baseline.slurm", cwd=REPO, options=options, env=environment)
    folder = Path(environment["LOG_DIR"]) / "baseline"
    until(lambda: any(folder.glob("*/steps.csv")), 120, "steps.csv")
    return job, only_run(environment)


def test_time_limit_is_recorded_as_timeout(slurm: ThrowawaySlurm, environment: dict[str, str]) -> None:
    job, run = start_long_job(slurm, environment)
    slurm.expire(job)
    assert slurm.wait(job, timeout_s=120) == "TIMEOUT"
    until(lambda: record(run)["state"] != "running", 60, "end in run.json")
    assert record(run)["state"] == "timeout"
    until(lambda: processes_of(run) == [], 60, f"end of {processes_of(run)}")


def test_K11_cancelled_job_leaves_no_logger(slurm: ThrowawaySlurm, environment: dict[str, str]) -> None:
    job, run = start_long_job(slurm, environment)
    loggers = processes_of(run)
    assert any("psrecord" in command for command in loggers)
    assert any("nvidia-smi" in command for command in loggers)
    slurm.cancel(job)
    assert slurm.wait(job, timeout_s=180) == "CANCELLED"
    until(lambda: record(run)["state"] != "running", 60, "end in run.json")
    assert record(run)["state"] == "cancelled"
    until(lambda: processes_of(run) == [], 60, f"end of {processes_of(run)}")


def test_K11_launcher_killed_without_slurm_leaves_no_logger(environment: dict[str, str]) -> None:
    environment |= {"NUM_EPOCHS": "100000"}
    command = ["bash", "baseline/baseline.slurm"]
    launcher = subprocess.Popen(
        command, cwd=REPO, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    folder = Path(environment["LOG_DIR"]) / "baseline"
    until(lambda: any(folder.glob("*/steps.csv")), 120, "steps.csv")
    launcher.kill()
    launcher.wait()
    run = only_run(environment)
    until(lambda: processes_of(run) == [], 60, f"end of {processes_of(run)}")


def test_K11_two_jobs_on_one_node_keep_apart(slurm: ThrowawaySlurm, environment: dict[str, str]) -> None:
    outputs = [Path(environment["LOG_DIR"]).parent / f"job{i}.out" for i in (1, 2)]
    jobs = [
        slurm.submit(
            "baseline/baseline.slurm",
            cwd=REPO,
            options=[f"--output={output}", "--mem=2G", "--nodelist=node1", "--cpus-per-task=1"],
            env=environment | {"NUM_EPOCHS": "1", "OMP_NUM_THREADS": "1"},
        )
        for output in outputs
    ]
    for job, output in zip(jobs, outputs, strict=True):
        assert slurm.wait(job, timeout_s=240) == "COMPLETED", output.read_text()
    runs = list((Path(environment["LOG_DIR"]) / "baseline").iterdir())
    assert sorted(record(run)["slurm_job_id"] for run in runs) == sorted(map(str, jobs))
    until(lambda: not any(leftovers(run, slurm.shm) for run in runs), 60, "end of what they leave")
    assert all(record(run)["state"] == "completed" for run in runs)


@pytest.mark.skipif(not memory_cgroup_writable(), reason="this machine lets nobody set memory limits (cgroup v1)")
def test_out_of_memory_is_recorded_as_oom(
    slurm_installed: None, environment: dict[str, str], tmp_path: Path, cluster_folder: Path
) -> None:
    with ThrowawaySlurm(cluster_folder, nodes=1, gpus_per_node=2, cgroup_memory=True) as cluster:
        output = tmp_path / "job.out"
        options = [f"--output={output}", "--mem=300M"]
        job = cluster.submit("baseline/baseline.slurm", cwd=REPO, options=options, env=environment)
        assert cluster.wait(job, timeout_s=120) == "OUT_OF_MEMORY", output.read_text()
        assert record(only_run(environment))["state"] == "oom"
