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

# In a training that is a line of bash. `$PPID` is the node's process; the supervisor is LAUNCHER_PID.
SAVES = "touch started; echo saves >> .control;"
STOPPED = "until grep -q stop .control; do sleep 0.05; done;"
TO_7 = 'echo "saved 7" >> .control'
LONG, STARTED = "exec sleep 60", "touch started;"
TERM = "the launcher received SIGTERM"
COMPLETED, CANCELLED = ("completed", "", True), ("cancelled", TERM, True)


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


SAVED = "SIG{}: checkpoint-7 was saved, then the training ended"


@pytest.mark.parametrize(
    ("training", "check", "end"),
    [
        (STARTED, "echo error: too slow; exit 46", (46, "failed", "error: too slow", False)),
        (STARTED, "kill -TERM $PPID", (143, "cancelled", TERM, False)),
        (f"{STARTED} kill -USR1 $LAUNCHER_PID; {STOPPED} {TO_7}", "", (143, "timeout", SAVED.format("USR1"), True)),
        (f"{STARTED} {STOPPED} {TO_7}", "kill -USR1 $PPID", (143, "timeout", SAVED.format("USR1"), True)),
        (f"{STARTED} echo saves nothing >> .control; kill -USR1 $LAUNCHER_PID; sleep 0.5", "", (0, *COMPLETED)),
        (f"{SAVES} kill -USR1 $LAUNCHER_PID; {STOPPED} {TO_7}", "", (143, "timeout", SAVED.format("USR1"), True)),
        (f"{SAVES} kill -TERM $LAUNCHER_PID; {STOPPED} {TO_7}", "", (143, "preempted", SAVED.format("TERM"), True)),
        (f"{SAVES} kill -INT $LAUNCHER_PID; {STOPPED} {TO_7}", "", (143, "cancelled", SAVED.format("INT"), True)),
        (f"{SAVES} kill -TERM $LAUNCHER_PID; {STOPPED} echo over >> .control", "", (0, *COMPLETED)),
        (f"{SAVES} kill -TERM $LAUNCHER_PID; {STOPPED} kill -TERM $LAUNCHER_PID; {LONG}", "", (143, *CANCELLED)),
        (f"{STARTED} kill -TERM $LAUNCHER_PID; {LONG}", "", (143, *CANCELLED)),
    ],
)
def test_each_end_is_recorded_as_what_it_was(tmp_path: Path, training: str, check: str, end: tuple) -> None:
    changes = {"CHECK_FIRST": f"bash -c '{check}'"} if check else {}
    code, record, _ = finished(tmp_path, training, **changes)
    assert (code, *ended(record), (only_run(tmp_path) / "started").exists()) == end


def test_signal_while_a_dead_training_is_looked_at_ends_the_job_instead_of_starting_it_again(tmp_path: Path) -> None:
    """To look at a large checkpoint takes a while."""
    looks = """
    def newest_checkpoint(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return Path("checkpoint-1")
    """
    code, record, _ = finished(tmp_path, "echo >> started; echo ValueError: bad; exit 1", looks)
    assert (code, *ended(record)) == (1, "cancelled", TERM)
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


def test_end_is_written_down_while_the_training_saves_and_its_unfinished_checkpoint_is_left_alone(
    tmp_path: Path,
) -> None:
    """SLURM kills everything a few seconds after its TERM."""
    told = 'until grep "^  .state.: .cancelled" run.json; do sleep 0.1; done'
    training = f"mkdir -p out/unfinished; {SAVES} kill -TERM $LAUNCHER_PID; {told};"
    code, record, _ = finished(tmp_path, f'{training} rmdir out/unfinished && echo "saved 7" >> .control')
    assert (code, record["state"]) == (143, "preempted")


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
