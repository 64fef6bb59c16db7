"""Labels must stand under their own tokens, and the end of a sequence must be learnt."""

import os

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.workshop.data.forms import load_squad
from workshop.data.encoding import IGNORE, PaddingCollator, encode_all, encode_prompts, load_tokenizer
from workshop.data.forms import Row

DATA = os.environ.get("SHARDLAB_TEST_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="SHARDLAB_TEST_DATA is not set")
SAMPLE = load_squad("sample", "validation")


def full_text(example: Row) -> str:
    question, context, answer = (
        text.strip() for text in (example["question"], example["context"], example["answers"][0])
    )
    return f"Question: {question} Context: {context} Answer: {answer}"


def trained(pre_tokenizer, decoder, post_processor=None) -> PreTrainedTokenizerFast:
    """A small tokenizer with another model family's way of cutting text, trained on the sample."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoder
    if post_processor:
        tokenizer.post_processor = post_processor
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(map(full_text, SAMPLE), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="module", params=["sample", "gpt2", "bloom-like", "llama-like"])
def tokenizer(request):
    if request.param == "sample":
        return load_tokenizer("sample")
    if request.param == "gpt2":
        if not DATA:
            pytest.skip("SHARDLAB_TEST_DATA is not set")
        return load_tokenizer(f"{DATA}/gpt2-tokenizer")
    if request.param == "bloom-like":
        words = pre_tokenizers.Split(Regex(r" ?[^(\s|[.,!?…。,、।۔،])]+"), "isolated")  # noqa: RUF001
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return trained(pre_tokenizers.Sequence([words, level]), decoders.ByteLevel())
    opening = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return trained(pre_tokenizers.Metaspace(), decoders.Metaspace(), opening)


@pytest.fixture(scope="module")
def examples():
    """Every 90th example of the first real articles, stray spaces included; the sample where there are none."""
    return load_squad(f"{DATA}/squad/train-v1.1.first44.json", "train")[::90] if DATA else SAMPLE


def test_K4_first_target_token_is_the_answers_first(tokenizer, examples):
    for example, row in zip(examples, encode_all(examples, tokenizer, 2048), strict=True):
        first = next(position for position, label in enumerate(row["labels"]) if label != IGNORE)
        assert row["labels"][first:] == row["input_ids"][first:]
        target = tokenizer.decode(row["labels"][first:-1]).strip()
        assert target == tokenizer.decode(
            tokenizer(example["answers"][0].strip(), add_special_tokens=False)["input_ids"]
        )
        assert tokenizer.decode(row["input_ids"][:first]).endswith("Answer:")


def test_K4_prompt_and_target_are_the_ids_of_the_whole_text(tokenizer, examples):
    rows = encode_all(examples, tokenizer, 2048)
    prompts = encode_prompts(examples, tokenizer, 2048, 32)
    for example, row, prompt in zip(examples, rows, prompts, strict=True):
        assert row["input_ids"] == [*tokenizer(full_text(example))["input_ids"], tokenizer.eos_token_id]
        masked = row["labels"].count(IGNORE)
        assert row["input_ids"][:masked] == prompt["input_ids"]  # training and generation see the same prompt


@pytest.mark.parametrize("name", ["sample", pytest.param("gpt2", marks=needs_data)])
@pytest.mark.parametrize("pad_to", [512, None])
def test_K6_end_of_sequence_is_a_target(name, pad_to):
    tokenizer = load_tokenizer("sample" if name == "sample" else f"{DATA}/gpt2-tokenizer")
    if name == "sample":
        assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 3)  # BLOOM's ids, two different ones
    else:
        assert tokenizer.pad_token_id == tokenizer.eos_token_id  # a mask by token id would hide every end
    rows = encode_all(SAMPLE[:8], tokenizer, 512)
    batch = PaddingCollator(tokenizer.pad_token_id, pad_to)(rows)
    for index, row in enumerate(rows):
        end = len(row["input_ids"])
        assert batch["labels"][index, end - 1] == tokenizer.eos_token_id
        assert batch["attention_mask"][index].tolist() == [1] * end + [0] * (batch["labels"].shape[1] - end)
        assert (batch["labels"][index, end:] == IGNORE).all()
        assert (batch["input_ids"][index, end:] == tokenizer.pad_token_id).all()
    assert batch["labels"].shape == (8, pad_to or max(len(row["input_ids"]) for row in rows))
