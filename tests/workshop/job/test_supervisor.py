"""The supervisor with real child processes: no signal is lost, each end is recorded as what it was, nothing is left."""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.launching import PATH, REPO, tiny_profile, wait_until
from tests.leftovers import leftovers, processes_of
from workshop import job
from workshop.job.control import Control
from workshop.job.run_record import NOT_BEGUN

# In a training that is a line of bash. `$PPID` is the node's process; the supervisor is LAUNCHER_PID.
SAVES = "echo saves >> .control;"
STOPPED = "until grep -q stop .control; do sleep 0.05; done;"


def environment(folder: Path, **changes: str) -> dict[str, str]:
    """What launch.sh hands over, without loggers."""
    handed = {
        **{"EXERCISE_DIR": str(REPO / "baseline"), "REPO": str(REPO), "LAUNCHER": "baseline.slurm"},
        **{"LAUNCHER_ARGUMENTS": "", "CONFIG": "", "EXPERIMENT_NAME": "baseline", "OUTPUT_DIR": "out"},
        **{"NNODES": "1", "NPROC_PER_NODE": "1", "LOG_DIR": str(folder), "PYTHONPATH": str(REPO), "PATH": PATH},
    }
    return tiny_profile() | handed | changes


def started(folder: Path, training: str, subclass: str = "", **changes: str) -> subprocess.Popen[str]:
    """A job whose training is a line of bash in its run folder; `subclass`: methods of a supervisor of its own."""
    script = f"""
import os, signal, sys
from pathlib import Path
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
    return subprocess.Popen(command, cwd=REPO / "baseline", env=environment(folder, **changes), **pipes)


def finished(folder: Path, training: str, subclass: str = "", **changes: str) -> tuple[int, dict, str]:
    """Exit code, run.json and what was shown."""
    launched = started(folder, training, subclass, **changes)
    shown, _ = launched.communicate(timeout=120)
    run = only_run(folder)
    assert leftovers(run, folder / "shm") == [], shown
    return launched.returncode, json.loads((run / "run.json").read_text()), shown


def only_run(folder: Path) -> Path:
    (run,) = (folder / "baseline").iterdir()
    return run


def ended(record: dict) -> tuple[str, str]:
    return record["state"], record["reason"]


def test_training_that_ends_well_is_completed_and_its_output_is_kept(tmp_path: Path) -> None:
    code, record, shown = finished(tmp_path, "echo trains; echo aloud >&2")
    assert (code, record["state"], record["exit_code"]) == (0, "completed", 0)
    assert (only_run(tmp_path) / "train.out").read_text() == "trains\naloud\n"
    assert "trains\naloud\n" in shown and f"evidence: {only_run(tmp_path)}" in shown


@pytest.mark.parametrize("text", ["ValueError: bad batch", "error: DATASET=foo.json: no such file"])
def test_why_a_training_failed_is_said_once_after_its_own_words(tmp_path: Path, text: str) -> None:
    code, record, shown = finished(tmp_path, f"echo {text}; exit 3")
    assert (code, *ended(record)) == (3, "failed", text)
    said = [line for line in shown.splitlines() if line.endswith(text)]
    assert said == ([text] if text.startswith("error") else [text, f"failed: {text}"])


def test_check_that_fails_ends_the_job_with_its_code_and_no_training(tmp_path: Path) -> None:
    code, record, _ = finished(tmp_path, "touch started", CHECK_FIRST="bash -c 'echo error: too slow; exit 46'")
    assert (code, *ended(record)) == (46, "failed", "error: too slow")
    assert not (only_run(tmp_path) / "started").exists()


def test_job_that_is_cancelled_between_two_steps_does_not_start_the_next(tmp_path: Path) -> None:
    code, record, _ = finished(tmp_path, "touch started", CHECK_FIRST="bash -c 'kill -TERM $PPID'")
    assert (code, *ended(record)) == (143, "cancelled", "the launcher received SIGTERM")
    assert not (only_run(tmp_path) / "started").exists()


LOOKS = """
def newest_checkpoint(self):
    os.kill(os.getpid(), signal.SIG{})
    return Path("checkpoint-1")
