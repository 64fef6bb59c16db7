"""A course of three on the real SLURM; course.py alone holds one of forty."""

import os
from pathlib import Path

import pytest
from course import after, hold, submit_all
from throwaway_slurm import ThrowawaySlurm

from tools.logs.runs import find_runs


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give the folders to several users")
def test_everybody_s_run_is_watched_graded_and_on_the_page(slurm: ThrowawaySlurm, tmp_path: Path) -> None:
    """Two complete, started from the root and from inside the exercise's folder; the third has no such model."""
    people = submit_all(slurm, tmp_path / "people", 3)
    rows = [*hold(slurm, people, tmp_path), *after(people, tmp_path)]
    assert [row for row in rows if row.startswith("unexpected")] == []
    runs = find_runs(*(person.job.folder for person in people))
    assert sorted(run.state for run in runs) == ["completed", "completed", "failed"]
    assert all(run.record.slurm_job_id for run in runs)
    assert "Grades: 2 right, 1 cannot be checked" in rows[-1]
    assert str(people[0].user) in (tmp_path / "watch.txt").read_text()
    assert "3 runs of 3 people" in (tmp_path / "page/index.html").read_text()
