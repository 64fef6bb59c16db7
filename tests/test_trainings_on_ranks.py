"""Other models by MODEL_NAME through exercises 2 to 5, and configurations that communicate otherwise: all train alike.

Exercise 2's train.py is exercise 3's line by line (test_train_scripts.py).
"""

import json
from pathlib import Path

import pytest

from tests.launching import REPO, losses, record
from tests.trainings_on_ranks import Ranks, training
from tests.workshop.kernels.fast_models.small_models import FAMILIES, TOKENIZER, small

pytestmark = pytest.mark.usefixtures("optimizers_compiled")

# Exercise and configuration; the first is what the others are compared with.
METHODS = {
    "ddp": ("fsdp", "fsdp_configs/ddp.json"),
    "fsdp2": ("fsdp", "../models/full_shard.json"),
    "zero2": ("deepspeed-multi-gpu", "ds_configs/zero2.json"),
    "zero3": ("deepspeed-multi-gpu", "ds_configs/zero3.json"),
    "zero3, offload": ("deepspeed-zero3-offload", "ds_zero3_offload.json"),
}
OFFLOAD = "zero3, offload"
# Configurations that communicate otherwise, and how far a loss may be off: those that change a type are not exact.
EXACT = 1e-5
VARIANTS = {
    **dict.fromkeys(("ddp_large_buckets", "ddp_bucket_view", "ddp_static_graph", "ddp_whole_blocks"), EXACT),
    **dict.fromkeys(("ddp_fp16_gradients", "ddp_tuned"), 1e-3),
    **dict.fromkeys(("zero2_small_buckets", "zero2_no_overlap", "zero2_not_contiguous"), EXACT),
    **{"zero2_fp32_gradients": EXACT, "zero2_bf16_gradients": 5e-3},
    "zenflow": 0.5,  # updates the small gradients later: another training
}
ONE_MICRO_BATCH = {"BATCH_SIZE": "8", "GRAD_ACC": "1"}  # static_graph takes no accumulation
# Their bucket sizes, so that the small model fills several: elements for ZeRO, MiB for DDP.
SMALL_BUCKETS = {"reduce_bucket_size": 20_000, "allgather_bucket_size": 20_000}


def shipped(variant: str) -> Path:
    folder = "fsdp/fsdp_configs" if variant.startswith("ddp") else "deepspeed-single-gpu/ds_configs"
    return REPO / folder / f"tuning/{variant}.json"


def variant_config(variant: str) -> dict:
    """The shipped configuration, or what only a test has; with buckets that the small model fills, and for gloo."""
    if variant == "zero2_bf16_gradients":  # what bf16 training does anyway, here in fp32 training
        return json.loads(shipped("zero2_fp32_gradients").read_text()) | {"communication_data_type": "bf16"}
    config = json.loads(shipped(variant).read_text())
    if variant == "zenflow":  # in so few steps; and its optimizer in this process, whose end a test could not wait for
        steps = {"select_interval": 2, "update_interval": 2, "overlap_step": False}
        config["zero_optimization"]["zenflow"] |= steps
    if "bucket_cap_mb" in config:
        config["bucket_cap_mb"] = 1
    if config.get("comm_hook") == "bf16":  # of NCCL only
        config["comm_hook"] = "fp16"
    if "reduce_bucket_size" in config.get("zero_optimization", {}):
        config["zero_optimization"] |= SMALL_BUCKETS
    return config


@pytest.fixture(scope="module")
def folder(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run folder for each training, all made by the same two ranks.

    All load the same weights, but for exercise 4: it makes the family's tiny shape with random ones.
    """
    folder = tmp_path_factory.mktemp("trainings")
    trainings = []
    for family in FAMILIES:
        small(family).save_pretrained(folder / family)
        TOKENIZER.save_pretrained(folder / family)
        by_folder = {"MODEL_NAME": str(folder / family), "MODEL_INIT": "pretrained"}
        by_shape = {"MODEL_NAME": f"tiny-{family}", "MODEL_INIT": "random"}
        for method, (exercise, config) in METHODS.items():
            model = by_shape if method == OFFLOAD else by_folder
            trainings.append(training(folder / f"{family}, {method}", exercise, config, **model))
    for variant in VARIANTS:
        path = folder / f"{variant}.json"
        path.write_text(json.dumps(variant_config(variant)))
        exercise = "fsdp" if variant.startswith("ddp") else "deepspeed-multi-gpu"
        own = ONE_MICRO_BATCH if variant == "ddp_static_graph" else {}
        model = {"MODEL_NAME": str(folder / "llama"), "MODEL_INIT": "pretrained"}
        trainings.append(training(folder / variant, exercise, path, **model, **own))
    ranks.train(trainings)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_configuration_that_communicates_otherwise_trains_alike(variant: str, folder: Path) -> None:
    found, exact = losses(folder / variant), losses(folder / "llama, ddp")
    assert found == pytest.approx(exact, abs=VARIANTS[variant])
    if VARIANTS[variant] > EXACT:
        assert found != pytest.approx(exact, abs=1e-6), "nothing was rounded"


def test_every_shipped_variant_of_the_communication_is_tried() -> None:
    names = {path.stem for path in REPO.glob("*/*_configs/tuning/*.json") if path.stem.startswith(("ddp_", "zero2_"))}
    # With gloo ddp_tuned has the other's hook, and ddp_bf16_gradients would be ddp_fp16_gradients.
    assert names - {"ddp_bf16_gradients"} == VARIANTS.keys() - {"zero2_bf16_gradients", "zenflow"}
