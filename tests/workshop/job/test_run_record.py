"""How a run ended is told apart by evidence, and run.json is never half written."""

import json
from pathlib import Path

import pytest

from tests.planted_keys import KEYS, leaked
from workshop.job import outcome, run_record
from workshop.job.control import Control
from workshop.job.outcome import kernel_oom_kills, record_end
from workshop.job.run_record import begin, reopen, update_run_record


def told(exit_code: int, signal: str, output: Path, oom_kills: int = 0) -> tuple[str, str]:
    found = outcome.outcome(exit_code, signal, output, oom_kills)
    return found["state"], found["reason"]


def output(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "train.out"
    path.write_text(text)
    return path


def test_exit_code_zero_is_completed(tmp_path: Path) -> None:
    assert told(0, "", output(tmp_path, "RuntimeError: caught and handled\n"))[0] == "completed"


def test_notice_of_a_closed_connection_is_no_cause(tmp_path: Path) -> None:
    text = "Exception raised from recvBytes at Utils.hpp:787 (most recent call first):\nerror: fabric check: too slow\n"
    assert told(1, "", output(tmp_path, text)) == ("failed", "error: fabric check: too slow")


def test_gpu_out_of_memory_is_oom_not_failed(tmp_path: Path) -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.91 GiB.\nRuntimeError: NCCL timeout\n"
    state, reason = told(1, "", output(tmp_path, text))
    assert state == "oom"
    assert "1.91 GiB" in reason


def test_cpu_out_of_memory_is_oom(tmp_path: Path) -> None:
    text = "[rank1]: RuntimeError: [alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: 12 bytes\n"
    assert told(1, "", output(tmp_path, text))[0] == "oom"


def test_error_of_the_training_is_the_reason(tmp_path: Path) -> None:
    text = "loading\n 10%|#    | 1/10\rerror: TRAIN_SIZE='x': expected a whole number\nValueError: later\n"
    assert told(1, "", output(tmp_path, text)) == ("failed", "error: TRAIN_SIZE='x': expected a whole number")


def test_signal_to_the_launcher_is_cancelled_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert told(143, "TERM", output(tmp_path, "")) == ("cancelled", "the launcher received SIGTERM")


def test_task_that_srun_says_ran_out_of_memory_is_oom(tmp_path: Path) -> None:
    assert told(137, "", output(tmp_path, "srun: error: node2: task 1: Out Of Memory\n"))[0] == "oom"


def test_task_that_srun_kills_after_another_failed_does_not_hide_its_error(tmp_path: Path) -> None:
    error = "[rank1]: error (rank 1): TRAIN_SIZE=20000: found 192 examples in sample, expected at most as many"
    srun = "srun: error: node4: task 1: Exited with exit code 1\nsrun: error: node3: task 0: Killed\n"
    assert told(137, "", output(tmp_path, f"{error}\n{srun}")) == ("failed", error)


def test_cancelled_step_whose_tasks_are_killed_is_cancelled(tmp_path: Path) -> None:
    step = "slurmstepd-node3: error: *** STEP 2.0 ON node3 CANCELLED AT 2026-11-21T15:50:55 ***"
    text = f"{step}\nsrun: error: node3: task 0: Killed\n"
    assert told(137, "", output(tmp_path, text)) == ("cancelled", step)


def test_killed_training_is_not_blamed_on_an_error_it_survived(tmp_path: Path) -> None:
    state, reason = told(137, "", output(tmp_path, "CommError: no network\n{'loss': 0.5}\n"))
    assert (state, reason) == ("failed", "the training was killed (SIGKILL), and not by the launcher")


@pytest.mark.parametrize(
    "launcher",
    [
        "E1121 20:15:19.059000 27359 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) "
        "local_rank: 1 (pid: 27369) of binary: python\ntorch.distributed.elastic.ChildFailedError: ",
        "[2026-11-21 20:15:19,059] [ERROR] [launch.py:259:sigkill_handler] ['python3', '-u', 'train.py'] "
        "exits with return code = -9",
    ],
    ids=["torchrun", "deepspeed"],
)
def test_rank_that_the_kernel_killed_for_memory_is_oom_and_not_the_launchers_own_error(
    launcher: str, tmp_path: Path
) -> None:
    text = output(tmp_path, f"RuntimeError: connection closed by peer\n{launcher}\n")
    assert told(1, "", text, oom_kills=1)[0] == "oom"
    state, reason = told(1, "", text)
    assert (state, "a rank was killed (SIGKILL), and not by the launcher: " in reason) == ("failed", True)


def test_processes_killed_before_the_run_are_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPERIMENT_NAME", "baseline")
    monkeypatch.setattr(outcome, "kernel_oom_kills", lambda: 54)
    states = []
    for before in (53, 54):
        begin(tmp_path, "baseline", "", ["python", "train.py"], before)
        states.append(record_end(tmp_path, 137, "")["state"])
    assert states == ["oom", "failed"]


def test_update_keeps_earlier_facts(tmp_path: Path) -> None:
    update_run_record(tmp_path, state="running", exercise="baseline")
    update_run_record(tmp_path, state="completed")
    assert json.loads((tmp_path / "run.json").read_text()) == {"state": "completed", "exercise": "baseline"}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("text", "state", "cause"),
    [
        ("OSError: [Errno 28] No space left on device\n", "failed", "disk full"),
        ("srun: error: node2: task 1: Out Of Memory\n", "oom", "host memory"),
        ("torch.OutOfMemoryError: CUDA out of memory.\n", "oom", ""),
        ("ValueError: bad batch\n", "failed", ""),
    ],
)
def test_cause_is_recorded_beside_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, state: str, cause: str
) -> None:
    monkeypatch.setenv("EXPERIMENT_NAME", "baseline")
    begin(tmp_path, "baseline", "", ["python", "train.py"], 0)
    record_end(output(tmp_path, text).parent, 1, "")
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["state"], record["cause"], record["reason"]) == (state, cause, text.strip())


