"""The live view's queue, of a real SLURM."""

from pathlib import Path

import pytest
from throwaway_slurm import ThrowawaySlurm

from tools.watch import queue

REPO = Path(__file__).parents[2]


def test_held_job_waits_with_slurms_own_reason(slurm: ThrowawaySlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.env[name])
    job = slurm.submit("baseline.slurm", cwd=REPO / "baseline", options=["--hold"])
    try:
        (found,) = [one for one in queue.waiting() if one.job == str(job)]
    finally:
        slurm.cancel(job)
    assert (found.name, found.reason, found.start) == ("baseline", "JobHeldUser", "N/A")
