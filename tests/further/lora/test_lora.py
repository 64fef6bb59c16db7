"""Adapters of LoRA and QLoRA: trained, saved, gone on from and merged on one rank or sharded over two; nothing else."""

import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from lora_settings import LoraSettings
from tests.launching import PATH, REPO, die_after, losses, record
from tests.simulated_here import step
from tests.trainings_on_ranks import Ranks, training
from tests.workshop.environment import ENVIRONMENT
from tests.workshop.kernels.fast_models.small_models import EXAMPLES, TOKENIZER, batch, small
from workshop.record.errors import InputError
from workshop.settings.settings import Settings
from workshop.training.models import blocks_of, load_model, without_one_result

pytestmark = pytest.mark.usefixtures("optimizers_compiled")

# METHOD and configuration.
FORMS = {
    "lora, ddp": ("lora", "fsdp_configs/ddp.json"),
    "ddp": ("qlora", "fsdp_configs/ddp.json"),
    "fsdp2": ("qlora", "../models/full_shard.json"),
    "zero2": ("qlora", "ds_configs/zero2.json"),
    "zero3": ("qlora", "ds_configs/zero3.json"),
}
SHARDED = [form for form in FORMS if form not in ("lora, ddp", "ddp")]
FINAL = "bloom-qa-finetuned"
LORA = {"BF16": "true", "RUNG": "1_bf16", "MODEL_INIT": "pretrained", "SAVE": "steps", "SAVE_STEPS": "2"}


