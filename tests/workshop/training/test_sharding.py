"""What run.json says was seen in a run is looked at in the run: no constant, no setting repeated."""

import json
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from tests.workshop.environment import ENVIRONMENT
from workshop.settings import Settings
from workshop.training.sharding import ShardingRecorder


def gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=32))


@pytest.mark.parametrize(("bf16", "precision"), [(True, "bf16"), (False, "fp32")])
def test_one_process_s_method(tmp_path: Path, capsys: pytest.CaptureFixture[str], bf16: bool, precision: str) -> None:
    """After one real step; whatever the settings say, FP16=true among them."""
    settings = Settings.from_environment(ENVIRONMENT | {"RUN_DIR": str(tmp_path)}, Path("none"))
    own = {"max_steps": 1, "use_cpu": True, "report_to": "none", "bf16": bf16}
    model = gpt2()
    Trainer(
        model=model,
        args=TrainingArguments(output_dir=str(tmp_path), **own),
        train_dataset=[{"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]}] * 8,
        callbacks=[ShardingRecorder(settings, model)],
    ).train()
    facts = json.loads((tmp_path / "run.json").read_text())
    sharding = facts["sharding"]
    assert (sharding["method"], sharding["own_modules"], facts["precision"]) == ("none", [], precision)
    assert sharding["model_class"] == "transformers.models.gpt2.modeling_gpt2.GPT2LMHeadModel"
    held = "100% of the parameters, 100% of the gradients, 100% of the optimizer"
    printed = capsys.readouterr().out
    assert f"strategy: none, computing in {precision}; a rank holds at most {held}\n" in printed
    mib = sum(map(torch.Tensor.numel, model.parameters())) * 4 / 2**20  # fp32, with an optimizer of two moments
    assert [sharding[f"{part}_mib"] for part in ("weights", "gradients")] == pytest.approx([mib, mib])
    assert sharding["optimizer_states_mib"] == pytest.approx(2 * mib, rel=0.01)
    assert f"together {sharding['states_mib']:.2f} MiB\n" in printed
