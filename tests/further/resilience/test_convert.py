"""A ZeRO checkpoint of one number of processes is converted and goes on with another: the losses are the same."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.launching import REPO, run, steps
from tests.trainings_on_ranks import Ranks, training
from workshop.record.checkpoints import check, check_processes, fault
from workshop.record.errors import InputError

GLOBAL_MICRO_BATCHES = 2
SIZES = {
    **{"TRAIN_SIZE": "64", "MAX_LENGTH": "64", "BATCH_SIZE": "2", "MAX_STEPS": "10", "LEARNING_RATE": "2e-2"},
    **{"WEIGHT_DECAY": "0.3", "SAVE": "steps", "SAVE_STEPS": "5", "SAVE_LIMIT": "0"},
}


def trained(ranks: Ranks, run: Path, config: str | Path, processes: int, **settings: str) -> Path:
    """The run's checkpoint after step 5."""
    own = SIZES | {"GRAD_ACC": str(GLOBAL_MICRO_BATCHES // processes)} | settings
    ranks.train([training(run, "resilience", config, **own)], ranks=processes)
    return run / "bloom-qa-finetuned/checkpoint-5"


def converted(checkpoint: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    return run("python", "-m", "further.resilience.convert", checkpoint, code=code)


@pytest.mark.parametrize(
    ("config", "before", "after"),
    [
        ("zero2", 2, 1),
        *(
            pytest.param(config, *processes, marks=pytest.mark.slow)
            for config, *processes in (("zero1", 1, 2), ("zero3", 2, 1), ("zero3_offload", 1, 2))
        ),
    ],
)
def test_converted_checkpoint_goes_on_with_another_number(ranks, tmp_path, config, before, after) -> None:
    path = f"ds_configs/{config}.json"
    checkpoint = trained(ranks, tmp_path / "undisturbed", path, before)
    with pytest.raises(InputError, match=r"expected \d, or first `python -m further.resilience.convert /"):
        check_processes(checkpoint, after)
    (checkpoint / "global_step5_universal/tmp").mkdir(parents=True)  # of one that was killed
    converted(checkpoint)
    check(checkpoint, after)
    assert "any number of processes can load it already" in converted(checkpoint).stdout
    trained(ranks, tmp_path / "resumed", path, after, RESUME_FROM=str(checkpoint))
    runs = (tmp_path / "undisturbed", tmp_path / "resumed")
    whole, resumed = ([float(line["loss"]) for line in steps(run)] for run in runs)
    assert resumed == pytest.approx(whole[5:], rel=1e-6)  # six digits
    next(checkpoint.rglob("*universal/zero/*/exp_avg.pt")).write_bytes(b"")
    assert "exp_avg.pt has 0 bytes" in fault(checkpoint)


@pytest.mark.slow
def test_two_weight_decays_under_zero3_are_refused(ranks: Ranks, tmp_path: Path) -> None:
    """DeepSpeed 0.19.8 would load the first for all parameters: the loss differs by 0.01 after five steps."""
    config = json.loads((REPO / "deepspeed-single-gpu/ds_configs/zero3.json").read_text())
    del config["optimizer"]
    (tmp_path / "zero3.json").write_text(json.dumps(config))
    answer = converted(trained(ranks, tmp_path / "run", tmp_path / "zero3.json", 2, MAX_STEPS="5"), code=1)
    assert "weight decays [0.3, 0.0], and DeepSpeed would load 0.3 for all; expected one" in answer.stderr
    assert not list(tmp_path.rglob("*_universal"))
