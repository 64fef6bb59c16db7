"""Chats and instructions: only what the assistant says is learnt, and a mistake in a file is found in its line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.workshop.data.questions import load_squad
from tests.workshop.environment import ENVIRONMENT
from tests.workshop.kernels.fast_models.small_models import FAMILIES, faster, gradients, small
from workshop.data.encoding import IGNORE, PaddingCollator, encode_conversations, load_tokenizer
from workshop.data.load import Data, load_data
from workshop.data.sources import load_splits
from workshop.data.squad import SAMPLE_FILES
from workshop.errors import WorkshopError
from workshop.kernels.fast_models import LabelledOnly, pack
from workshop.settings import Settings

TOKENIZER = load_tokenizer("sample")
CHAT = {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ann."}]}
TAIL = CHAT["messages"]
CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write(folder: Path, *rows: Any, name: str = "chat.jsonl") -> str:
    path = folder / name
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return str(path)


def loaded(dataset: str, folder: Path, **changes: str) -> Data:
    small_sizes = {"TRAIN_SIZE": "2", "EVAL_SIZE": "1", "MAX_LENGTH": "64", "GENERATE_SIZE": "0"}
    environ = ENVIRONMENT | small_sizes | {"DATASET": dataset} | changes
    return load_data(Settings.from_environment(environ, folder / "none.sh"), TOKENIZER)


def learnt(encoded: dict[str, list[int]], tokenizer: Any = TOKENIZER) -> str:
    return tokenizer.decode([label for label in encoded["labels"] if label != IGNORE])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"messages": [}', r"chat.jsonl:2: column 15: .*; expected a JSON object on each line"),
        ("[1]", r"chat.jsonl:2: found '\[1\]', expected a JSON object on each line"),
        ({"title": "x"}, r"chat.jsonl:2: found the columns title; expected messages; .* question and answer"),
        ({"messages": "hello"}, r"chat.jsonl:2: messages: found 'hello', expected a list"),
        ({"messages": [{"role": "user"}]}, r"chat.jsonl:2: messages\[0\]: content: found nothing, expected a text"),
        ({"messages": ["hello"]}, r"chat.jsonl:2: messages\[0\]: role: found nothing, expected a text"),
        ({"messages": CHAT["messages"][:1]}, r"chat.jsonl:2: found no turn of an assistant"),
        ({"prompt": "Who?", "completion": " "}, r"chat.jsonl:2: completion: found an empty text, expected a text"),
        ({"instruction": 3, "output": "x"}, r"chat.jsonl:2: instruction: found 3, expected a text"),
    ],
)
def test_mistake_names_file_and_line(line: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(WorkshopError, match=message):
        load_splits(write(tmp_path, CHAT, line))


def test_only_the_assistant_s_turns_and_their_ends_are_learnt(tmp_path: Path) -> None:
    two = {"messages": [{"role": "system", "content": "Be brief."}, *CHAT["messages"], *CHAT["messages"]]}
    data = loaded(write(tmp_path, two, CHAT, CHAT), tmp_path)
    text = "System: Be brief.\nUser: Who?\nAssistant: Ann.</s>\nUser: Who?\nAssistant: Ann.</s>"
    assert TOKENIZER.decode(data.train[0]["input_ids"]) == text
    assert learnt(data.train[0]) == " Ann.</s> Ann.</s>"
    assert learnt(loaded(write(tmp_path, two, CHAT, CHAT), tmp_path, LABELS="text").train[0]) == text
    assert (len(data.train), len(data.evaluation), data.examples) == (2, 1, [])


def test_tokenizer_s_own_template_is_used_and_what_it_writes_before_an_answer_is_no_target() -> None:
    tokenizer = load_tokenizer("sample")
    tokenizer.chat_template = CHATML
    (encoded,) = encode_conversations([{"id": "x", "messages": TAIL * 2}], tokenizer, 64, "answer")
    assert tokenizer.decode(encoded["input_ids"]) == "<|user|>Who?</s><|assistant|>Ann.</s>" * 2
    assert learnt(encoded, tokenizer) == "Ann.</s>" * 2
    told = "{% generation %}{{ m.content }}{% endgeneration %}"
    tokenizer.chat_template = CHATML.replace(
        "{{ m.content }}", f"{{% if m.role == 'user' %}}?{{% else %}}{told}{{% endif %}}"
    )
    (marked,) = encode_conversations([{"id": "x", "messages": TAIL * 2}], tokenizer, 64, "answer")
    assert tokenizer.decode(marked["input_ids"]) == "<|user|>?</s><|assistant|>Ann.</s>" * 2
    assert learnt(marked, tokenizer) == "Ann." * 2, "what the template marks, and no more"


@pytest.mark.parametrize(
    ("dataset", "held_out", "message"),
    [
        ("chat.jsonl", "dev.json", r"EVAL_DATASET=.*dev.json: found rows of another kind"),
        ("book.txt", "chat.jsonl", r"EVAL_DATASET=.*chat.jsonl: of plain text the rows after TRAIN_SIZE are held out"),
    ],
)
def test_held_out_data_of_another_kind_is_an_error(dataset: str, held_out: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, CHAT, CHAT, CHAT)
    write(tmp_path, "Some text.", name="book.txt")
    (tmp_path / "dev.json").write_text(SAMPLE_FILES["validation"].read_text())
    with pytest.raises(WorkshopError, match=message):
        loaded(str(tmp_path / dataset), tmp_path, EVAL_DATASET=str(tmp_path / held_out))


def test_template_that_rewrites_earlier_turns_is_an_error() -> None:
    tokenizer = load_tokenizer("sample")
    tokenizer.chat_template = "{{ messages | length }}" + CHATML
    with pytest.raises(WorkshopError, match=r"chat.jsonl:7: the tokenizer's chat template writes a turn otherwise"):
        encode_conversations([{"id": "chat.jsonl:7", "messages": TAIL}], tokenizer, 64, "answer")


def test_long_conversation_loses_its_end_and_one_without_an_answer_left_is_an_error(tmp_path: Path) -> None:
    long = {"messages": [*CHAT["messages"], {"role": "user", "content": "Why? " * 50}, *CHAT["messages"][1:]]}
    data = loaded(write(tmp_path, long, CHAT, CHAT), tmp_path)
    assert len(data.train[0]["input_ids"]) == 64
    assert learnt(data.train[0]) == " Ann.</s>"
    late = {"messages": long["messages"][2:]}
    with pytest.raises(WorkshopError, match=r"MAX_LENGTH=64: .*chat.jsonl:2: no turn of the assistant begins in its"):
        loaded(write(tmp_path, CHAT, late, CHAT), tmp_path)


@pytest.mark.parametrize("name", ["book.txt", "books.jsonl"])
def test_plain_text_is_cut_into_full_rows_and_every_token_is_a_target(name: str, tmp_path: Path) -> None:
    text = " ".join(example.context for example in load_squad("sample", "train")[:20])
    path = write(tmp_path, text if name.endswith(".txt") else {"text": text}, name=name)
    data = loaded(path, tmp_path)
    assert [len(row["input_ids"]) for row in (*data.train, *data.evaluation)] == [64] * 3
    assert all(row["labels"] == row["input_ids"] for row in data.train)
    assert TOKENIZER.decode(data.train[0]["input_ids"]) == TOKENIZER.decode(TOKENIZER(text)["input_ids"][:64])


def test_file_without_questions_trains_with_one_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The defaults ask for answers to score, and for more examples than a small file has."""
    for path in (write(tmp_path, *[CHAT] * 10), write(tmp_path, "Some text.", name="book.txt")):
        data = loaded(path, tmp_path, TRAIN_SIZE="400", EVAL_SIZE="100", GENERATE_SIZE="4", GENERATE_BEFORE="true")
        assert data.examples == data.train_examples == []
        assert f"note: {path} is trained on without SQuAD's questions: no answers are scored" in capsys.readouterr().out
    assert [len(rows) for rows in (data.train, data.evaluation)] == [400, 100], "text begins again"
    data = loaded(write(tmp_path, *[CHAT] * 10), tmp_path, TRAIN_SIZE="400", EVAL_SIZE="100")
    assert [len(rows) for rows in (data.train, data.evaluation)] == [8, 2]
    assert (
        "has 10 examples, fewer than TRAIN_SIZE + EVAL_SIZE = 500: 8 to train on, 2 held out" in capsys.readouterr().out
    )


