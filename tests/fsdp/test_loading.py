"""Under FSDP2 rank 0 alone reads the weights and sends each rank its part: the same training, without their memory."""

import ctypes
import json
import mmap
import runpy
from array import array
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.launching import REPO, losses, record
from tests.trainings_on_ranks import Ranks, training
from tests.workshop.kernels.fast_models.small_models import TOKENIZER, small
from workshop.measure import trainer_hooks
from workshop.training import models

# Both embeddings of Llama, 1 MiB each, are most of its weights; Qwen2's is also its head.
FAMILIES, VOCABULARY = ("llama", "qwen2"), 4_096
LORA = {"MODEL_NAME": "llama", "MODEL_INIT": "pretrained", "RUNG": "1_bf16", "BF16": "true", "LEARNING_RATE": "2e-2"}
CASES = {
    **{family: ("fsdp", {"MODEL_NAME": family, "MODEL_INIT": "pretrained", "SAVE": "end"}) for family in FAMILIES},
    "random": ("fsdp", {"MODEL_NAME": "llama", "MODEL_INIT": "random"}),
    "buffers": ("fsdp", {"MODEL_NAME": str(REPO / "tests/foreign/models/apertus"), "MODEL_INIT": "random"}),
    "lora": ("lora", LORA | {"METHOD": "lora"}),
    "qlora": ("lora", LORA | {"METHOD": "qlora"}),
}
FULL_SHARD = {"reshard_after_forward": True, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, ranks: Ranks) -> Path:
    """A run folder of each case, with the weights read by rank 0, and by each rank."""
    folder = tmp_path_factory.mktemp("loading")
    for family in FAMILIES:
        # In fp16, which no case computes in: of a file in its own type a rank only maps the pages.
        small(family, vocab_size=VOCABULARY).half().save_pretrained(folder / family)
        TOKENIZER.save_pretrained(folder / family)
    trainings = []
    for sends in (True, False):
        config = folder / f"{sends}.json"
        config.write_text(json.dumps(FULL_SHARD | {"cpu_ram_efficient_loading": sends}))
        for case, (exercise, settings) in CASES.items():
            own = settings | {"MODEL_NAME": str(folder / settings["MODEL_NAME"])}
            trainings.append(training(folder / f"{case}, {sends}", exercise, config, (__file__,), **own))
    ranks.train(trainings)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_losses_and_saved_weights_are_those_of_ranks_that_all_read_them(case: str, folder: Path) -> None:
    sent, read = folder / f"{case}, True", folder / f"{case}, False"
    assert losses(sent) == losses(read)  # to the last digit
    assert losses(sent)[-1] < losses(sent)[0] - 0.05, "hardly a training"
    if case in FAMILIES:
        weights, expected = (load_file(run / "bloom-qa-finetuned/model.safetensors") for run in (sent, read))
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], expected[name]) for name in expected)


@pytest.mark.parametrize("case", CASES)
def test_ranks_beside_the_first_hold_no_weights(case: str, folder: Path) -> None:
    sent, read = (
        [json.loads((folder / f"{case}, {sends}/rank{rank}.json").read_text()) for rank in range(2)]
        for sends in (True, False)
    )
    assert min(read[0], read[1], sent[0]) > 0.98
    # accelerate sends neither 4-bit weights nor Apertus' buffers, at which it ended.
    assert sent[1] > 0.98 if case in ("qlora", "buffers") else sent[1] < 0.02
    assert record(folder / f"{case}, True")["sharding"]["parameters"]


def held(model: torch.nn.Module) -> float:
    """The share of the large weights' memory that this process has pages for."""
    pages = present = 0
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        for weight in model.parameters():
            if weight.nbytes >= 2**17:  # not in pages with others
                first, end = (
                    address // mmap.PAGESIZE for address in (weight.data_ptr(), weight.data_ptr() + weight.nbytes)
                )
                pagemap.seek(8 * first)  # a number per page, of which the highest bit says that it is in memory
                entries = array("Q", pagemap.read(8 * (end - first)))
                pages, present = pages + len(entries), present + sum(entry >> 63 for entry in entries)
    return present / pages


if __name__ == "__main__":  # on ranks: the exercise's train.py, and how much of the model the rank holds before it
    own, empty = trainer_hooks.callbacks_for, models.with_empty_weights

    def trimmed(*given):  # type: ignore[no-untyped-def]
        ctypes.CDLL(None).malloc_trim(0)  # glibc serves tensors from memory that was freed before: without its pages
        return empty(*given)

    def look(settings, data, model):  # type: ignore[no-untyped-def]
        rank = torch.distributed.get_rank()
        (settings.run_dir / f"rank{rank}.json").write_text(json.dumps(held(model)))
        return own(settings, data, model)

    trainer_hooks.callbacks_for, models.with_empty_weights = look, trimmed
    runpy.run_path("train.py", run_name="__main__")
