"""The supervisor with real child processes: no signal is lost, each end is recorded as what it was, nothing is left."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.launching import PATH, REPO, only_run, program, run, tiny_profile
from tests.leftovers import leftovers
from workshop.job.outcome import NO_END, NOT_BEGUN

pytestmark = pytest.mark.long

# In a training that is a line of bash. `$PPID` is the node's process; the supervisor is LAUNCHER_PID.
SAVES = "echo saves >> .control;"
FINISHED = "echo finished >> .control"
STOPPED = "until grep -q stop .control; do sleep 0.05; done;"


# What launch.sh hands over, without loggers.
HANDED = {
    **{"EXERCISE_DIR": str(REPO / "baseline"), "REPO": str(REPO), "LAUNCHER": "baseline.slurm"},
    **{"LAUNCHER_ARGUMENTS": "", "CONFIG": "", "EXPERIMENT_NAME": "baseline", "OUTPUT_DIR": "out"},
    **{"NNODES": "1", "NPROC_PER_NODE": "1", "PYTHONPATH": str(REPO)},
}


def started(folder: Path, training: str, subclass: str = "", **changes: str) -> subprocess.Popen[str]:
    """A job whose training is a line of bash in its run folder. Args: subclass: methods of a supervisor of its own."""
    script = f"""
import os, signal, sys
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also under nohup
from workshop.job import supervisor
class Supervisor(supervisor.Supervisor):
    "as it is"
{textwrap.indent(textwrap.dedent(subclass), "    ")}
os.environ["LAUNCHER_PID"] = str(os.getpid())
supervisor.Supervisor = Supervisor
supervisor.main()
"""
    command = [sys.executable, "-c", script, "bash", "-c", f"cd $RUN_DIR; {training}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environ = tiny_profile() | HANDED | {"LOG_DIR": str(folder)} | changes
    return subprocess.Popen(command, cwd=REPO / "baseline", env=environ, **pipes)


def finished(folder: Path, training: str, subclass: str = "", **changes: str) -> tuple[int, dict, str]:
    """Exit code, run.json and what was shown."""
    launched = started(folder, training, subclass, **changes)
    shown, _ = launched.communicate(timeout=120)
    run = only_run(folder)
    assert leftovers(run, folder / "shm") == [], shown
    return launched.returncode, json.loads((run / "run.json").read_text()), shown


def ended(record: dict) -> tuple[str, str]:
    return record["state"], record["reason"]


def test_deepspeed_on_emulated_nodes_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    """It ended at its start: the hostfile had one node, and each would have been given the same GPUs."""
    two_nodes = {"NNODES": "2", "DEEPSPEED_HOSTS": "localhost", "LOG_DIR": str(tmp_path / "logs")}
    command = [sys.executable, "-m", "workshop.job.supervisor", "deepspeed", "train.py"]
    job = run(*command, code=1, cwd=REPO / "baseline", env=tiny_profile() | HANDED | two_nodes)
    assert job.stderr.startswith("error: EMULATED_NODES=2: deepspeed gives each node of one host the same GPUs;")
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    "damage",
    [
        *["echo { > run.json", "echo [] > run.json", "rm run.json", "rm train.out", "echo damaged > steps.csv"],
        *["rm .control; mkdir .control", "rm *; rm -f .control .reserve"],
    ],
)
def test_damaged_or_deleted_file_costs_itself_and_the_run_has_failed(tmp_path: Path, damage: str) -> None:
    code, record, shown = finished(tmp_path, f"{damage}; exit 3")
    assert "Traceback" not in shown
    assert (code, record["exercise"], record["state"], record["exit_code"]) == (3, "baseline", "failed", 3)


HAS_SAVED = """
def newest_checkpoint(self):
    return Path("checkpoint-1")