def rows_of(kind: str, count: int) -> list[dict[str, Any]]:
    """`count` lines of a .jsonl file, made of real questions."""
    examples = load_squad("sample", "train")[:count]
    if kind == "chat":
        return [
            {
                "messages": [
                    {"role": "user", "content": one.context},
                    {"role": "assistant", "content": one.question},
                    *TAIL,
                ]
            }
            for one in examples
        ]
    if kind == "instruction":
        return [{"instruction": one.question, "input": one.context, "output": one.answers[0]} for one in examples]
    if kind == "pair":
        return [{"prompt": f"{one.context} Q:", "completion": f" {one.question}"} for one in examples]
    return [{"text": " ".join(one.context for one in examples)}]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("kind", "labels", "count", "length"),
    [
        ("chat", "answer", 8, 512),
        ("chat", "text", 8, 512),  # the first token has a label too, which the example before it must not predict
        ("instruction", "answer", 8, 512),
        ("pair", "answer", 8, 512),
        ("text", "text", 3, 512),
        ("chat", "answer", 40, 8192),
    ],
)
def test_packed_data_of_each_kind_has_the_loss_and_gradients_of_each_example_alone(
    kind: str, labels: str, count: int, length: int, family: str, tmp_path: Path
) -> None:
    path = write(tmp_path, *rows_of(kind, count + 1 if kind != "text" else 40))
    rows = loaded(path, tmp_path, TRAIN_SIZE=str(count), MAX_LENGTH=str(length), LABELS=labels).train
    sizes = {"max_position_embeddings": length, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = small(family, **sizes)
    fast = faster(model, attention="sdpa", loss="chunked", chunk=37)
    packed = pack(rows, length)
    assert len(packed) == len(rows) if kind == "text" else len(packed) < len(rows)
    padded = PaddingCollator(TOKENIZER.pad_token_id, None)(rows)
    found = model(**padded).loss, fast(**LabelledOnly(PaddingCollator(TOKENIZER.pad_token_id, length))(packed)).loss
    for loss in found:
        loss.backward()
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(gradients(fast), gradients(model), rtol=1e-5, atol=1e-5)
    assert gradients(model).abs().max() > 0.01, "gradients near zero would be equal whatever happened"
