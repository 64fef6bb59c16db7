"""What a run will do, from settings and configuration: nothing is planned that there are no formulas for."""

from pathlib import Path
from typing import Any

import pytest

from tools.errors import InputError
from tools.plan.gpus import GPUS
from tools.plan.memory import peak_allocated
from tools.plan.simulate import steps, without_errors
from tools.plan.timing import other_work, work_of
from tools.plan.workload import of_settings
from tools.submit.submissions import known_settings
from workshop.run_folder.settings import LADDER_NAMES

SETTINGS: dict[str, Any] = {
    "model_name": "bigscience/bloom-560m",
    "batch_size": 4,
    "grad_acc": 4,
    "max_length": 512,
    "fp16": True,
    "bf16": False,
    "padding": "max_length",
}


def test_configuration_without_formulas_is_refused() -> None:
    zero = {"zero_optimization": {"stage": 2}}
    with pytest.raises(InputError, match="data_types: not planned"):
        of_settings(SETTINGS, zero | {"data_types": {"grad_accum_dtype": "fp32"}}, 4, 1)
    with pytest.raises(InputError, match="follows from the hidden size, which nowhere does not say"):
        auto = {"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}}
        of_settings(SETTINGS | {"model_name": "nowhere"}, auto, 4, 1)


def test_world_of_several_without_a_configuration_is_ddp_and_alone_it_is_none() -> None:
    one, two = of_settings(SETTINGS, None, 2, 1), of_settings(SETTINGS | {"padding": "dynamic"}, None, 2, 2)
    assert one.strategy.method == "ddp"
    assert one.shape == two.shape and one.key != two.key  # nodes and padding change the run and not the step
    assert of_settings(SETTINGS, {"fsdp": False}, 1, 1).strategy.method == "none", "the Trainer wraps nothing"


@pytest.mark.parametrize(
    ("model", "packing", "length", "kernel"),
    [
        *(("bigscience/bloom-560m", True, 512, "documents"), ("bigscience/bloom-560m", False, 2048, "flex")),
        *(("bigscience/bloom-3b", True, 512, "flex"), ("meta-llama/Llama-3.2-1B", False, 512, "documents")),
        *(
            ("meta-llama/Llama-3.2-1B", False, 1024, "cudnn"),
            ("gpt2", True, 512, "sdpa"),
            ("tiny", True, 64, "documents"),
        ),
    ],
)
def test_attention_auto_is_planned_as_the_kernel_that_trains(
    model: str, packing: bool, length: int, kernel: str
) -> None:
    ladder = SETTINGS | {"model_name": model, "packing": packing, "max_length": length}
    auto, named = (of_settings(ladder | {"attention": name}, None, 1, 1) for name in ("auto", kernel))
    assert auto.key == named.key


def test_of_plain_text_every_position_has_logits() -> None:
    """Taken for SQuAD, its runs in float8 were predicted 13 % too small and 41 % too fast."""
    rung = SETTINGS | {"packing": True, "logits": "labelled"}
    questions, text = (of_settings(rung | {"dataset": name}, None, 1, 1) for name in ("squad", "boats.txt"))
    assert 0 < questions.shape["labelled"] < 512 and text.shape["labelled"] == 0


def test_moments_in_8_bits_take_a_quarter() -> None:
    eight, usual = (of_settings(SETTINGS | {"optimizer": name}, None, 1, 1) for name in ("adamw_torch_8bit", ""))
    (step,) = without_errors(steps([usual.shape]))
    terms = [peak_allocated(step, one.strategy)["optimizer"] for one in (eight, usual)]
    assert terms == [2 * step["parameters"], 8 * step["parameters"]]
    work, usual_work = (work_of(one, step, GPUS["h200"]) for one in (eight, usual))
    assert {name for name, amount in work.items() if amount != usual_work[name]} == {"eight_bit_updates"}


def test_deepspeed_brings_its_own_optimizer_whatever_the_trainers_is() -> None:
    zero = {"zero_optimization": {"stage": 1}}
    eight, usual = (of_settings(SETTINGS | {"optimizer": name}, zero, 2, 1) for name in ("adamw_torch_8bit", ""))
    assert eight.strategy == usual.strategy


def test_compiled_run_on_one_gpu_may_end_its_epoch_with_a_short_micro_batch() -> None:
    ladder = SETTINGS | {"batch_size": 64, "grad_acc": 1, "packing": True, "compile": True, "train_size": 8000}

    def short(gpus: int = 1, **settings: Any) -> int:
        return of_settings(ladder | settings, None, gpus, 1).shape.get("short_rows", 0)

    assert short(max_steps=40) == 0  # 8,000 examples are 43 micro-batches
    assert short(max_steps=50) == 63  # at most: packing leaves a number of rows that is not known before
    assert short(packing=False, train_size=1000, num_epochs=1) == 1000 % 64
    assert short(packing=False, train_size=1024, num_epochs=1) == 0
    assert short(gpus=4, max_steps=50) == 0  # accelerate fills up the last one
    assert short(compile=False, max_steps=50) == 0


def test_each_checkpoint_that_the_settings_ask_for_takes_its_time() -> None:
    """The drill's four were left out, half of its time."""
    length = {"train_size": 500, "eval_size": 50, "num_epochs": 2, "max_steps": 0}
    for save, save_steps, written in [("no", 0, 0), ("end", 0, 1), ("epoch", 10, 3), ("steps", 0, 1), ("steps", 10, 7)]:
        workload = of_settings(SETTINGS | length | {"save": save, "save_steps": save_steps}, None, 1, 1)
        assert other_work(workload, 10**9, 0.1)["saved"] == written


def test_rungs_switches_that_lora_leaves_out_are_the_librarys(tmp_path: Path) -> None:
    """Its env_vars.sh names the rung and not what the rung changes: rows were planned unpacked, or not at all."""
    (tmp_path / "env_vars.sh").write_text("export RUNG=1_bf16\n")
    assert set(LADDER_NAMES) <= known_settings(tmp_path)
    lora = dict.fromkeys(map(str.lower, LADDER_NAMES)) | {"lora_rank": 64, "lora_dropout": "0.05", "lora_targets": ""}
    full, qlora = (of_settings(SETTINGS | lora | {"method": name}, None, 1, 1) for name in ("full", "qlora"))
    assert full == of_settings(SETTINGS, None, 1, 1)
    assert qlora.shape["adapter_rank"] == 64 and qlora.shape["adapter_dropout"] == 0.05 and qlora.shape["four_bits"]
