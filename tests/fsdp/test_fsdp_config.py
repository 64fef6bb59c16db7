"""A configuration that would be ignored, in part or as a whole, is an error before anything is loaded."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from tests.workshop.environment import ENVIRONMENT
from tests.workshop.training.test_generation import tiny_bloom
from workshop.measure.run_facts import RunRecorder
from workshop.record.errors import InputError
from workshop.settings.fsdp_config import checked_fsdp
from workshop.settings.settings import Settings
from workshop.training.fsdp import fsdp_config, start_scaler

CONFIGS = Path(__file__).parents[2] / "fsdp/fsdp_configs"


def settings(config: str, **changes: str) -> Settings:
    return Settings.from_environment(ENVIRONMENT | {"CONFIG": str(CONFIGS / f"{config}.json")} | changes, Path("none"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mixed_precision": "fp16"}, "nothing reads 'mixed_precision' in FSDP2; expected FP16 or BF16"),
        ({"version": 1, "dp_replicate_size": 2}, "nothing reads 'dp_replicate_size' in FSDP1; expected "),
        ({"fsdp": False, "cpu_offload": True}, "'cpu_offload' where \"fsdp\" is false; expected keys out of"),
        ({"comm_hook": "fp16"}, "'comm_hook' in FSDP2; expected \"fsdp\": false beside it, because it is DDP's"),
        ({"fsdp": False, "comm_hook": "fp32"}, "comm_hook is 'fp32'; expected fp16 or bf16"),
        ({"fsdp": False, "bucket_cap_mb": "100"}, "bucket_cap_mb is '100'; expected a whole number"),
        ({"auto_wrap_policy": "NO_WRAP"}, "auto_wrap_policy is 'NO_WRAP'; expected TRANSFORMER_BASED_WRAP"),
        ({"dp_replicate_size": True}, "dp_replicate_size is True; expected a whole number"),
        ({"reshard_after_forward": "hybrid_shard"}, "expected true or false"),
    ],
)
def test_K2_K3_key_or_value_that_nothing_reads_is_an_error(config: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        checked_fsdp(Path("fsdp_config.json"), config, {"grad_acc": 1}, 2)
    assert str(caught.value).startswith("fsdp_config.json: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("config", "name", "value", "message", "mended"),
    [
        ("full_shard", "GRADIENT_CHECKPOINTING", "true", 'set "activation_checkpointing": true in .*.json', "false"),
        ("fsdp1_full_shard_offload", "OPTIMIZER", "adamw_torch_fused", "expected OPTIMIZER=adamw_torch", "adamw_torch"),
        *(("hybrid_shard", "NPROC_PER_NODE", count, "in a multiple of 2, 4 or more", "4") for count in ("1", "2", "5")),
    ],
)
def test_combination_that_cannot_work_is_an_error_before_training(config, name, value, message, mended, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message):
        fsdp_config(settings(config, **{"FP16": "true", "BF16": "false", name: value}))
    monkeypatch.setenv(name, mended)
    fsdp_config(settings(config, **{"FP16": "true", "BF16": "false", name: mended}))


def test_K2_blocks_that_are_no_units_stop_the_run() -> None:
    model = tiny_bloom()
    recorder = RunRecorder(settings("full_shard"), None, model)
    with pytest.raises(InputError, match=r"full_shard.json: 0 of the model's 2 blocks \(BloomBlock\) are shard"):
        recorder.on_train_begin(SimpleNamespace(fsdp=True), None, None, model, None)


def test_training_in_fp16_goes_on_from_a_checkpoint_of_the_optimizer() -> None:
    model = torch.nn.Linear(2, 2)
    trained = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2)).sum().backward()
    trained.step()
    saved = get_optimizer_state_dict(model, trained)
    model.zero_grad()
    before = model.weight.detach().clone()
    # An optimizer behind Accelerate's scaler, as the Trainer has it with FP16=true.
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu")
    optimizer = accelerator.prepare_optimizer(torch.optim.AdamW(model.parameters(), lr=0.1))
    args = SimpleNamespace(device=torch.device("cpu"))
    start_scaler(SimpleNamespace(is_fsdp_enabled=True, accelerator=accelerator, args=args))
    set_optimizer_state_dict(model, optimizer, optim_state_dict=saved)
    assert torch.equal(model.weight, before)  # PyTorch's own step for it moves nothing
    loaded = get_optimizer_state_dict(model, optimizer)["state"]["weight"]["exp_avg"]
    assert torch.equal(loaded, saved["state"]["weight"]["exp_avg"])
