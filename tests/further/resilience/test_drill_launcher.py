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


def test_told_to_end_it_saves_once_and_submit_resumes_it(ranks: Ranks, tmp_path: Path) -> None:
    undisturbed, logs, shm = (tmp_path / name for name in ("undisturbed", "logs", "shm"))
    own = SHORT | {"SAVE": "steps", "WEIGHT_DECAY": "0.01"}
    ranks.train([training(undisturbed, "resilience", "fsdp_configs/ddp.json", **own)], ranks=1)
    environment = tiny_profile() | SHORT | {"LOG_DIR": str(logs), "FAULT": "preemption"}
    run(*with_own_shm(shm), "bash", "further/resilience/drill.slurm", code=143, env=environment)
    folder = only_run(logs, "resilience")
    assert leftovers(folder, shm) == []
    saved = f"SIGTERM: checkpoint-{len(losses(folder))} was saved, then the training ended"
    assert (record(folder)["state"], record(folder)["reason"]) == ("preempted", saved)
    words = ("python", "-m", "tools", "submit", "--local", "--logs", logs, "--resume", folder.name)
    run(*words, env=tiny_profile(), FAULT="preemption")
    assert [one["steps_lost"] for one in record(folder)["attempts"]] == [0]
    assert losses(folder) == pytest.approx(losses(undisturbed), abs=1e-5)
    assert (folder / "cpu_memory.txt").read_text().count("#") == 2, "the first attempt's log is gone"
