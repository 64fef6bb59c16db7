"""SQuAD v1.1 (Rajpurkar et al. 2016, arXiv:1606.05250): questions about passages; and the shipped sample."""

from dataclasses import dataclass
from pathlib import Path

SAMPLE_DIR = Path(__file__).parents[1] / "sample"
SAMPLE_FILES = {"train": SAMPLE_DIR / "train-v1.1.json", "validation": SAMPLE_DIR / "dev-v1.1.json"}


@dataclass(frozen=True)
class Example:
    """One question about one passage; `answers` are the reference answers, never empty, the training target first."""

    id: str
    title: str
    question: str
    context: str
    answers: tuple[str, ...]