@pytest.fixture(scope="module")
def folder(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run folder for each form, and for the sharded ones one of a run that went on after it had died."""
    folder = tmp_path_factory.mktemp("lora")
    small("llama").save_pretrained(folder / "llama")
    TOKENIZER.save_pretrained(folder / "llama")
    own = LORA | {"MODEL_NAME": str(folder / "llama")}

    def trainings(names: dict[str, str]) -> list:
        return [
            training(folder / f"{form}{suffix}", "lora", FORMS[form][1], METHOD=FORMS[form][0], **own | resumed)
            for form, suffix, resumed in names
        ]

    ranks.train(trainings((form, "", {}) for form in FORMS))
    died = {form: die_after(folder / form, "checkpoint-2", folder / f"{form}, resumed") for form in SHARDED}
    going_on = {form: {"RESUME_FROM": str(run / FINAL / "checkpoint-2")} for form, run in died.items()}
    ranks.train(trainings((form, ", resumed", resumed) for form, resumed in going_on.items()))
    return folder


# Runs train.py as where bitsandbytes is not installed.
WITHOUT_BITSANDBYTES = """
import runpy, sys
for name in ["bitsandbytes", *sys.modules]:
    if name.partition(".")[0] == "bitsandbytes":
        sys.modules[name] = None
runpy.run_path("train.py", run_name="__main__")
"""


def adapters(run: Path) -> dict[str, torch.Tensor]:
    return {name: tensor.float() for name, tensor in load_file(run / FINAL / "adapter_model.safetensors").items()}


@pytest.mark.parametrize("form", FORMS)
def test_checkpoint_and_final_model_have_whole_adapters_and_nothing_else(form: str, folder: Path) -> None:
    run = folder / form
    assert losses(run)[-1] < losses(run)[0] - 0.1, "hardly a training"
    saved = adapters(run)
    assert len(saved) == 2 * 7 * len(blocks_of(small("llama")))  # A and B, seven linear layers in a block
    assert sum(tensor.numel() for tensor in saved.values()) == record(run)["model"]["trained_parameters"]
    names = [name for file in (run / FINAL).rglob("*model.safetensors") for name in load_file(file)]
    for file in [*(run / FINAL).rglob("*model_fsdp.bin"), *(run / FINAL).rglob("*model_states.pt")]:
        found = torch.load(file, weights_only=False)
        names += found.get("module", found)
    assert len(names) >= 2 * len(saved)
    assert [name for name in names if ".lora_" not in name] == []


@pytest.mark.parametrize("form", SHARDED)
def test_sharded_adapters_are_saved_with_every_ranks_part(form: str, folder: Path) -> None:
    """Plain DDP's are whole on every rank. DeepSpeed's are bf16, so Adam's first steps may differ in sign."""
    saved = adapters(folder / form)
    for name, whole in adapters(folder / "ddp").items():
        assert (saved[name] - whole).norm() < 0.2 * whole.norm(), name
    assert losses(folder / form) == pytest.approx(losses(folder / "ddp"), abs=0.02)


@pytest.mark.parametrize("form", SHARDED)
def test_rank_holds_its_share_of_the_4_bit_weights_and_only_the_adapters_states(form: str, folder: Path) -> None:
    (held,) = re.findall(r"a rank holds at most (.*)", (folder / form / "train.out").read_text())
    shares = {part: float(share) for share, part in re.findall(r"(\d+)% of the (\w+)", held)}
    assert shares["parameters"] == (100 if form == "zero2" else pytest.approx(50, abs=2))
    assert shares["gradients"] == shares["optimizer"] == pytest.approx(50, abs=2)


@pytest.mark.parametrize("form", SHARDED)
def test_run_that_died_goes_on_with_its_adapters_and_their_states(form: str, folder: Path) -> None:
    whole, resumed = folder / form, folder / f"{form}, resumed"
    assert losses(resumed) == pytest.approx(losses(whole), abs=1e-5)
    for name, tensor in adapters(whole).items():
        torch.testing.assert_close(adapters(resumed)[name], tensor, atol=1e-4, rtol=0.01)  # bf16's last digit


def test_lora_trains_without_bitsandbytes(ranks: Ranks, folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "without.py"
    script.write_text(WITHOUT_BITSANDBYTES)
    own = LORA | {"MODEL_NAME": str(folder / "llama"), "METHOD": "lora", "MAX_STEPS": "1"}
    ranks.train([training(tmp_path / "run", "lora", command=[script], **own)], ranks=1)
    assert len(losses(tmp_path / "run")) == 1


def test_adapters_are_no_model_to_train_and_merged_answer_as_the_trained_ones(folder: Path, tmp_path: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(folder / "llama", dtype=torch.float32)
    inputs = batch(EXAMPLES[:1])
    frozen = base(**inputs).logits
    trained = PeftModel.from_pretrained(base, folder / "lora, ddp" / FINAL).eval()(**inputs).logits
    [lines] = re.findall(r"```python\n(.*?)```", (REPO / "further/lora/README.md").read_text(), re.DOTALL)
    assert "logs/lora/RUN/bloom-qa-finetuned" in lines and '"merged"' in lines
    trained_here = f"{folder}/lora, ddp/{FINAL}"
    exec(lines.replace("logs/lora/RUN/bloom-qa-finetuned", trained_here).replace('"merged"', "str(tmp_path)"))
    merged = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)(**inputs).logits
    assert (merged - trained).norm() < 0.1 * (frozen - trained).norm()
    assert "adapter_config.json" not in [file.name for file in tmp_path.iterdir()]
    # Transformers loads an adapter with its base model, all weights frozen.
    settings = Settings.from_environment(ENVIRONMENT | {"MODEL_NAME": trained_here}, Path("none"))
    with pytest.raises(InputError, match="found frozen weights, as an adapter's; expected a model"):
        load_model(settings, TOKENIZER)


@pytest.mark.slow
def test_quality_experiment_is_one_command(tmp_path: Path) -> None:
    environ = os.environ | {"PATH": PATH, "LOG_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    subprocess.run(["bash", "further/lora/quality.sh", "64"], cwd=REPO, env=environ, check=True)
    found = {(record(run)["settings"]["method"], record(run)["settings"]["seed"]) for run in tmp_path.glob("lora/*")}
    assert found == {(method, seed) for method in ("full", "lora", "qlora") for seed in (42, 43, 44)}
    assert all("exact_match" in (run / "summary.json").read_text() for run in tmp_path.glob("lora/*"))


def test_misspelt_layer_is_not_left_out_silently() -> None:
    """peft adapts the layers that it finds, and the record named both."""
    settings = SimpleNamespace(lora_targets="q_proj, v_prj")
    with pytest.raises(InputError, match=r"no layer is called v_prj; expected out of .*, v_proj"):
        LoraSettings.targets_in(settings, small("llama"))
    settings.lora_targets = "q_proj, v_proj"
    assert LoraSettings.targets_in(settings, small("llama")) == ["q_proj", "v_proj"]


@pytest.mark.parametrize("kind", ["llama4_text", "phimoe", "falcon"])
def test_router_with_several_results_has_no_adapter_but_every_other_linear_layer(kind: str, tmp_path: Path) -> None:
    """LoRA and its plan ended in an AttributeError: 'tuple' object has no attribute 'dtype'."""
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"num_hidden_layers": 2, "num_local_experts": 4, "vocab_size": 1024}
    config = AutoConfig.for_model(kind, **sizes)
    model, linear = AutoModelForCausalLM.from_config(config), torch.nn.Linear
    routers = without_one_result(model)
    assert routers == [name for name, _ in model.named_modules() if name.endswith("router")]
    layers = [name for name, layer in blocks_of(model).named_modules() if isinstance(layer, linear)]
    adapted = get_peft_model(model, LoraConfig(target_modules="all-linear", exclude_modules=routers))
    adapted(input_ids=torch.ones(1, 16, dtype=torch.long)).logits.sum().backward()
    added = [name for name, _ in adapted.named_modules() if name.endswith(".lora_A")]
    assert len(added) == len(layers) - len(routers) > 0
    config.save_pretrained(tmp_path)
    shape = {"batch_size": 1, "max_length": 16, "precision": "bf16", "engine": "half", "gradient_checkpointing": False}
    assert "error" not in step(shape | {"model_name": str(tmp_path), "adapter_rank": 8})