def test_key_in_an_edited_file_is_not_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, diff = KEYS["WANDB_API_KEY"], "diff --git a/baseline/env_vars.sh b/baseline/env_vars.sh\n"
    diff += f"+export WANDB_API_KEY={key}\n+os.environ['HF_TOKEN'] = \"{key}\"\n+export TOKENIZER_NAME=gpt2\n"
    monkeypatch.setattr(run_record, "code_version", lambda: ("1f3a", True, diff))
    monkeypatch.setenv("EXPERIMENT_NAME", "baseline")
    begin(tmp_path, "baseline", "", ["python", "train.py"], 0)
    assert leaked(tmp_path) == []
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "debug.log").write_text(f"key {key}\n")  # that the search finds one
    assert [path.name for path in leaked(tmp_path)] == ["debug.log"]
    for text in ((tmp_path / "code.diff").read_text(), json.loads((tmp_path / "run.json").read_text())["git_diff"]):
        assert text.splitlines()[1:] == [
            "+export WANDB_API_KEY=[left out]",
            "+os.environ['HF_TOKEN'] = [left out]",
            "+export TOKENIZER_NAME=gpt2",
        ]
    (tmp_path / "wandb" / "debug.log").unlink()


def test_attempt_whose_launcher_was_killed_after_the_last_checkpoint_says_that_it_was_saved(tmp_path: Path) -> None:
    record = {
        "state": "preempted",
        "reason": "the launcher received SIGTERM",
        "start_time": "2026-11-22T10:00:00+00:00",
    }
    update_run_record(tmp_path, **record)
    Control(tmp_path).say("saved 25")
    (tmp_path / "steps.csv").write_text("step,step_time_s,tokens,real_tokens,loss\n24,0.1,9,9,1\n25,0.1,9,9,1\n2")
    reopen(tmp_path, "out/checkpoint-20", "failed")
    (attempt,) = json.loads((tmp_path / "run.json").read_text())["attempts"]
    assert attempt["reason"] == "the launcher received SIGTERM: checkpoint-25 was saved"
    assert (attempt["last_step"], attempt["steps_lost"]) == (25, 5)


JOB_V1 = "memory/slurm/uid_0/job_7"


@pytest.mark.parametrize(
    ("group", "counters"),
    [
        ("4:memory:/job_7\n0::/", {"memory/job_7/memory.oom_control": 1}),
        ("4:memory:/mine", {"memory/mine/memory.oom_control": 1, "memory/mine/other_s/memory.oom_control": 5}),
        (
            "11:cpu,cpuacct:/\n4:hugetlb,memory:/slurm/uid_0/job_7/step_batch/task_0",
            {
                f"{JOB_V1}/memory.oom_control": 0,
                f"{JOB_V1}/step_batch/memory.oom_control": 0,
                f"{JOB_V1}/step_0/task_1/memory.oom_control": 1,
            },
        ),
        ("4:memory:/docker/1f3a", {"memory/memory.oom_control": 1}),
        ("0::/user.slice/session-7.scope", {"user.slice/session-7.scope/memory.events": 1}),
        ("0::/", {"memory.events": 1}),
        (
            "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0",
            {"system.slice/slurmstepd.scope/job_7/memory.events": 1},
        ),
    ],
    ids=["v1", "v1, outside of SLURM", "v1, SLURM", "v1, container", "v2", "v2, container", "v2, SLURM"],
)
def test_memory_that_another_job_of_the_node_ran_out_of_is_not_this_one_s(
    tmp_path: Path, group: str, counters: dict[str, int]
) -> None:
    """It made a soak's killed rank an `oom`, which is not started again."""
    files = {"proc/vmstat": "oom_kill 3\n", "proc/self/cgroup": group}
    files |= {f"sys/fs/cgroup/{name}": f"under_oom 0\noom_kill {kills}\n" for name, kills in counters.items()}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert kernel_oom_kills(tmp_path) == 1
    for counter in counters:
        (tmp_path / "sys/fs/cgroup" / counter).unlink()  # a container that does not show it
    assert kernel_oom_kills(tmp_path) == 3
