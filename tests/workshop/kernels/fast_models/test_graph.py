"""Steps from a CUDA graph have the loss and the gradients of steps that Python launches."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from tests.workshop.data.forms import load_squad
from tests.workshop.kernels.fast_models.small_models import LENGTH, TOKENIZER, faster, gradients, small
from workshop.data.encoding import PaddingCollator, encode_all
from workshop.kernels.fast_models import LabelledOnly, compile_blocks, pack, use_graph
from workshop.training.models import blocks_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
STEPS = 12  # two epochs of 22 rows: the last batch of each has two, and runs as usual


class KeepGradients(TrainerCallback):
    def __init__(self) -> None:
        self.of_steps: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        self.of_steps.append(gradients(model).cpu())


def trained(folder: Path, family: str, rows: int, accumulate: int, graph: bool, resume: str = "") -> KeepGradients:
    """The gradients of each step, clipped; the losses are in the last checkpoint's trainer_state.json."""
    model = faster(small(family), "documents", "chunked")
    compile_blocks(blocks_of(model))
    examples = encode_all(load_squad("sample", "train")[:90], TOKENIZER, LENGTH)
    packed, kept = pack(examples, LENGTH)[:22], KeepGradients()
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=rows, per_device_eval_batch_size=4,
        gradient_accumulation_steps=accumulate, learning_rate=1e-3, logging_steps=1, eval_strategy="steps",
        eval_steps=5, save_strategy="steps", save_steps=6, report_to=[], disable_tqdm=True, dataloader_num_workers=1,
    )  # fmt: skip
    collator = LabelledOnly(PaddingCollator(TOKENIZER.pad_token_id, LENGTH))
    trainer = Trainer(model, arguments, collator, packed, packed[:3], callbacks=[kept])
    if graph:
        use_graph(trainer)
    trainer.train(resume_from_checkpoint=resume or None)
    assert not graph or trainer.training_step.graph is not None
    return kept


def losses(folder: Path) -> list[float]:
    history = json.loads((folder / f"checkpoint-{STEPS}/trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


@pytest.mark.parametrize("family", ["tiny", "llama"])
def test_graphed_steps_are_the_usual_ones_accumulated_after_a_scoring_and_resumed(family: str, tmp_path: Path) -> None:
    usual = trained(tmp_path / "usual", family, 4, 1, graph=False)
    for name, rows, accumulate in (("whole", 4, 1), ("accumulated", 2, 2)):
        graphed = trained(tmp_path / name, family, rows, accumulate, graph=True)
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "usual"), rel=1e-4)
        for expected, found in zip(usual.of_steps, graphed.of_steps, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    resumed = trained(tmp_path / "again", family, 2, 2, graph=True, resume=str(tmp_path / "accumulated/checkpoint-6"))
    for expected, found in zip(usual.of_steps[6:], resumed.of_steps, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
