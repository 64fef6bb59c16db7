"""An answer must not depend on the batch, the padding or the number of ranks it was generated with."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.trainings_on_ranks import Ranks, training
from tests.workshop.data.questions import load_squad
from workshop.data.encoding import load_tokenizer
from workshop.data.squad import SAMPLE_DIR
from workshop.errors import WorkshopError
from workshop.training import generation
from workshop.training.generation import _answer, _share, answer_questions

ROOT = Path(__file__).parents[3]
EXAMPLES = load_squad("sample", "validation")[:9]  # odd: two ranks cannot share them equally
EARLY_STOP = "mp"  # a token the tiny model says soon in some answers and never in others


def tiny_bloom() -> PreTrainedModel:
    """Random weights, large enough that answers differ from each other; in training mode, as after training."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(SAMPLE_DIR / "tiny_bloom", initializer_range=0.6)
    return AutoModelForCausalLM.from_config(config).train()


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("sample")


def generate(model, tokenizer, examples=EXAMPLES, **settings):
    own = {"device": torch.device("cpu"), "max_length": 300, "max_new_tokens": 12, "batch_size": 8}
    return answer_questions(model, tokenizer, examples, **own | settings)


def test_neither_padding_nor_sorting_by_length_changes_or_mixes_up_the_answers(tokenizer):
    alone = {}
    for example in EXAMPLES:
        alone |= generate(tiny_bloom(), tokenizer, [example])
    assert list(alone) == [example.id for example in EXAMPLES]
    assert len(set(alone.values())) > 4  # a model that always says the same would prove nothing
    for batch_size in (2, 8):
        assert generate(tiny_bloom(), tokenizer, batch_size=batch_size) == alone


@pytest.mark.parametrize("training", [True, False])
def test_training_goes_on_in_the_mode_it_was_in_and_every_batch_of_answers_is_progress(
    tokenizer, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answering for longer than HANG_TIMEOUT_S would be ended as a hang."""
    model = tiny_bloom().train(training)
    seen, batches = [], []
    model.transformer.register_forward_hook(lambda module, *_: seen.append(module.training))
    monkeypatch.setattr(generation, "progress", lambda: batches.append("answered"))
    generate(model, tokenizer, max_new_tokens=1, batch_size=4)
    assert not any(seen)
    assert model.training is training
    assert len(batches) == 3


def test_an_answer_is_the_first_line_before_the_end(tokenizer):
    ids = tokenizer(" two oars \nand a boat")["input_ids"]
    assert _answer(tokenizer, [*ids, 2, *tokenizer(" more")["input_ids"], 3]) == "two oars"
    assert _answer(tokenizer, [2, 3, 3]) == ""


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_every_rank_has_equally_many_prompts_and_all_are_answered(world_size):
    prompts = [{"input_ids": [0] * length} for length in (3, 9, 5, 7, 1)]
    shares = [_share(prompts, rank, world_size) for rank in range(world_size)]
    assert len({len(share) for share in shares}) == 1
    assert {index for share in shares for index in share} == set(range(5))
    assert shares[0][0] == 1  # the longest comes first
    assert _share([], 0, world_size) == []


def test_no_room_for_a_prompt_is_an_error(tokenizer):
    with pytest.raises(WorkshopError, match="MAX_NEW_TOKENS=300: leaves no room for a prompt"):
        generate(tiny_bloom(), tokenizer, max_new_tokens=300)


def test_prompt_and_answer_together_stay_within_max_length(tokenizer, monkeypatch):
    model, lengths = tiny_bloom(), []
    generate_sequences = model.generate

    def spy(**arguments):
        sequences = generate_sequences(**arguments)
        lengths.append(sequences.shape[1])
        return sequences

    monkeypatch.setattr(model, "generate", spy)
    generate(model, tokenizer, max_length=64)
    assert lengths == [64, 64]  # a model with learnt positions, such as GPT-2's, has none beyond


def test_two_ranks_answer_as_one_process_plain_and_sharded(ranks: Ranks, tmp_path: Path, tokenizer):
    ranks.train([training(tmp_path, "workshop", command=[Path(__file__).with_name("generate_on_ranks.py"), tmp_path])])
    both = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    expected = both[0]["one process"]
    assert len({len(tokenizer(answer)["input_ids"]) for answer in expected.values()}) > 2  # ranks end at unlike steps
    for answers in both:
        assert answers == dict.fromkeys(("one process", "ddp", "fsdp2", "fsdp1"), expected)
