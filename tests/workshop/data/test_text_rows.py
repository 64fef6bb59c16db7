"""The benchmark's data: full rows of real text, every position a target."""

from tests.workshop.data.questions import load_squad
from tests.workshop.environment import ENVIRONMENT
from workshop.data.encoding import load_tokenizer
from workshop.data.load import Data, load_text
from workshop.settings import Settings

SMALL = {"DATASET": "sample", "TRAIN_SIZE": "6", "EVAL_SIZE": "2", "MAX_LENGTH": "64", "GENERATE_SIZE": "0"}
TOKENIZER = load_tokenizer("sample")


def load(tmp_path, **changes: str) -> Data:
    return load_text(Settings.from_environment(ENVIRONMENT | SMALL | changes, tmp_path / "none.sh"), TOKENIZER)


def test_rows_are_the_passages_one_after_the_other_and_every_token_is_a_target(tmp_path):
    data = load(tmp_path)
    rows = [*data.train, *data.evaluation]
    assert (len(data.train), len(data.evaluation)) == (6, 2)
    assert all(len(row["input_ids"]) == 64 and row["labels"] == row["input_ids"] for row in rows)
    assert all(set(row["attention_mask"]) == {1} for row in rows), "no padding"
    text = TOKENIZER.decode([token for row in rows for token in row["input_ids"]])
    first, second = list(dict.fromkeys(example.context for example in load_squad("sample", "train")))[:2]
    assert text.startswith(f"{first}{TOKENIZER.eos_token}{second[:40]}"), "each passage once, though many ask about it"


def test_synthetic_tokens_are_random_but_the_same_for_a_seed(tmp_path):
    drawn = load(tmp_path, DATASET="synthetic").train
    assert drawn == load(tmp_path, DATASET="synthetic").train
    assert drawn != load(tmp_path, DATASET="synthetic", SEED="7").train
    assert all(0 <= token < len(TOKENIZER) for row in drawn for token in row["input_ids"])
    assert len({tuple(row["input_ids"]) for row in drawn}) == 6
