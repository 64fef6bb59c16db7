"""The shipped sample must be valid SQuAD v1.1 and load offline."""

import json
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoTokenizer

from tests.workshop.data.questions import load_squad
from workshop.data.forms import SAMPLE_DIR, SAMPLE_FILES


@pytest.mark.parametrize("file", SAMPLE_FILES.values(), ids=lambda path: path.stem)
def test_every_answer_is_the_span_it_claims_to_be(file: Path):
    paragraphs = [paragraph for article in json.loads(file.read_text())["data"] for paragraph in article["paragraphs"]]
    for paragraph in paragraphs:
        for question in paragraph["qas"]:
            for answer in question["answers"]:
                assert paragraph["context"][answer["answer_start"] :].startswith(answer["text"])


def test_the_splits_are_large_enough_and_share_no_passage():
    train, validation = load_squad("sample", "train"), load_squad("sample", "validation")
    assert len(train) >= 160 and len(validation) >= 40
    assert not {example.context for example in train} & {example.context for example in validation}
    assert not {example.id for example in train} & {example.id for example in validation}
    assert sum(len(example.answers) > 1 for example in validation) > 30  # or F1's maximum over answers has no effect


def test_tokenizer_and_model_agree_on_blooms_special_ids():
    tokenizer = AutoTokenizer.from_pretrained(SAMPLE_DIR / "tokenizer")
    config = AutoConfig.from_pretrained(SAMPLE_DIR / "tiny_bloom")
    assert len(tokenizer) == config.vocab_size == 1024
    assert tokenizer.convert_tokens_to_ids(["<unk>", "<s>", "</s>", "<pad>"]) == [0, 1, 2, 3]
    ids = (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert ids == (0, 1, 2, 3) == (config.unk_token_id, config.bos_token_id, config.eos_token_id, config.pad_token_id)


def test_no_text_is_unknown_or_changed_by_the_tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(SAMPLE_DIR / "tokenizer")
    for text in ["Zürich, 東京\n\t«42 %»  .", *(example.context for example in load_squad("sample", "train"))]:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text