"""


@pytest.mark.parametrize(
    ("name", "end"), [("TERM", ("cancelled", "the launcher received SIGTERM")), ("USR1", ("failed", "ValueError: bad"))]
)
def test_signal_while_a_dead_training_is_looked_at_ends_the_job_instead_of_starting_it_again(
    tmp_path: Path, name: str, end: tuple[str, str]
) -> None:
    """To look at a large checkpoint takes a while."""
    code, record, _ = finished(tmp_path, "echo >> started; echo ValueError: bad; exit 1", LOOKS.format(name))
    assert (code, *ended(record)) == (1, *end)
    assert (only_run(tmp_path) / "started").read_text() == "\n"


@pytest.mark.parametrize(("restarts", "resumed"), [("9", [1, 2, 3]), ("2", [1, 2])])
def test_dead_training_is_started_again_only_while_it_comes_further_and_as_often_as_is_set(
    tmp_path: Path, restarts: str, resumed: list[int]
) -> None:
    """Each attempt leaves a newer checkpoint until the third; the fourth has none to go on from."""
    further = """
    def newest_checkpoint(self):
        return self.run_dir / f"checkpoint-{min(3, len((self.run_dir / 'started').read_text()))}"
    """
    code, record, shown = finished(tmp_path, "echo >> started; exit 1", further, RESTARTS=restarts)
    assert (code, record["state"]) == (1, "failed")
    assert [attempt["resumed_step"] for attempt in record["attempts"]] == resumed
    assert shown.count("the run goes on from ") == len(resumed)


@pytest.mark.parametrize(
    ("training", "changes", "starts"),
    [
        ("touch started", {"NOTICED": "USR1"}, False),
        ("touch started", {"CHECK_FIRST": "bash -c 'kill -USR1 $PPID'"}, False),
        ("touch started; kill -USR1 $LAUNCHER_PID; exec sleep 60", {}, True),
    ],
    ids=["before the run folder", "before the training", "while it imports"],
)
def test_notice_before_the_training_has_begun_loses_nothing(
    tmp_path: Path, training: str, changes: dict[str, str], starts: bool
) -> None:
    code, record, _ = finished(tmp_path, training, **changes)
    assert (code, *ended(record)) == (143, "timeout", NOT_BEGUN)
    assert (only_run(tmp_path) / "started").exists() == starts


def test_notice_to_a_training_that_saves_nothing_lets_it_go_on(tmp_path: Path) -> None:
    training = 'echo "saves nothing" >> .control; kill -USR1 $LAUNCHER_PID; sleep 0.5; touch done'
    code, record, _ = finished(tmp_path, training)
    assert (code, record["state"], (only_run(tmp_path) / "done").exists()) == (0, "completed", True)


@pytest.mark.parametrize(
    ("name", "state"), [("USR1", "timeout"), ("TERM", "preempted"), ("INT", "cancelled")], ids=["USR1", "TERM", "INT"]
)
def test_training_that_saves_is_told_once_and_the_record_says_what_it_saved(
    tmp_path: Path, name: str, state: str
) -> None:
    training = f'{SAVES} kill -{name} $LAUNCHER_PID; {STOPPED} echo "saved 7" >> .control'
    code, record, shown = finished(tmp_path, training)
    saved = f"SIG{name}: checkpoint-7 was saved, then the training ended"
    assert (code, *ended(record)) == (143, state, saved)
    assert f"SIG{name}: the training saves a checkpoint and ends" in shown


def test_end_is_written_down_while_the_training_saves_and_its_unfinished_checkpoint_is_left_alone(
    tmp_path: Path,
) -> None:
    """SLURM kills everything a few seconds after its TERM."""
    told = 'until grep "^  .state.: .cancelled" run.json; do sleep 0.1; done'
    training = f"mkdir -p out/unfinished; {SAVES} kill -TERM $LAUNCHER_PID; {told};"
    code, record, _ = finished(tmp_path, f'{training} rmdir out/unfinished && echo "saved 7" >> .control')
    assert (code, record["state"]) == (143, "preempted")


def test_training_that_is_told_when_it_has_come_to_its_end_is_completed(tmp_path: Path) -> None:
    code, record, _ = finished(tmp_path, f"{SAVES} kill -TERM $LAUNCHER_PID; {STOPPED} echo over >> .control")
    assert (code, record["state"]) == (0, "completed")


def test_second_signal_ends_a_training_that_still_saves(tmp_path: Path) -> None:
    training = f"{SAVES} kill -TERM $LAUNCHER_PID; {STOPPED} kill -TERM $LAUNCHER_PID; exec sleep 60"
    code, record, _ = finished(tmp_path, training)
    assert (code, *ended(record)) == (143, "cancelled", "the launcher received SIGTERM")


def test_killed_supervisor_leaves_neither_training_nor_logger(tmp_path: Path) -> None:
    loggers = {"PSS_LOGGER": "python -m workshop.measure.memory_logger"}
    launched = started(tmp_path, "echo begun; exec sleep 60", **loggers)
    wait_until(lambda: [*tmp_path.glob("baseline/*/cpu_pss.txt")])
    run = only_run(tmp_path)
    launched.send_signal(signal.SIGKILL)
    launched.wait()
    wait_until(lambda: processes_of(run) == [])
    assert json.loads((run / "run.json").read_text())["state"] == "running", "which `runs` shows as lost"


def test_reader_that_goes_away_does_not_end_the_training(tmp_path: Path) -> None:
    launched = started(tmp_path, "until [ -e closed ]; do sleep 0.05; done; echo a; sleep 0.5; echo b; touch done")
    wait_until(lambda: [*tmp_path.glob("baseline/*/.control")])
    launched.stdout.close()
    (only_run(tmp_path) / "closed").touch()
    launched.wait(timeout=120)
    assert json.loads((only_run(tmp_path) / "run.json").read_text())["state"] == "completed"


def test_resumed_run_without_a_record_is_refused_by_name_and_makes_no_folder(tmp_path: Path) -> None:
    launched = started(tmp_path / "logs", "true", RESUME_RUN=str(tmp_path))
    shown, _ = launched.communicate(timeout=60)
    assert launched.returncode == 1 and not (tmp_path / "logs").exists()
    assert shown == f"error: RESUME_RUN='{tmp_path}': no run.json there; expected a run folder\n"


def test_lines_of_the_attempt_before_say_nothing_to_the_next(tmp_path: Path) -> None:
    control = Control(tmp_path)
    control.say("starting\nsaves\nstop\nsaved 12")
    assert control.told and control.saved == "12"
    control.say("starting")
    assert (control.lines(), control.told, control.saved) == ([], False, "")


def test_what_each_signal_does_is_one_table_in_the_code_and_in_the_exercise() -> None:
    table = [line for line in job.__doc__.splitlines() if line.startswith("|")]
    assert "\n".join(table) in (REPO / "resilience/README.md").read_text()
