"""How a run ended is told apart by evidence, and run.json is never half written."""

import json
from pathlib import Path

import pytest

from tests.planted_keys import KEYS, leaked
from workshop.job import outcome, run_record
from workshop.job.outcome import kernel_oom_kills, record_end
from workshop.job.run_record import begin

STEP = "slurmstepd-node3: error: *** STEP 2.0 ON node3 CANCELLED AT 2026-11-21T15:50:55 ***"
RANK_1 = "[rank1]: error (rank 1): TRAIN_SIZE=20000: found 192 examples in sample, expected at most as many"
KILLED = "a rank was killed (SIGKILL), and not by the launcher"
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
        (0, "", "RuntimeError: caught and handled", 0, "completed", ""),
        (1, "", "ValueError: bad batch", 0, "failed", "ValueError: bad batch"),
        (1, "", "nothing said", 0, "failed", "exit code 1 without an error message in train.out"),
        (143, "TERM", "", 0, "cancelled", "the launcher received SIGTERM"),
        (137, "", f"{RANK_1}\nsrun: error: node4: task 1: Exited with exit code 1", 0, "failed", RANK_1),
        (137, "", f"{STEP}\nsrun: error: node3: task 0: Killed", 0, "cancelled", STEP),
        (137, "", "CommError: no network\n{'loss': 0.5}", 0, "failed", KILLED),
        (1, "", f"{LOST}\n{TORCHRUN}", 0, "failed", f"{KILLED}: {TORCHRUN}"),
        (1, "", f"{LOST}\n{TORCHRUN}", 1, "oom", "the kernel killed a process on this node: no CPU memory left"),
        (1, "", f"{LOST}\n{DEEPSPEED}", 1, "oom", "the kernel killed a process on this node: no CPU memory left"),
    ],
)
def test_how_a_run_ended_is_told_apart_by_evidence(
    tmp_path: Path, exit_code: int, signal: str, output: str, oom_kills: int, state: str, reason: str
) -> None:
    (tmp_path / "train.out").write_text(f"loading\n{output}\n")
    found = outcome.outcome(tmp_path, exit_code, signal, oom_kills=oom_kills)
    assert (found["state"], found["reason"]) == (state, reason)


def test_processes_killed_before_the_run_are_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.out").touch()
    monkeypatch.setenv("EXPERIMENT_NAME", "baseline")
    monkeypatch.setattr(outcome, "kernel_oom_kills", lambda: 54)
    states = []
    for before in (53, 54):
        begin(tmp_path, "baseline", "", ["python", "train.py"], before)
        states.append(record_end(tmp_path, 137, "")["state"])
    assert states == ["oom", "failed"]


def test_key_in_an_edited_file_is_not_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, diff = KEYS["WANDB_API_KEY"], "diff --git a/baseline/env_vars.sh b/baseline/env_vars.sh\n"
    diff += f"+export WANDB_API_KEY={key}\n+os.environ['HF_TOKEN'] = \"{key}\"\n+export TOKENIZER_NAME=gpt2\n"
    monkeypatch.setattr(run_record, "code_version", lambda: ("1f3a", True, diff))
    monkeypatch.setenv("EXPERIMENT_NAME", "baseline")
    begin(tmp_path, "baseline", "", ["python", "train.py"], 0)
    assert leaked(tmp_path) == []
    for text in ((tmp_path / "code.diff").read_text(), json.loads((tmp_path / "run.json").read_text())["git_diff"]):
        assert text.splitlines()[1:] == [
            "+export WANDB_API_KEY=[left out]",
            "+os.environ['HF_TOKEN'] = [left out]",
            "+export TOKENIZER_NAME=gpt2",
        ]


JOB = "system.slice/slurmstepd.scope/job_7"
OLD_JOB = "slurm/uid_0/job_7"
OLD_KILLS = {f"{OLD_JOB}/memory.oom_control": 0, f"{OLD_JOB}/step_0/task_1/memory.oom_control": 1}


@pytest.mark.parametrize(
    ("group", "counters"),
    [
        ("0::/user.slice/session-7.scope", {"user.slice/session-7.scope/memory.events": 1}),
        (f"0::/{JOB}/step_batch/user/task_0", {f"{JOB}/memory.events": 1}),
        (f"4:hugetlb,memory:/{OLD_JOB}/step_batch/task_0", {f"memory/{name}": n for name, n in OLD_KILLS.items()}),
    ],
    ids=["session", "SLURM", "SLURM with version 1"],
)
def test_memory_that_another_job_of_the_node_ran_out_of_is_not_this_one_s(
    tmp_path: Path, group: str, counters: dict[str, int]
) -> None:
    """It made a soak's killed rank an `oom`, which is not started again."""
    files = {"proc/self/cgroup": group, "sys/fs/cgroup/memory.events": "oom_kill 3\n"}
    files |= {f"sys/fs/cgroup/{name}": f"under_oom 0\noom_kill {kills}\n" for name, kills in counters.items()}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert kernel_oom_kills(tmp_path) == 1
