"""The drill's launcher without SLURM: what dies begins again in the same job, what was told to end is resumed."""

from pathlib import Path

import pytest

from tests.launching import losses, only_run, record, run, tiny_profile
from tests.leftovers import leftovers, with_own_shm
from tests.trainings_on_ranks import Ranks, training

SHORT = {
    **{"TRAIN_SIZE": "64", "EVAL_SIZE": "4", "MAX_LENGTH": "64", "BATCH_SIZE": "2", "GRAD_ACC": "1"},
    **{"MAX_STEPS": "40", "SAVE_STEPS": "10", "FAULT_STEP": "25", "OMP_NUM_THREADS": "1"},
}


def launched(folder: Path, fault: str, code: int) -> Path:
    """The run folder of a job that has ended with this exit code and left nothing."""
    environment = tiny_profile() | SHORT | {"LOG_DIR": str(folder), "FAULT": fault}
    run(*with_own_shm(folder / "shm"), "bash", "further/resilience/drill.slurm", code=code, env=environment)
    found = only_run(folder, "resilience")
    assert leftovers(found, folder / "shm") == []
    return found


@pytest.fixture(scope="module")
def undisturbed(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that nothing happens to, without a launcher."""
    folder = tmp_path_factory.mktemp("undisturbed")
    own = SHORT | {"SAVE": "steps", "WEIGHT_DECAY": "0.01"}
    ranks.train([training(folder, "resilience", "fsdp_configs/ddp.json", **own)], ranks=1)
    return folder


def test_told_to_end_it_saves_once_and_submit_resumes_it(undisturbed: Path, tmp_path: Path) -> None:
    folder = launched(tmp_path, "preemption", 143)
    saved = f"SIGTERM: checkpoint-{len(losses(folder))} was saved, then the training ended"
    assert (record(folder)["state"], record(folder)["reason"]) == ("preempted", saved)
    words = ("python", "-m", "tools", "submit", "--local", "--logs", tmp_path, "--resume", folder.name)
    run(*words, env=tiny_profile(), FAULT="preemption")
    assert [one["steps_lost"] for one in record(folder)["attempts"]] == [0]
    assert losses(folder) == pytest.approx(losses(undisturbed), abs=1e-5)
    assert (folder / "cpu_memory.txt").read_text().count("#") == 2, "the first attempt's log is gone"
