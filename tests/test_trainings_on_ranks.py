"""Other models by MODEL_NAME through ZeRO, offload and FSDP: all train alike.

One-GPU ZeRO's train.py is multi-GPU ZeRO's line by line (test_chapters.py).
"""

from pathlib import Path

import pytest

from tests.launching import losses, record
from tests.trainings_on_ranks import Ranks, training
from tests.workshop.kernels.fast_models.small_models import TOKENIZER, small

pytestmark = pytest.mark.usefixtures("optimizers_compiled")

# Learned positions and tied weights, rotary positions, heads wider than the model.
FAMILIES = ("gpt2", "llama", "qwen3")
# Exercise and configuration; the first is what the others are compared with.
METHODS = {
    "ddp": ("fsdp", "fsdp_configs/ddp.json"),
    "fsdp2": ("fsdp", "../further/models/full_shard.json"),
    "zero2": ("deepspeed-multi-gpu", "ds_configs/zero2.json"),
    "zero3": ("deepspeed-multi-gpu", "ds_configs/zero3.json"),
    "zero3, offload": ("deepspeed-zero3-offload", "ds_zero3_offload.json"),
}
OFFLOAD = "zero3, offload"
# ZeRO-2 leaves a model's modules alone, offload does as ZeRO-3: two families tell.
TWO = ("zero2", OFFLOAD)
CASES = [(family, method) for family in FAMILIES for method in METHODS if method not in TWO or family in FAMILIES[:2]]
EXACT = 1e-5


@pytest.fixture(scope="module")
def folder(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run folder for each training, all made by the same two ranks.

    All load the same weights, but for the offload exercise: it makes the family's tiny shape with random ones.
    """
    folder = tmp_path_factory.mktemp("trainings")
    trainings = []
    for family in FAMILIES:
        small(family).save_pretrained(folder / family)
        TOKENIZER.save_pretrained(folder / family)
    for family, method in CASES:
        model = {"MODEL_NAME": str(folder / family), "MODEL_INIT": "pretrained"}
        if method == OFFLOAD:
            model = {"MODEL_NAME": f"tiny-{family}", "MODEL_INIT": "random"}
        trainings.append(training(folder / f"{family}, {method}", *METHODS[method], **model))
    ranks.train(trainings)
    return folder


@pytest.mark.parametrize(("family", "method"), CASES)
def test_family_trains_by_its_name_as_with_plain_data_parallelism(family: str, method: str, folder: Path) -> None:
    run_dir = folder / f"{family}, {method}"
    found, facts = losses(run_dir), record(run_dir)
    assert len(found) == 3  # optimizer steps of 16 examples
    assert found[-1] < found[0] - 0.1, "hardly a training"
    assert facts["sharding"]["method"] == method.removesuffix(", offload")
    assert facts["sharding"]["cpu_offload"] == (method == OFFLOAD)
    assert facts["sharding"]["own_modules"] == []
    assert facts["model"]["name"] == (f"tiny-{family}" if method == OFFLOAD else family)
    if method != OFFLOAD:
        assert found == pytest.approx(losses(folder / f"{family}, ddp"), abs=EXACT)