"""
LOOKS = HAS_SAVED.replace("    return", "    os.kill(os.getpid(), signal.SIG{})\n    return")


@pytest.mark.parametrize(
    ("name", "end"), [("TERM", ("cancelled", "the launcher received SIGTERM")), ("USR1", ("failed", "ValueError: bad"))]
)
def test_signal_while_a_dead_training_is_looked_at_ends_the_job(tmp_path, name, end) -> None:
    """To look at a large checkpoint takes a while."""
    code, record, _ = finished(tmp_path, "echo >> started; echo ValueError: bad; exit 1", LOOKS.format(name))
    assert (code, *ended(record)) == (1, *end)
    assert (only_run(tmp_path) / "started").read_text() == "\n"


@pytest.mark.parametrize(("restarts", "resumed"), [("9", [1, 2, 3]), ("2", [1, 2])])
def test_dead_training_is_started_again_while_it_comes_further(tmp_path, restarts, resumed) -> None:
    """Each attempt leaves a newer checkpoint until the third; the fourth has none to go on from."""
    further = """
    def newest_checkpoint(self):
        return self.run_dir / f"checkpoint-{min(3, len((self.run_dir / 'started').read_text()))}"
    """
    code, record, shown = finished(tmp_path, "echo >> started; exit 1", further, RESTARTS=restarts)
    assert (code, record["state"]) == (1, "failed")
    assert [attempt["resumed_step"] for attempt in record["attempts"]] == resumed
    assert shown.count("the run goes on from ") == len(resumed)


def test_exit_code_0_without_the_trainings_end_mark_is_a_failure_and_is_started_again(tmp_path: Path) -> None:
    """A killed launch.py of DeepSpeed: `deepspeed` returns 0, and its ranks had trained 39 of 1,500 steps. With the
    mark an exit code of 1 says nothing, either.
    """
    training = f"if [ -e started ]; then {FINISHED}; exit 1; fi; touch started"
    no_end = ("failed", f"exit code 0, but {NO_END}", 1)
    code, record, _ = finished(tmp_path, training, HAS_SAVED)
    assert (code, *ended(record), record["exit_code"]) == (0, "completed", "", 0)
    (attempt,) = record["attempts"]
    assert (*ended(attempt), attempt["exit_code"]) == no_end
    code, record, _ = finished(tmp_path / "alone", "true")
    assert (code, *ended(record), record["exit_code"]) == (1, *no_end)


NOTICE, TERM, INT, HUP = (f"kill -{name} $LAUNCHER_PID" for name in ("USR1", "TERM", "INT", "HUP"))
RECEIVED = "the launcher received SIGTERM"
KILLED = "a rank or its launcher was killed (SIGKILL), and not by the supervisor"
FULL = "OSError: [Errno 28] No space left on device"  # which was recorded as a preemption
TRAINS = "touch started"
SAVED = "checkpoint-7 was saved, then the training ended"
TOLD = f'{STOPPED} echo "saved 7" >> .control'
# SLURM kills everything a few seconds after its TERM: so the end is written down while the training still saves.
RECORDED = (
    f"mkdir -p out/unfinished; {SAVES} {TERM}; "
    'until grep "^  .state.: .cancelled" run.json; do sleep 0.1; done; rmdir out/unfinished'
)


@pytest.mark.parametrize(
    ("training", "changes", "code", "state", "reason", "starts"),
    [
        (TRAINS, {"CHECK_FIRST": "bash -c 'echo error: slow; exit 46'"}, 46, "failed", "error: slow", False),
        (TRAINS, {"CHECK_FIRST": "bash -c 'kill -TERM $PPID'"}, 143, "cancelled", RECEIVED, False),
        (TRAINS, {"NOTICED": "USR1"}, 143, "timeout", NOT_BEGUN, False),
        (TRAINS, {"CHECK_FIRST": "bash -c 'kill -USR1 $PPID'"}, 143, "timeout", NOT_BEGUN, False),
        (f"{TRAINS}; {NOTICE}; exec sleep 60", {}, 143, "timeout", NOT_BEGUN, True),
        (f"echo saves nothing >> .control; {NOTICE}; sleep 0.5; {TRAINS}; {FINISHED}", {}, 0, "completed", "", True),
        (f"{TRAINS}; {SAVES} {NOTICE}; {TOLD}", {}, 143, "timeout", f"SIGUSR1: {SAVED}", True),
        (f"{TRAINS}; {SAVES} {TERM}; {TOLD}", {}, 143, "preempted", f"SIGTERM: {SAVED}", True),
        (f"{TRAINS}; {SAVES} {TERM}; {STOPPED} echo '{FULL}'; exit 1", {}, 1, "failed", FULL, True),
        (f"{TRAINS}; {SAVES} {INT}; {TOLD}", {}, 143, "cancelled", f"SIGINT: {SAVED}", True),
        (f"{TRAINS}; {SAVES} {HUP}; {TOLD}", {}, 143, "cancelled", f"SIGHUP: {SAVED}", True),
        (f"{RECORDED} && {TRAINS}; {TOLD}", {}, 143, "preempted", f"SIGTERM: {SAVED}", True),
        (f"{TRAINS}; {SAVES} {TERM}; {STOPPED} echo over >> .control; {FINISHED}", {}, 0, "completed", "", True),
        (f"{TRAINS}; {SAVES} {TERM}; {STOPPED} {TERM}; exec sleep 60", {}, 143, "cancelled", RECEIVED, True),
    ],
    ids=[
        *("check fails", "cancelled between two steps", "notice before the run folder", "notice before the training"),
        *("notice while it imports", "notice, saves nothing", "notice, saves", "told, saves", "told, disk full"),
        *("Ctrl-C, saves", "terminal closed, saves", "unfinished checkpoint", "told after its end", "second signal"),
    ],
)
def test_signal_does_what_the_table_says_and_the_record_says_what_it_was(
    tmp_path: Path, training: str, changes: dict[str, str], code: int, state: str, reason: str, starts: bool
) -> None:
    ended_with, record, shown = finished(tmp_path, training, **changes)
    assert (ended_with, *ended(record)) == (code, state, reason)
    assert (only_run(tmp_path) / "started").exists() == starts
    assert ("the training saves a checkpoint and ends" in shown) == (SAVES in training)


def test_outcome_is_recorded_although_the_output_is_closed(tmp_path: Path) -> None:
    """Ctrl-C ends a `tee` of the output, and a terminal that is closed takes nothing more."""
    launched = started(tmp_path, f"{SAVES} {INT}; {TOLD}")
    launched.stdout.close()
    assert launched.wait(timeout=120) == 143
    record = json.loads((only_run(tmp_path) / "run.json").read_text())
    assert ended(record) == ("cancelled", f"SIGINT: {SAVED}")


def test_rank_that_is_killed_while_it_saves_is_the_cause_and_the_job_queues_itself_again(tmp_path: Path) -> None:
    """SLURM has sent its notice; it starts the job again with a count. An array's last task has the array's id."""
    lines = f'echo "$*" >> {tmp_path}/asked; echo JobState=RUNNING Restarts=0 Requeue=1; echo Reason=OutOfMemory'
    program(tmp_path / "bin/scontrol", lines)
    job = {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}/bin:{PATH}"}
    training = f"[ $SLURM_RESTART_COUNT ] || {{ {SAVES} {NOTICE}; {STOPPED} kill -KILL $$; }}; {FINISHED}"
    code, record, shown = finished(tmp_path, training, HAS_SAVED, **job)
    assert (code, record["state"]) == (137, "failed") and record["reason"] == KILLED
    assert "requeue 7" in (tmp_path / "asked").read_text() and "queued again" in shown
    code, record, _ = finished(tmp_path, training, HAS_SAVED, SLURM_RESTART_COUNT="1", **job)
    assert (code, record["state"]) == (0, "completed")
    (attempt,) = record["attempts"]
    assert (attempt["state"], attempt["resumed_step"]) == ("failed", 1)
    assert attempt["reason"] == KILLED


def test_stopped_node_process_does_not_keep_the_job_for_ever(tmp_path: Path) -> None:
    """It could not see that its training had ended. Of a stopped launcher: test_node.py."""
    code, record, _ = finished(tmp_path, f"kill -STOP $PPID; {FINISHED}")
    assert (code, record["state"]) == (0, "completed")


def test_job_that_was_suspended_for_longer_than_a_look_goes_on(tmp_path: Path) -> None:
    """`scontrol suspend`, or Ctrl-Z and `fg`: the supervisor took the end of its wait for a signal, and died of it."""
    suspended = "kill -STOP $LAUNCHER_PID; sleep 0.5; kill -CONT $LAUNCHER_PID; sleep 0.5"
    code, record, _ = finished(tmp_path, f"{suspended}; {FINISHED}", "supervisor.processes.LOOK_EVERY_S = 0.1")
    assert (code, record["state"]) == (0, "completed")


def test_run_that_is_told_to_end_twice_saves_twice(tmp_path: Path) -> None:
    """The request of an earlier attempt, read as this one's, had it ended at once: its steps were lost."""
    waits = "until [ $(grep -c stop .control) -gt $before ]; do sleep 0.05; done"
    training = f'before=$(grep -c stop .control); {SAVES} {TERM}; {waits}; echo "saved $((7 + before))" >> .control'
    for saved in (7, 8):
        resumed = {"RESUME_RUN": str(only_run(tmp_path))} if saved == 8 else {}
        code, found, _ = finished(tmp_path, training, **resumed)
        assert (code, *ended(found)) == (143, "preempted", f"SIGTERM: {SAVED}".replace("7", str(saved)))


@pytest.mark.parametrize("write", ['path.write_text("a line")', 'with path.open("a") as file: file.write("a line")'])
def test_full_disk_is_named_with_the_file_that_is_written(tmp_path: Path, write: str) -> None:
    """It said `None: No space left on device`."""
    begins = f"""
    def begin(self, checkpoint):
        path = self.run_dir / "some.csv"
        path.symlink_to("/dev/full")
        {write}
    """
    shown, _ = started(tmp_path, "true", begins).communicate(timeout=60)
    assert f"error: {only_run(tmp_path)}/some.csv: No space left on device; expected a run folder" in shown
