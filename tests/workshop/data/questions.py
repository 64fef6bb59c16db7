"""SQuAD's questions as the training reads them."""

from workshop.data.forms import Example
from workshop.data.sources import examples_of, load_splits


def load_squad(dataset: str, split: str = "train") -> list[Example]:
    """All questions of a split in its own order; of a file, which has no splits, all."""
    splits = load_splits(dataset)
    return examples_of(splits.get(split) or splits["train"])
