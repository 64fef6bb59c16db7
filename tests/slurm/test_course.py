"""A class of three on the real SLURM: everybody's run is watched, graded and on the page."""

import csv
import os
from pathlib import Path

import pytest
from submitting import submit
from throwaway_slurm import ThrowawaySlurm

from tests.launching import REPO
from tools.__main__ import main
from tools.logs.runs import find_runs

# The smallest training that fills every row of the tiny tables.
SETTINGS = {"TRAIN_SIZE": "16", "GENERATE_SIZE": "2", "MAX_STEPS": ""}
NO_MODEL = {"MODEL_NAME": "/no-model", "MODEL_INIT": "pretrained"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give the folders to several users")
def test_class_is_watched_and_graded(slurm: ThrowawaySlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two complete, started from the root and from inside the exercise's folder; the third has no such model."""
    places = [("baseline/baseline.slurm", REPO, {}), ("baseline.slurm", REPO / "baseline", {})]
    places += [("baseline/baseline.slurm", REPO, NO_MODEL)]
    jobs = {
        user: submit(slurm, tmp_path / str(user), script, options="--mem=2G", cwd=cwd, **SETTINGS | own)
        for user, (script, cwd, own) in enumerate(places, 50_001)
    }
    for user, job in jobs.items():
        slurm.wait(job.id, timeout_s=400)
        os.chown(job.run, user, -1)
    runs = find_runs(*(job.folder for job in jobs.values()))
    assert sorted(run.state for run in runs) == ["completed", "completed", "failed"]
    assert all(run.record.slurm_job_id for run in runs)

    def said(*words: str | Path) -> str:
        main(list(map(str, words)))
        return capsys.readouterr().out

    logs = ["--logs", *(job.folder for job in jobs.values())]
    assert all(str(user) in said("watch", "--once", *logs) for user in jobs)
    files = [tmp_path / f"{user}.md" for user in jobs]
    for file, job in zip(files, jobs.values(), strict=True):
        file.write_text(said("fill", "baseline", "--tiny", "--plain", "--logs", job.folder))
    rows = [*csv.DictReader(said("grade", *files, "--format", "csv", *logs).splitlines())]
    assert [(row["wrong"], row["right"] > "0", bool(row["problem"])) for row in rows[:2]] == [("0", True, False)] * 2
    said("page", *logs, "--output", tmp_path / "page")
    assert "3 runs of 3 people" in (tmp_path / "page/index.html").read_text()
