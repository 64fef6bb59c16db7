"""Rows as people have them are taught as their format means them, or refused by their place."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workshop.data.forms import CHATML
from workshop.data.encoding import IGNORE, encode_all, load_tokenizer, teaches_to_stop
from workshop.data.sources import load_splits
from workshop.record.errors import InputError

FILES = Path(__file__).parent / "data"
HI = "user: Hi | assistant: Hello."
# The turns of each row; of questions and of text what is read of them.
READ = {
    "c01-sharegpt.jsonl": ["system: SYS | user: Hi there | assistant: Hello. | user: Two plus two? | assistant: Four."],
    "c02-sharegpt-role-content.jsonl": [HI],
    "c07-alpaca.jsonl": ["user: Translate\n\nbonjour | assistant: hello", "user: Say hi | assistant: hi"],
    "c09-dolly.jsonl": ["user: When did it begin?\n\nIt began in 2000. | assistant: 2000",
                        "user: Name a colour | assistant: Red"],
    "c11-assistant-first.jsonl": [f"assistant: Welcome! | {HI}"],
    "c12-ends-with-user.jsonl": [f"{HI} | user: Bye"],
    "c13-developer-role.jsonl": [f"developer: Be short | {HI}"],
    "c18-openai-legacy.jsonl": [": Hi -> | assistant:  Hello.\n"],
    "c21-system-col.jsonl": ["system: Be rude | user: Say hi | assistant: hi"],
    "c22-qa-dolly-both.jsonl": ["user: Who?\n\nIt was me. | assistant: Me"],
    "c23-squad-flat.jsonl": ["Where is Paris? France"],
    "c31-bom.csv": ["user: Hi | assistant: Hello"],
    "c33-quotes.csv": ['user: Say "hi", please | assistant: Line 1\nLine 2', "user: Plain | assistant: 007"],
    "c35-index-col.csv": ["user: Hi | assistant: Hello", "user: Bye | assistant: See you"],
    "c37-bom.jsonl": ["user: Hi | assistant: Hello"],
    "c39-bom-squad.json": ["Where? Germany"],
    "c40-crlf.jsonl": ["user: Hi | assistant: Hello", "user: Bye | assistant: See you"],
    "c41-u2028.jsonl": ["user: Hi\u2028there | assistant: Hello\x85x", "user: Bye | assistant: See you"],
    "c44-text-and-messages.jsonl": [HI],
    "c45-text-label.jsonl": ["great movie"],
    "c46-mixed-kinds.jsonl": ["user: Hi | assistant: Hello", HI],
    "c47-oasst.jsonl": [HI],
    "c48-user-first-system-mid.jsonl": [f"{HI} | system: Now be rude | user: Hi | assistant: What."],
    "c50-system-in-row-3.jsonl": [HI, HI, f"system: SYS | {HI}", HI],
    "d01-orca-system-prompt.json": ["system: Be brief. | user: Hi | assistant: Hello."],
    "d02-values-that-change-nothing.jsonl": [HI],  # as tables of the hub have them, whose turns all have the same keys
    "m01-slimorca-weights.jsonl": ["system: You help. | user: Name a river. | assistant: The Rhine."] * 3,
    "q16-table-answer-not-in-context.jsonl": ["Where? Germany"] * 3,
}  # fmt: skip
REFUSED = {
    "c04-openai-tools.jsonl": ":1: tools: found .*, which nothing here reads; .* IGNORE_KEYS=tool_calls,tools$",
    "c05-openai-content-parts.jsonl": r":1: messages\[0\]: content: found .*, expected a text",
    "c10-empty-output.jsonl": ":2: output: found an empty text, expected a text",
    "c14-chatgpt-role.jsonl": r":1: conversations\[1\]: from: found 'chatgpt', expected one of human, .*assistant",
    "c15-dpo.jsonl": ":1: found the columns prompt, chosen, rejected; expected messages",
    "c20-history.jsonl": ":1: history: found .*, which nothing here reads",
    "c24-squad-answer-string.jsonl": ":1: answers: found a list of texts, expected {",
    "c25-squad-v2.json": r": data\[0\]\.paragraphs\[0\]\.qas\[1\]\.answers: found an empty list",
    "c26-squad-no-title.json": r": data\[0\]: title: found nothing",
    "c27-paragraph-list.json": r": rows\[0\]: found the columns context, qas; expected messages",
    "c29-mixed-ids.json": r": data\[0\]\.paragraphs\[0\]\.qas\[1\]: id: found 7, expected a text",
    "c32-semicolon.csv": ": row 1: found the columns instruction;output; expected",
    "c36-caps.csv": ": row 1: found the columns Question, Answer; expected",
    "c38-latin1.csv": ": .*can't decode byte 0xe9",
    "c42-ndjson.ndjson": r": found '\.ndjson', expected .*\.jsonl",
    "c43-pretty.json": ": found one row, expected a list of rows, or .jsonl",
    "m10-turn-mask.jsonl": r":1: messages\[1\]: mask: found True, which nothing here reads; .* IGNORE_KEYS=mask$",
    "m11-turn-train_on_turn.jsonl": r":1: messages\[1\]: train_on_turn: found False, .* IGNORE_KEYS=train_on_turn$",
    "q13-nq-style.jsonl": ":1: answer: found a list of texts, expected a text",
}


def shown(row: dict[str, Any]) -> str:
    if "messages" in row:
        return " | ".join(f"{turn['role']}: {turn['content']}" for turn in row["messages"])
    return row.get("text") or f"{row['question']} {row['answers'][0]}"


def test_every_file_has_a_case() -> None:
    assert {path.name for path in FILES.iterdir()} == {*READ, *REFUSED}


@pytest.mark.parametrize("name", READ)
def test_rows_are_read_as_their_format_means_them(name: str) -> None:
    assert [shown(row) for row in load_splits(str(FILES / name))["train"]] == READ[name]


@pytest.mark.parametrize("name", REFUSED)
def test_what_we_do_not_read_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(InputError, match=f"^{FILES / name}{REFUSED[name]}"):
        load_splits(str(FILES / name))


USER, SAID = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}
CALL = {"tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": "{}"}}]}
UNREAD = {
    "call beside text": ({"messages": [USER, SAID | CALL]}, r"messages\[1\]: tool_calls: found"),
    "old call beside text": ({"messages": [USER, SAID | {"function_call": {"f": 1}}]}, r"messages\[1\]: function_call"),
    "result": ({"messages": [USER, {"role": "tool", "content": "21"}, SAID]}, r"messages\[1\]: role: found 'tool'"),
    "call as a turn": ({"conversations": [{"from": "human", "value": "Hi"}, {"from": "function_call", "value": "{}"}]},
                       r"conversations\[1\]: from: found 'function_call'"),
    "weight 0": ({"messages": [USER, SAID | {"weight": 0}, USER, SAID]}, r"messages\[1\]: weight: found 0"),
    "half weight": ({"messages": [USER, SAID | {"weight": 0.5}]}, r"messages\[1\]: weight: found 0\.5"),
    "turn not to train on": ({"messages": [USER, SAID | {"train": False}]}, r"messages\[1\]: train: found False"),
    "reasoning": ({"messages": [USER, SAID | {"reasoning_content": "So."}]}, r"messages\[1\]: reasoning_content"),
    "tools": ({"conversations": [{"from": "gpt", "value": "x"}], "tools": '[{"name": "f"}]'}, "tools: found"),
    "pair not to learn": ({"prompt": "Hi", "completion": "Go.", "label": False}, "label: found False"),
    "answer in the prompt": ({"prompt": [USER, SAID, USER], "completion": [SAID]}, "prompt: found a turn of an assist"),
    "pair of a csv not to learn": ({"prompt": "Hi", "completion": "Go.", "label": "False"}, "label: found 'False'"),
    "number of a pair not to learn": ({"prompt": "Hi", "completion": "Go.", "label": 0}, "label: found 0"),
    "picture": ({"conversations": [{"from": "gpt", "value": "A boat."}], "image": "1.jpg"}, "image: found '1.jpg'"),
    "spans": ({"messages": [USER, SAID | {"train_detail": [{"train": False}]}]}, r"messages\[1\]: train_detail: found"),
    "context of parts": ({"question": "Who?", "context": {"title": ["A"]}, "answer": "Me"}, "context: found {.*a text"),
    "half a character": ({"instruction": "Hi", "output": "\ud83d"}, r"output: found '\\ud83d', half of a character"),
    "key nobody knows": ({"messages": [USER, SAID | {"redacted": 0.0}]}, r"messages\[1\]: redacted: found 0\.0"),
    "text of a training's key": ({"messages": [USER, SAID | {"loss_on": "none"}]}, r"messages\[1\]: loss_on: found"),
    "yes or no": ({"messages": [USER, SAID | {"supervised": " No"}]}, r"messages\[1\]: supervised: found ' No'"),
    "weight above 1": ({"messages": [USER, SAID | {"sample_weight": 2}]}, r"messages\[1\]: sample_weight: found 2"),
    "inner key": ({"messages": [USER, SAID | {"meta": {"train": False}}]}, r"messages\[1\]: meta: found"),
    "two systems": ({"system": "A", "messages": [{"role": "system", "content": "B"}, USER, SAID]}, "system: found"),
}  # fmt: skip


@pytest.mark.parametrize(("row", "message"), UNREAD.values(), ids=UNREAD)
def test_key_that_changes_what_is_taught_is_refused_with_file_and_row(tmp_path: Path, row: Any, message: str) -> None:
    for name, text, at in (
        ("a.jsonl", "\n".join(map(json.dumps, [{"messages": [USER, SAID]}, row])), ":2"),
        ("a.json", json.dumps([{"messages": [USER, SAID]}, row]), r": rows\[1\]"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=rf"^{tmp_path}/{name}{at}: {message}"):
            load_splits(f"{tmp_path}/{name}")


def test_keys_of_turns_that_nothing_reads_are_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All in one message if they may say what is learnt, in one note if not; IGNORE_KEYS takes them."""
    asked = USER | {"weight": 0, "train": False, "seen": True}
    twice = {"from": "gpt", "value": "Hello."}  # beside role and content
    turns = [[asked, SAID | twice | {"toxic": False, "model": "m-1"}], [asked, SAID | {"mask": True, "toxic": 1}]]
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(json.dumps({"messages": some, "toxic": True}) for some in turns))
    with pytest.raises(InputError) as refused:
        load_splits(str(file), "toxic_,")
    for part in (f"{file}:1: messages[1]: toxic: found False", f"{file}:2: messages[1]: mask: found True"):
        assert str(refused.value).count(part) == 1
    assert str(refused.value).endswith("IGNORE_KEYS=mask,toxic")
    capsys.readouterr()
    for _ in ("read", "from the cache"):
        assert [shown(row) for row in load_splits(str(file), "mask, toxic")["train"]] == [HI, HI]
        assert capsys.readouterr().out.count(f"note: {file}: content, model, role: found in turns of an assistant") == 1


