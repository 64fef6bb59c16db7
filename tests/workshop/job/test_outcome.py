"""How a run ended is told apart by evidence, and run.json is never half written."""

from pathlib import Path

import pytest

from tests.workshop.environment import LAUNCHED
from workshop.job import outcome
from workshop.job.outcome import begin, kernel_oom_kills
from workshop.record.run_record import add_to_summary, read_summary, update_run_record

STEP = "slurmstepd-node3: error: *** STEP 2.0 ON node3 CANCELLED AT 2026-11-21T15:50:55 ***"
RANK_1 = "[rank1]: error (rank 1): TRAIN_SIZE=20000: found 192 examples in sample, expected at most as many"
KILLED = "a rank was killed (SIGKILL), and not by the launcher"
LAUNCHER_KILLED = "a rank or its launcher was killed (SIGKILL), and not by the supervisor"
TORCHRUN = (
    "E1121 20:15:19.059000 27359 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) "
    "local_rank: 1 (pid: 27369) of binary: python"
)
DEEPSPEED = (
    "[2026-11-21 20:15:19,059] [ERROR] [launch.py:259:sigkill_handler] ['python3', '-u', 'train.py'] "
    "exits with return code = -9"
)
LOST = "RuntimeError: connection closed by peer"


@pytest.mark.parametrize(
    ("exit_code", "signal", "output", "oom_kills", "state", "reason"),
    [
        (1, "", "ValueError: bad batch", 0, "failed", "ValueError: bad batch"),
        (137, "", f"{RANK_1}\nsrun: error: node4: task 1: Exited with exit code 1", 0, "failed", RANK_1),
        (137, "", f"{STEP}\nsrun: error: node3: task 0: Killed", 0, "cancelled", STEP),
        (137, "", "CommError: no network\n{'loss': 0.5}", 0, "failed", LAUNCHER_KILLED),
        (143, "", "", 0, "failed", "exit code 143, Terminated (SIGTERM), without an error message in train.out"),
        (241, "", "", 0, "failed", "exit code 241 without an error message in train.out"),
        (1, "", f"{LOST}\n{TORCHRUN}", 0, "failed", f"{KILLED}: {TORCHRUN}"),
        (1, "", f"{LOST}\n{TORCHRUN}", 1, "oom", "the kernel killed a process on this node: no CPU memory left"),
        (1, "", f"{LOST}\n{DEEPSPEED}", 1, "oom", "the kernel killed a process on this node: no CPU memory left"),
    ],
)
def test_how_a_run_ended_is_told_apart_by_evidence(tmp_path, exit_code, signal, output, oom_kills, state, reason):
    (tmp_path / "train.out").write_text(f"loading\n{output}\n")
    found = outcome.outcome(tmp_path, {}, exit_code, signal, oom_kills=oom_kills)
    assert (found["state"], found["reason"]) == (state, reason)


def test_resumed_run_keeps_the_scores_of_its_steps_and_no_other_figure(tmp_path: Path) -> None:
    update_run_record(tmp_path, start_time="2026-11-22T10:00:00+00:00", state="failed")
    add_to_summary(tmp_path, {"train_loss": 0.5, "f1_before": 0.1, "exact_match_by_step": {"16": 4.0}})
    begin(tmp_path, LAUNCHED, ["python", "train.py"], "out/checkpoint-20")
    assert read_summary(tmp_path) == {"f1_before": 0.1, "exact_match_by_step": {"16": 4.0}}


SLURMSTEPD = "system.slice/slurmstepd.scope/job_7"


@pytest.mark.parametrize(
    ("group", "counters"),
    [
        ("0::/user.slice/session-7.scope", {"user.slice/session-7.scope/memory.events": 1}),
        ("0::/", {"memory.events": 1}),
        (f"0::/{SLURMSTEPD}/step_batch/user/task_0", {f"{SLURMSTEPD}/memory.events": 1}),
        (
            "4:hugetlb,memory:/slurm/uid_0/job_7/step_batch/task_0\n0::/",
            {
                "memory/slurm/uid_0/job_7/memory.oom_control": 0,
                "memory/slurm/uid_0/job_7/step_0/task_1/memory.oom_control": 1,
            },
        ),
    ],
    ids=["session", "container", "SLURM", "SLURM with version 1"],
)
def test_another_job_s_lack_of_memory_is_not_this_one_s(tmp_path: Path, group: str, counters: dict[str, int]) -> None:
    """It made a soak's killed rank an `oom`, which is not started again."""
    files = {"proc/vmstat": "oom_kill 3\n", "proc/self/cgroup": group}
    files |= {f"sys/fs/cgroup/{name}": f"under_oom 0\noom_kill {kills}\n" for name, kills in counters.items()}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert kernel_oom_kills(tmp_path) == 1
    for counter in counters:
        (tmp_path / "sys/fs/cgroup" / counter).unlink()  # a container that does not show it
    assert kernel_oom_kills(tmp_path) == 0
