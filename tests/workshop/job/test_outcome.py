"""How a run ended is told apart by evidence, and run.json is never half written."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.planted_keys import KEYS, leaked
from workshop.job import outcome
from workshop.job.outcome import begin, kernel_oom_kills, record_end
from workshop.run_folder.control import Control
from workshop.run_folder.errors import InputError
from workshop.run_folder.run_record import record_settings, update_run_record

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
        (0, "", "nothing said", 0, "failed", f"exit code 0, but {outcome.NO_END}"),
        (1, "", "ValueError: bad batch", 0, "failed", "ValueError: bad batch"),
        (1, "", "nothing said", 0, "failed", "exit code 1 without an error message in train.out"),
        (143, "TERM", "", 0, "cancelled", "the launcher received SIGTERM"),
        (137, "", f"{RANK_1}\nsrun: error: node4: task 1: Exited with exit code 1", 0, "failed", RANK_1),
        (137, "", f"{STEP}\nsrun: error: node3: task 0: Killed", 0, "cancelled", STEP),
        (137, "", "CommError: no network\n{'loss': 0.5}", 0, "failed", LAUNCHER_KILLED),
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


def test_training_on_fewer_processes_than_gpus_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NNODES": "2", "NPROC_PER_NODE": "4", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="2 processes were started; expected 2 nodes x 4 GPUs per node"):
        record_settings(SimpleNamespace(run_dir=tmp_path))


def test_processes_killed_before_the_run_are_not_its_own(
    tmp_path: Path, launched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.out").touch()
    for before, state in ((53, "oom"), (54, "failed")):
        monkeypatch.setattr(outcome, "kernel_oom_kills", lambda before=before: before)
        begin(tmp_path, ["python", "train.py"])
        monkeypatch.setattr(outcome, "kernel_oom_kills", lambda: 54)
        assert record_end(tmp_path, 137, "")["state"] == state


def test_key_in_an_edited_file_is_not_in_the_record(
    tmp_path: Path, launched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, code, run = KEYS["WANDB_API_KEY"], tmp_path / "code", tmp_path / "run"
    lines = [
        f"+login(token='{key}')",
        f"+export WANDB_API_KEY={key}",
        f"+os.environ['HF_TOKEN'] = \"{key}\"",
        "+export TOKENIZER_NAME=gpt2",
    ]
    for folder in (code, run):
        folder.mkdir()
    (code / "snapshot.json").write_text('{"git_commit": "1f3a", "git_dirty": true}')
    (code / "code.diff").write_text("\n".join(lines))
    monkeypatch.setattr(outcome, "__file__", str(code / "workshop/job/outcome.py"))
    begin(run, ["python", "train.py"])
    assert leaked(run) == []
    without = "+login(token=[left out])\n"
    without += "+export WANDB_API_KEY=[left out]\n+os.environ['HF_TOKEN'] = [left out]\n+export TOKENIZER_NAME=gpt2"
    assert (run / "code.diff").read_text() == without
    assert json.loads((run / "run.json").read_text())["git_diff"] == without
    (run / "debug.log").write_text(f"key {key}\n")  # that the search finds one
    assert [path.name for path in leaked(run)] == ["debug.log"]
    (run / "debug.log").unlink()


def test_attempt_whose_launcher_was_killed_after_the_last_checkpoint_says_that_it_was_saved(
    tmp_path: Path, launched: None
) -> None:
    record = {"state": "preempted", "reason": "the launcher received SIGTERM"}
    update_run_record(tmp_path, **record, start_time="2026-11-22T10:00:00+00:00")
    Control(tmp_path).say("saved 25")
    (tmp_path / "steps.csv").write_text("step,step_time_s,tokens,real_tokens,loss\n24,0.1,9,9,1\n25,0.1,9,9,1\n2")
    begin(tmp_path, ["python", "train.py"], "out/checkpoint-20")
    (attempt,) = json.loads((tmp_path / "run.json").read_text())["attempts"]
    assert attempt["reason"] == "the launcher received SIGTERM: checkpoint-25 was saved"
    assert (attempt["last_step"], attempt["steps_lost"]) == (25, 5)


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
    assert kernel_oom_kills(tmp_path) == 0


@pytest.mark.parametrize(("exit_code", "cause"), [(139, "Segmentation fault (SIGSEGV)"), (134, "Aborted (SIGABRT)")])
def test_signal_of_a_process_without_launcher_is_named(tmp_path: Path, exit_code: int, cause: str) -> None:
    (tmp_path / "train.out").write_text("loading\n")
    assert outcome.outcome(tmp_path, exit_code, "")["cause"] == cause
