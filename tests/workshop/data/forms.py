"""A small data set in every form that a run can be given, and what is kept of the rows that it becomes."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workshop.data.forms import Row
from workshop.data.sources import load_splits

NAMES = ["Ann", "Béla", "Çelik", "Dov"]
USER = [{"role": "user", "content": f" Who owns boat 00{number}?\n"} for number in range(8)]
ASSISTANT = [{"role": "assistant", "content": f"{NAMES[number % 4]}, since 2001-01-0{number}."} for number in range(8)]
PAIRS = list(zip([turn["content"] for turn in USER], [turn["content"] for turn in ASSISTANT], strict=True))
SYSTEM = {"role": "system", "content": "Be brief."}
OTHER_NAMES = {"user": "human", "assistant": "gpt", "system": "system"}
CHATS = [[SYSTEM, asked, told, USER[0], told] for asked, told in zip(USER, ASSISTANT, strict=True)]
LAYOUTS: dict[str, list[dict[str, Any]]] = {
    "messages": [{"messages": chat} for chat in CHATS],
    "conversations": [
        {"conversations": [{"from": OTHER_NAMES[turn["role"]], "value": turn["content"]} for turn in chat]}
        for chat in CHATS
    ],
    "prompt_completion": [{"prompt": prompt, "completion": text} for prompt, text in PAIRS],
    "prompt_completion_turns": [{"prompt": chat[:2], "completion": chat[2:]} for chat in CHATS],
    "instruction_output": [{"instruction": asked, "input": "", "output": text} for asked, text in PAIRS],
    "instruction_response": [{"instruction": asked, "context": "A boat.", "response": text} for asked, text in PAIRS],
    "question_answer": [{"question": asked, "answer": text} for asked, text in PAIRS],
    "text": [{"text": f"{asked} {text}"} for asked, text in PAIRS],
}
LAYOUTS["mixed"] = LAYOUTS["messages"][:4] + LAYOUTS["prompt_completion"][4:]
CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEXT = "A first paragraph, with a na\u00efve word.\r\nIts second line.\n\n  Another one, NA and 007.\n" * 9
QUESTIONS = [
    {
        "id": f"q{number}",
        "title": "Boats",
        "question": f" Who owns boat {number}?",
        "context": f"{NAMES[number % 4]} owns boat {number} since 2001. ",
        "answers": {"text": [NAMES[number % 4], f"{NAMES[number % 4]} "], "answer_start": [0, 0]},
    }
    for number in range(8)
]


def write_forms(folder: Path) -> dict[str, str]:
    """The values of DATASET by the form's name; a hub's data set lies in the folder `hub`."""
    forms = {"sample": "sample", "harbour": "harbour", "hub": "somebody/boats"}
    for name, rows in LAYOUTS.items():
        forms[name] = str(folder / f"{name}.jsonl")
        Path(forms[name]).write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    forms["txt"] = str(folder / "book.txt")
    Path(forms["txt"]).write_bytes(TEXT.encode())
    flat = [row | {"answers": [{"text": text} for text in row["answers"]["text"]]} for row in QUESTIONS]
    paragraphs = [{"context": row["context"], "qas": [row]} for row in flat]
    forms["squad"] = str(folder / "squad.json")
    Path(forms["squad"]).write_text(json.dumps({"data": [{"title": "Boats", "paragraphs": paragraphs}]}))
    write_hub(folder / "hub", {"train": QUESTIONS[:6], "validation": QUESTIONS[6:]})
    return forms


def write_hub(folder: Path, splits: Mapping[str, list[dict[str, Any]]]) -> None:
    """A snapshot as `rajpurkar/squad` is: one folder, a table for each split."""
    (folder / "plain_text").mkdir(parents=True)
    for split, rows in splits.items():
        pq.write_table(pa.Table.from_pylist(rows), folder / f"plain_text/{split}-00000-of-00001.parquet")


def kept(data: Any) -> dict[str, Any]:
    """The first row of each part, and a hash of all rows and questions."""
    parts = {"train": [dict(row) for row in data.train], "evaluation": [dict(row) for row in data.evaluation]}
    whole = [
        [[row[key] for key in ("input_ids", "attention_mask", "labels")] for row in rows] for rows in parts.values()
    ]
    questions = [
        [[row[key] for key in ("id", "title", "question", "context", "answers")] for row in some]
        for some in (data.train_examples, data.examples)
    ]
    return {
        "rows": [len(data.train), len(data.evaluation)],
        "first": {"input_ids": data.train[0]["input_ids"][:24], "labels": data.train[0]["labels"][-8:]},
        "sha256": hashlib.sha256(json.dumps(whole).encode()).hexdigest(),
        "questions": hashlib.sha256(json.dumps(questions).encode()).hexdigest(),
    }


def load_squad(dataset: str, split: str = "train") -> list[Row]:
    """All questions of a split in its own order; of a file, which has no splits, all."""
    splits = load_splits(dataset)
    return (splits.get(split) or splits["train"]).to_list()
