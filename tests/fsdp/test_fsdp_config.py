"""A configuration that would be ignored, in part or as a whole, is an error before anything is loaded."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.workshop.environment import ENVIRONMENT
from tests.workshop.training.test_generation import tiny_bloom
from workshop.errors import WorkshopError
from workshop.settings import Settings
from workshop.training.fsdp import check, check_replicas, fsdp_config, hybrid_mesh, prepare_wrapping
from workshop.training.sharding import ShardingRecorder

CONFIGS = sorted((Path(__file__).parents[2] / "fsdp/fsdp_configs").glob("*.json"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configuration_is_accepted(path: Path) -> None:
    check(path, json.loads(path.read_text()))


def test_no_two_configurations_are_the_same() -> None:
    assert len({json.dumps(json.loads(path.read_text()), sort_keys=True) for path in CONFIGS}) == len(CONFIGS) == 11


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"offload_to_cpu": True}, "nothing reads 'offload_to_cpu'; expected cpu_offload"),
        ({"mixed_precision": "fp16"}, "nothing reads 'mixed_precision'; expected FP16 or BF16"),
        ({"activation_checkpoint": True}, "did you mean activation_checkpointing"),
        ({"forward_prefetch": True}, "nothing reads 'forward_prefetch' in FSDP2"),
        ({"version": 1, "dp_replicate_size": 2}, "nothing reads 'dp_replicate_size' in FSDP1"),
        (
            {"fsdp": False, "cpu_offload": True},
            "nothing reads 'cpu_offload' where \"fsdp\" is false; expected keys out of",
        ),
        ({"static_graph": True}, "nothing reads 'static_graph'; it is DDP's: expected \"fsdp\": false beside it"),
        ({"fsdp": False, "comm_hook": "fp32"}, "comm_hook is 'fp32'; expected fp16 or bf16"),
        ({"fsdp": False, "bucket_cap_mb": "100"}, "bucket_cap_mb is '100'; expected a whole number"),
        ({"min_num_params": 1000}, "nothing reads 'min_num_params' with this auto_wrap_policy"),
        ({"cpu_offload": "true"}, "cpu_offload is 'true'; expected true or false"),
        ({"dp_replicate_size": True}, "dp_replicate_size is True; expected a whole number"),
        ({"reshard_after_forward": "hybrid_shard"}, "expected true or false"),
        ({"version": 3}, "version is 3; expected 1 or 2"),
    ],
)
def test_K3_key_or_value_that_nothing_reads_is_an_error(config: dict, message: str) -> None:
    with pytest.raises(WorkshopError) as caught:
        check(Path("fsdp_config.json"), config)
    assert str(caught.value).startswith("fsdp_config.json: ")
    assert message in str(caught.value)


def test_static_graph_that_ddp_cannot_learn_from_accumulation_is_an_error() -> None:
    tuned = CONFIGS[0].parent / "tuning/ddp_static_graph.json"
    with pytest.raises(
        WorkshopError, match=r"GRAD_ACC=4: .*ddp_static_graph.json has static_graph; expected GRAD_ACC=1"
    ):
        fsdp_config(Settings.from_environment(ENVIRONMENT | {"CONFIG": str(tuned)}, Path("none")))
    fsdp_config(Settings.from_environment(ENVIRONMENT | {"CONFIG": str(tuned), "GRAD_ACC": "1"}, Path("none")))


def test_gradients_that_only_nccl_communicates_are_an_error_without_a_gpu() -> None:
    tuned = CONFIGS[0].parent / "tuning/ddp_bf16_gradients.json"
    settings = Settings.from_environment(ENVIRONMENT | {"CONFIG": str(tuned)}, Path("none"))
    trainer = SimpleNamespace(is_fsdp_enabled=False, args=SimpleNamespace(device=torch.device("cpu")))
    with pytest.raises(WorkshopError, match=r"ddp_bf16_gradients.json: comm_hook bf16 needs a GPU"):
        prepare_wrapping(settings, trainer)


def test_blocks_that_ddp_shall_not_cut_are_compiled_whole() -> None:
    whole = CONFIGS[0].parent / "tuning/ddp_whole_blocks.json"
    settings = Settings.from_environment(ENVIRONMENT | {"CONFIG": str(whole)}, Path("none"))
    trainer = SimpleNamespace(is_fsdp_enabled=False, accelerator=SimpleNamespace(ddp_handler=SimpleNamespace()))
    trainer.args = SimpleNamespace(device=torch.device("cpu"))
    with torch._dynamo.config.patch(optimize_ddp=True):
        prepare_wrapping(settings, trainer)
        assert torch._dynamo.config.optimize_ddp is False
    assert not hasattr(trainer.accelerator.ddp_handler, "optimize_ddp"), "DDP itself has no such option"


def test_K2_no_wrapping_is_an_error() -> None:
    with pytest.raises(WorkshopError, match="auto_wrap_policy is 'NO_WRAP'"):
        check(Path("fsdp_config.json"), {"auto_wrap_policy": "NO_WRAP"})


def test_K2_blocks_that_are_no_units_stop_the_run() -> None:
    environment = ENVIRONMENT | {"CONFIG": "size_based.json"}
    model = tiny_bloom()
    recorder = ShardingRecorder(Settings.from_environment(environment, Path("none")), model)
    with pytest.raises(
        WorkshopError, match=r"size_based.json: 0 of the model's 2 blocks \(BloomBlock\) are shard units"
    ):
        recorder.on_train_begin(SimpleNamespace(fsdp=True), None, None, model)


@pytest.mark.parametrize("world_size", ["1", "2", "5"])
def test_gpus_that_cannot_be_split_in_two_groups_are_an_error(monkeypatch, world_size: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", world_size)
    with pytest.raises(WorkshopError, match="expected GPUs in a multiple of 2, 4 or more"):
        check_replicas(Path("hybrid_shard.json"), 2)


def test_nodes_hold_whole_copies(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    mesh = hybrid_mesh(2)
    assert (mesh.dp_replicate_size, mesh.dp_shard_size) == (2, 4)


def test_two_kinds_of_checkpointing_are_an_error() -> None:
    environment = ENVIRONMENT | {"CONFIG": str(CONFIGS[-1]), "GRADIENT_CHECKPOINTING": "true"}
    settings = Settings.from_environment(environment, Path("none"))
    with pytest.raises(WorkshopError, match="activation_checkpointing"):
        fsdp_config(settings)


def test_fused_optimizer_that_fsdp1_cannot_step_when_offloaded_is_an_error_before_training() -> None:
    (offloaded,) = (path for path in CONFIGS if path.stem == "fsdp1_full_shard_offload")
    environ = ENVIRONMENT | {"CONFIG": str(offloaded), "FP16": "true", "BF16": "false"}
    with pytest.raises(WorkshopError, match=r"OPTIMIZER=adamw_torch_fused: .*expected OPTIMIZER=adamw_torch"):
        fsdp_config(Settings.from_environment(environ))
    for mended in ({"OPTIMIZER": "adamw_torch"}, {"FP16": "false", "BF16": "true"}):
        config, _ = fsdp_config(Settings.from_environment(environ | mended))
        assert config
    # Why: if PyTorch takes the scaler's flag one day, the error above can go.
    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    optimizer = torch.optim.AdamW([weight], fused=True)
    optimizer.grad_scale, optimizer.found_inf = None, torch.zeros(1)
    with pytest.raises(RuntimeError, match="broadcast shape"):
        optimizer.step()
