"""Whatever is killed of a real training: no process outlives it, and the next attempt is alone."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.launching import REPO, losses, record, tiny_profile, wait_until
from tests.leftovers import commands_with, leftovers, processes_of, with_own_shm
from workshop.job.outcome import NO_END

pytestmark = pytest.mark.long

# The drill waits after step 12 of the first attempt, to be killed there.
STEPS = 20
SETTINGS = {
    **{"TRAIN_SIZE": "80", "MAX_LENGTH": "64", "EVAL_SIZE": "4", "BATCH_SIZE": "2"},
    **{"GRAD_ACC": "1", "GENERATE_SIZE": "0", "MAX_STEPS": str(STEPS), "OMP_NUM_THREADS": "1", "SAVE": "steps"},
    **{"SAVE_STEPS": "5", "FAULT": "time_limit", "FAULT_STEP": "12"},
}
# further/resilience/ by the launchers of fsdp/ and of deepspeed-multi-gpu/.
START = (
    "set {}; source ../../workshop/launch.sh; start_run; export PSS_LOGGER='python -m workshop.measure.memory_logger';"
    " exec python -m workshop.job.supervisor {} train.py"
)
FSDP = START.format("fsdp_configs/full_shard.json", "torchrun --standalone --nproc-per-node=$NPROC_PER_NODE")
HOSTS = "--hostfile '$RUN_DIR/hostfile' --no_ssh --node_rank 0 --master_addr localhost --master_port $MASTER_PORT"
ZERO = START.format("ds_configs/zero2.json", f"deepspeed {HOSTS}")
# In their commands.
TORCHRUN, RUNNER, LAUNCH, NODE = ("bin/torchrun ", "bin/deepspeed ", "-m deepspeed.launcher.", "-m workshop.job.node ")


def started(folder: Path, script: str, **changes: str) -> subprocess.Popen[str]:
    environment = tiny_profile() | SETTINGS | {"LOG_DIR": str(folder)} | changes
    command = [*with_own_shm(folder / "shm"), "bash", "-c", script, "drill.slurm"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=REPO / "further/resilience", env=environment, **pipes)


def waiting(job: subprocess.Popen[str], folder: Path) -> Path:
    """The folder of a run that is after step 12."""
    outputs = partial(folder.glob, "*/2*/train.out")
    wait_until(lambda: job.poll() is not None or any("waits for you" in output.read_text() for output in outputs()))
    assert job.poll() is None, job.stdout.read()
    (run,) = folder.glob("*/2*")
    return run


def wait_for_ranks(run: Path, attempt: int) -> None:
    def are_there() -> bool:
        ranks = [command for command in processes_of(run) if "train.py" in command.split()[1:3]]  # python [-u] train.py
        return bool(ranks) and len(record(run).get("attempts") or []) == attempt - 1

    wait_until(are_there)


def send(run: Path, words: str, number: signal.Signals = signal.SIGKILL) -> None:
    (pid,) = [pid for pid, command in commands_with("RUN_DIR", run).items() if words in command]
    os.kill(pid, number)


def ended(job: subprocess.Popen[str], run: Path) -> tuple[int, str, int]:
    """Exit code, state and number of steps; each step is there once, and nothing is left."""
    shown, _ = job.communicate(timeout=400)
    assert leftovers(run, run.parents[1] / "shm") == [], shown[-5000:]
    return job.returncode, record(run)["state"], len(losses(run))


@pytest.mark.parametrize(
    ("script", "ranks", "first", "second", "code"),
    [
        (ZERO, 2, LAUNCH, RUNNER, 137),
        (FSDP, 1, TORCHRUN, NODE, 137),
        pytest.param(ZERO, 2, NODE, LAUNCH, 1, marks=pytest.mark.slow),
    ],
    ids=["launch.py, deepspeed", "torchrun, node", "node, launch.py"],
)
def test_ranks_do_not_outlive_their_launcher(tmp_path, script, ranks, first, second, code) -> None:
    """They trained on beside those of the next attempt, and both wrote steps.csv and deleted checkpoints. The first is
    killed while they train, the second while they start. A node's process that is stopped costs a later job nothing.
    """
    job = started(tmp_path, script, GPUS_PER_NODE=str(ranks))
    run = waiting(job, tmp_path)
    send(run, first)
    wait_for_ranks(run, attempt=2)
    send(run, second)
    assert ended(job, run) == (code, "failed", 12)
    facts = record(run)
    attempts = [*facts["attempts"], facts]
    if script == FSDP:
        job = started(tmp_path, script, GPUS_PER_NODE=str(ranks), RESUME_RUN=str(run))
        wait_for_ranks(run, attempt=3)
        send(run, NODE, signal.SIGSTOP)
        assert ended(job, run) == (0, "completed", STEPS)
        attempts = record(run)["attempts"]
        assert attempts[1]["resumed_step"] == 10
    assert facts["world_size"] == ranks and attempts[0]["resumed_step"] == 10
    assert [one["state"] for one in attempts] == ["failed"] * 2
    for one, killed in zip(attempts, (first, second), strict=True):
        assert (one["exit_code"], NO_END in one["reason"]) == ((1, True) if killed == LAUNCH else (137, False))


def test_input_that_every_rank_refuses_is_one_line_of_the_job(tmp_path: Path) -> None:
    """Each rank said it, W&B added a traceback, and torchrun its own of 60 lines."""
    refused = {"GPUS_PER_NODE": "2", "MAX_LENGTH": "20", "REPORT_TO": "wandb"}
    job = started(tmp_path, FSDP, **refused)
    shown, _ = job.communicate(timeout=400)
    (run,) = tmp_path.glob("*/2*")
    assert leftovers(run, tmp_path / "shm") == [] and job.returncode == 1
    written = (run / "train.out").read_text()
    (said,) = (line for line in written.splitlines() if "error" in line.lower())
    assert said.startswith("error (rank ") and "MAX_LENGTH=20: example sample-01-01 has 36 tokens" in said
    assert said in shown and "Traceback" not in written and "exitcode" not in written
    assert (record(run)["state"], record(run)["reason"]) == ("failed", said)


# Processes of many threads that start another one each and are killed; what of these is not seen while they die.
KILLED_PARENTS = """
import os, signal, subprocess, sys
from workshop.job.processes import descendants, lead_job
parent = (
    "import subprocess, threading, time\\n"
    "for _ in range(100): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\\n"
    "print(subprocess.Popen(['sleep', '1000']).pid, flush=True); time.sleep(1000)"
)
lead_job()
for _ in range(40):
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    process.kill()
    while process.poll() is None:
        assert child in descendants()
    os.kill(child, signal.SIGKILL)
"""


def test_rank_is_seen_while_its_launcher_dies_thread_by_thread() -> None:
    """The first thread of torchrun is a zombie before the others, which still have its children."""
    subprocess.run([sys.executable, "-c", KILLED_PARENTS], cwd=REPO, check=True, timeout=300)
