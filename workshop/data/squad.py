"""SQuAD v1.1: one question about one passage, as a file nests it and as a row of a table has it.

Format: Rajpurkar et al. 2016, arXiv:1606.05250; `data[].paragraphs[].context` and `.qas[]` with `id`, `question` and
`answers[].text`, every answer a span of its context.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workshop.data.names import items_of, text_of
from workshop.errors import WorkshopError

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


def document_examples(at: str, document: Any) -> Iterator[tuple[str, Example]]:
    """Each example of a whole file with its position, for instance `FILE: data[3].paragraphs[0].qas[2]`."""
    for place, article in items_of(f"{at}: ", document, "data"):
        yield from article_examples(place, article)


def article_examples(at: str, article: Any) -> Iterator[tuple[str, Example]]:
    """Each example of one article with its position. Raises WorkshopError naming the first mistake's."""
    title = text_of(at, article, "title")
    for paragraph_at, paragraph in items_of(f"{at}.", article, "paragraphs"):
        context = text_of(paragraph_at, paragraph, "context")
        for place, asked in items_of(f"{paragraph_at}.", paragraph, "qas"):
            texts = [text_of(answer_at, one, "text") for answer_at, one in items_of(f"{place}.", asked, "answers")]
            yield place, row_example(place, asked | {"title": title, "context": context, "answers": {"text": texts}})


def row_example(at: str, row: dict[str, Any]) -> Example:
    """A table holds one question per row, with `answers` as {"text": [...], "answer_start": [...]}."""
    texts = [
        text_of(place, {"text": text}, "text") for place, text in items_of(f"{at}.answers.", row["answers"], "text")
    ]
    if not texts:  # SQuAD v2.0 marks an unanswerable question so
        raise WorkshopError(f"{at}.answers: found an empty list, expected at least one answer (SQuAD v1.1, not v2.0)")
    return Example(*(text_of(at, row, key) for key in ("id", "title", "question", "context")), tuple(texts))