def test_answers_outside_their_context_are_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    file = FILES / "q16-table-answer-not-in-context.jsonl"
    load_splits(str(file))
    found = f"warning: {file}: answers that are not in their contexts: 3, the first in {file}:1\n"
    assert capsys.readouterr().out == found
    load_splits("sample")
    assert not capsys.readouterr().out


ALTERNATE = (
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
)
GEMMA = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}" + ALTERNATE + "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (
    "{% for m in messages %}" + ALTERNATE + "{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% elif m['role'] == 'assistant' %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"
)
# As Qwen3's: what an answer thinks is left out once a question follows.
THINKING = (
    "{% set last = messages | map(attribute='role') | list | length - 1 %}{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role == 'assistant' and loop.index0 < last %}{{ m.content.split('</think>')[-1] }}{% else %}"
    "{{ m.content }}{% endif %}</s>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
DEAF = "{% for m in messages if m.role != 'system' %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
DEAF += "{% if add_generation_prompt %}<|assistant|>{% endif %}"
# As Qwen2.5's, with a system prompt of its own; and a prefill of the generation prompt, which answers are without.
OWN_SYSTEM = "{% if messages[0].role != 'system' %}<|system|>Be helpful.</s>{% endif %}" + CHATML
PREFILL = CHATML.replace("<|assistant|>", "<|assistant|><think>\n\n</think>\n\n")
UNASKED = CHATML.partition("{% if add_generation_prompt")[0]
SYSTEM = {"role": "system", "content": "SYS"}
THOUGHT = {"role": "assistant", "content": "<think>So.</think>Four."}


def targets(template: str | None, messages: list[dict[str, str]], length: int = 256) -> str:
    tokenizer = load_tokenizer("sample")
    tokenizer.chat_template = template
    (encoded,) = encode_all([{"id": "chats.jsonl:7", "messages": messages}], tokenizer, length)
    return tokenizer.decode([label for label in encoded["labels"] if label != IGNORE])


@pytest.mark.parametrize(
    ("template", "messages", "learnt"),
    [
        (None, [SYSTEM, USER, SAID, USER, SAID], " Hello.</s> Hello.</s>"),
        (CHATML, [SYSTEM, USER, SAID, USER, SAID], "Hello.</s>Hello.</s>"),
        (GEMMA, [USER, SAID, USER, SAID], "Hello.<end_of_turn>\nHello.<end_of_turn>\n"),
        (MISTRAL, [USER, SAID, USER, SAID], "Hello.</s>Hello.</s>"),
        (THINKING, [USER, THOUGHT], "<think>So.</think>Four.</s>"),
        (DEAF, [USER, SAID], "Hello.</s>"),
        (OWN_SYSTEM, [USER, SAID], "Hello.</s>"),
        (OWN_SYSTEM, [SAID, USER, SAID], "Hello.</s>Hello.</s>"),
        (PREFILL, [USER, SAID, USER, SAID], "Hello.</s>Hello.</s>"),
        (PREFILL, [USER, THOUGHT, USER, SAID], "<think>So.</think>Four.</s>Hello.</s>"),
        (UNASKED, [USER, SAID, USER, SAID], "Hello.</s>Hello.</s>"),
        (CHATML.replace("<|assistant|>", "<|bot|>"), [USER, SAID, USER, SAID], "Hello.</s>Hello.</s>"),
        (CHATML.replace("|>", "|> "), [USER, SAID, USER, SAID], " Hello.</s> Hello.</s>"),
    ],
    ids=[
        *["none", "chatml", "gemma", "mistral", "thinking", "deaf", "own system", "assistant first", "prefill"],
        *["prefill that an answer begins like", "no generation prompt", "a prompt of another header"],
        "a prompt that ends in a blank",
    ],
)
def test_template_teaches_the_answers(template: str, messages: list[dict[str, str]], learnt: str) -> None:
    assert targets(template, messages) == learnt


@pytest.mark.parametrize(
    ("template", "stops"), [(None, True), (CHATML, True), (MISTRAL, True), (CHATML.replace("</s>", "\n"), False)]
)
def test_template_without_an_end_of_answers_is_known(template: str | None, stops: bool) -> None:
    """As Alpaca's: the model would go on after its answer."""
    tokenizer = load_tokenizer("sample")
    tokenizer.chat_template = template
    assert teaches_to_stop({"id": "1", "messages": [USER, SAID, USER]}, tokenizer) == stops


def test_answer_beyond_the_length_is_not_learnt_in_part() -> None:
    assert targets(None, [USER, SAID, USER | {"content": "Why? " * 50}, SAID], length=64) == " Hello.</s>"


@pytest.mark.parametrize(
    ("template", "messages", "why"),
    [
        (GEMMA, [SYSTEM, USER, SAID], "chat template refuses it: System role not supported"),
        (GEMMA, [SAID, USER, SAID], "chat template refuses it: Conversation roles must alternate"),
        (MISTRAL, [SYSTEM, USER, SAID], "chat template refuses it: Conversation roles must alternate"),
        (THINKING, [USER, THOUGHT, USER, THOUGHT], "chat template writes a turn otherwise once there are later ones"),
        (DEAF, [SYSTEM, USER, SAID], "chat template leaves out what the system says"),
        ("{{ none + 'Hi' }}", [USER, SAID], "chat template refuses it: unsupported operand type"),
    ],
    ids=["gemma system", "gemma order", "mistral system", "thinking twice", "deaf", "no bos_token"],
)
def test_template_that_loses_a_turn_names_the_row(template: str, messages: list[dict[str, str]], why: str) -> None:
    with pytest.raises(InputError, match=f"^chats.jsonl:7: the tokenizer's {why}"):
        targets(template, messages)
