"""SQuAD's questions as the training reads them."""

from workshop.data.forms import Row
from workshop.data.sources import load_splits


def load_squad(dataset: str, split: str = "train") -> list[Row]:
    """All questions of a split in its own order; of a file, which has no splits, all."""
    splits = load_splits(dataset)
    return (splits.get(split) or splits["train"]).to_list()
