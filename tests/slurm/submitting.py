"""A job of the throw-away SLURM, and its run."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from throwaway_slurm import ThrowawaySlurm

from tests.launching import REPO, program, record, tiny_profile, wait_until
from tests.leftovers import leftovers

# The smallest training that uses every part.
SHORT = {
    **{"TRAIN_SIZE": "64", "EVAL_SIZE": "4", "MAX_LENGTH": "64", "BATCH_SIZE": "2", "GRAD_ACC": "1"},
    **{"MAX_STEPS": "4", "GENERATE_SIZE": "0", "SAVE": "no", "OMP_NUM_THREADS": "1"},
}


@dataclass(frozen=True)
class Job:
    """Attributes: folder: for its runs and its output, which are of no other job."""

    cluster: ThrowawaySlurm
    id: int
    folder: Path

    @property
    def output(self) -> str:
        return self.cluster.job_output(self.id)

    @property
    def run(self) -> Path:
        (run,) = {path.parent for path in self.folder.glob("*/*/run.json")}
        return run

    def record(self, ended_as: str = "COMPLETED") -> dict[str, Any]:
        """Its run.json after the end, which is the one that is given, and after which nothing is left."""
        state = self.cluster.wait(self.id, timeout_s=400)
        assert state == ended_as, self.output[-4000:]
        wait_until(lambda: leftovers(self.run, self.cluster.shm) == [])
        return record(self.run)

    def wait_for(self, file: str, text: str) -> None:
        """Return when that file of the run folder holds the text."""
        files = f"*/*/{file}"
        wait_until(lambda: any(text in path.read_text() for path in self.folder.glob(files)))


def submit(
    cluster: ThrowawaySlurm, folder: Path, script: str, *args: str, options: str = "", cwd: Path = REPO, **settings: str
) -> Job:
    """A launcher as a job with the smallest training, changed by `settings`, of which an empty one is not set."""
    folder.mkdir()
    environment = tiny_profile() | SHORT | {"LOG_DIR": str(folder)} | settings
    environment = {name: value for name, value in environment.items() if value}
    all_options = [f"--output={folder}/job.out", "--mem=3G", "--cpus-per-task=1", *options.split()]
    return Job(cluster, cluster.submit(script, *args, cwd=cwd, options=all_options, env=environment), folder)


def stand_in(folder: Path, name: str, lines: str) -> dict[str, str]:
    """Settings with which a launcher finds these lines of bash as a program of its Python environment."""
    program(folder / "venv/bin" / name, lines)
    program(folder / "venv/bin/python", f'exec {sys.executable} "$@"')
    return {"WORKSHOP_VENV": f"{folder}/venv"}
