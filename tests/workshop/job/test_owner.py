"""A run folder has one owner: a second job wrote "its node failed" into the living run's record, and trained, too."""

from pathlib import Path

from test_processes import FSDP, STEPS, ended, waiting
from test_processes import started as training
from test_supervisor import FINISHED, finished, started

from tests.launching import only_run, record, wait_until
from tests.leftovers import processes_of
from workshop.record.run_record import update_run_record

SOON = "from workshop.job import processes; processes.WAIT_S = 0.1"
LOGGED = FSDP.replace("PSS_LOGGER", "CPU_LOGGER='psrecord --include-children --interval 1' PSS_LOGGER")
HOLDS = f"touch begun; until [ -e go ]; do sleep 0.05; done; {FINISHED}"


def test_K11_run_is_resumed_once_the_rank_of_its_killed_supervisor_has_ended(tmp_path: Path) -> None:
    """Its rank then has ten seconds to end: the next job waits for it. No logger is left either."""
    job = training(tmp_path, LOGGED)
    run = waiting(job, tmp_path)
    assert record(run)["state"] == "running", "which `runs` shows as lost once the supervisor is dead"
    wait_until(lambda: all(name in str(processes_of(run)) for name in ("psrecord", "memory_logger")))
    job.kill()
    following = training(tmp_path, FSDP, RESUME_RUN=str(run))
    assert ended(following, run) == (0, "completed", STEPS)
    assert [one["resumed_step"] for one in record(run)["attempts"]] == [10]
    job.communicate(timeout=60)


def test_of_two_resumes_of_a_run_one_trains_and_a_later_one_is_told_that_it_is_completed(tmp_path: Path) -> None:
    finished(tmp_path, "exit 1")
    run = only_run(tmp_path)
    both = [started(tmp_path, f"echo >> trained; {HOLDS}", SOON, RESUME_RUN=str(run)) for _ in range(2)]
    wait_until(lambda: any(job.poll() is not None for job in both) and (run / "begun").exists())
    assert record(run)["state"] == "running" and len(record(run)["attempts"]) == 1
    (run / "go").touch()
    shown = [job.communicate(timeout=120)[0] for job in both]
    assert sorted(job.returncode for job in both) == [0, 1]
    assert sum(f"error: {run}: its job still runs; expected a run that has ended" in text for text in shown) == 1
    assert (run / "trained").read_text() == "\n" and len(record(run)["attempts"]) == 1
    update_run_record(run, state="running", end_time=None)  # as after SIGKILL of the supervisor: the mark is there
    code, found, text = finished(tmp_path, f"echo >> trained; {HOLDS}", SOON, RESUME_RUN=str(run))
    assert (code, found["state"], len(found["attempts"])) == (0, "completed", 1)
    assert f"{run}: this run is completed, nothing is left to train" in text
    assert (run / "trained").read_text() == "\n"
