"""Makes the sample's SQuAD files and tokenizer from passages.txt: `python -m workshop.sample.build [FOLDER]`.

Running it again gives the same bytes. The tokenizer has BLOOM's kind (byte-level BPE) and BLOOM's special ids, but only
1,024 entries, so that a model with a small embedding can use it.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from workshop.errors import WorkshopError

HERE = Path(__file__).parent
SPECIAL_TOKENS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}  # ids 0 to 3
VOCAB_SIZE = 1024
VALIDATION_EVERY = 5  # every fifth passage is for validation, so no passage is in both splits


def build(source: Path, folder: Path) -> None:
    """Write train-v1.1.json, dev-v1.1.json, tokenizer/ into `folder`. Raises WorkshopError naming the line at fault."""
    articles = read_passages(source)
    validation = articles[VALIDATION_EVERY - 1 :: VALIDATION_EVERY]
    train = [article for article in articles if article not in validation]
    (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
    _write_json(folder / "train-v1.1.json", {"version": "1.1", "data": train})
    _write_json(folder / "dev-v1.1.json", {"version": "1.1", "data": validation})
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [question["question"] for paragraph in paragraphs for question in paragraph["qas"]]
    _write_tokenizer([paragraph["context"] for paragraph in paragraphs] + questions, folder / "tokenizer")


def read_passages(source: Path) -> list[dict[str, Any]]:
    """The articles of a passages file in SQuAD's structure, one paragraph each, with `answer_start` computed."""
    articles: list[dict[str, Any]] = []
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("== "):
            articles.append({"title": line.strip("= "), "paragraphs": []})
        elif line.startswith("Q: "):
            paragraph = articles[-1]["paragraphs"][-1]
            question, *answers = re.split(r" \| A: ", line.removeprefix("Q: "))
            paragraph["qas"].append(
                {
                    "id": f"sample-{len(articles):02d}-{len(paragraph['qas']) + 1:02d}",
                    "question": question,
                    "answers": [_span(paragraph["context"], answer, f"{source}: line {number}") for answer in answers],
                }
            )
        else:
            articles[-1]["paragraphs"].append({"context": line, "qas": []})
    return articles


def _span(context: str, answer: str, place: str) -> dict[str, Any]:
    """The answer's first occurrence as whole words: "two" must not be found in "network"."""
    found = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", context)
    if found is None:
        raise WorkshopError(f"{place}: found the answer '{answer}', expected words of the passage above")
    return {"answer_start": found.start(), "text": answer}


def _write_tokenizer(texts: list[str], folder: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),  # every byte: nothing is ever unknown
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    # Written by hand: what save_pretrained writes changes with the library's version.
    _write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL_TOKENS})


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    build(HERE / "passages.txt", Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
