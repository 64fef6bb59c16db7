"""Wrong input must be named by file and place, and training and evaluation must not share an example."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.workshop.data.questions import load_squad
from tests.workshop.environment import ENVIRONMENT
from workshop.data import hub
from workshop.data.encoding import load_tokenizer
from workshop.data.load import load_data
from workshop.data.squad import Example
from workshop.errors import WorkshopError
from workshop.settings import Settings

DATA = os.environ.get("SHARDLAB_TEST_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="SHARDLAB_TEST_DATA is not set")


def squad(**changes):
    """A document of two questions; `changes` replace keys of the second question."""
    first = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    second = {"id": "q2", "question": "What?", "answers": [{"text": "a boat", "answer_start": 9}]} | changes
    paragraph = {"context": "Ann owns a boat.", "qas": [first, second]}
    return {"version": "1.1", "data": [{"title": "Ann", "paragraphs": [paragraph]}]}


@pytest.fixture
def write(tmp_path):
    def write(document) -> str:
        path = tmp_path / "file.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return write


def split_examples(dataset: str, train_size: int, eval_size: int, eval_dataset: str = "") -> list[list[Example]]:
    sizes = {"TRAIN_SIZE": str(train_size), "EVAL_SIZE": str(eval_size), "EVAL_DATASET": eval_dataset}
    asked = {"GENERATE_TRAIN_SIZE": str(train_size), "GENERATE_SIZE": str(eval_size), "DATASET": dataset}
    settings = Settings.from_environment(ENVIRONMENT | sizes | asked, Path("none.sh"))
    data = load_data(settings, load_tokenizer("sample"))
    assert (len(data.train), len(data.evaluation)) == (len(data.train_examples), len(data.examples))
    return [data.train_examples, data.examples]


@needs_data
def test_the_official_files_are_read_whole():
    development = load_squad(f"{DATA}/squad/dev-v1.1.json", "validation")
    assert len(development) == 10_570
    assert development[0].id == "56be4db0acb8001400a502ec"
    assert development[0].answers == ("Denver Broncos",) * 3
    assert all(answer in example.context for example in development for answer in example.answers)
    assert len(load_squad(f"{DATA}/squad/train-v1.1.first44.json", "train")) == 11_877


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": [{"text": 7}]}, "data[0].paragraphs[0].qas[1].answers[0]: text: found 7, expected a text"),
        ({"answers": "a boat"}, "data[0].paragraphs[0].qas[1].answers: found 'a boat', expected a list"),
        ({"answers": [" "]}, "data[0].paragraphs[0].qas[1].answers[0]: text: found nothing, expected a text"),
        ({"answers": [{"text": " "}]}, "qas[1].answers[0]: text: found an empty text, expected a text"),
        ({"id": None}, "data[0].paragraphs[0].qas[1]: id: found nothing, expected a text"),
        ({"answers": [], "is_impossible": True}, "qas[1].answers: found an empty list, expected at least one answer"),
        ({"id": "q1"}, "id: found q1 2 times, expected unique ids"),
    ],
)
def test_wrong_content_is_named_by_its_position(write, changes, message):
    assert_refused(write(squad(**changes)), message)


def assert_refused(path, message):
    with pytest.raises(WorkshopError) as error:
        load_squad(path, "train")
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('{"data": [\n  {"title": "Ann"]}', "line 2, column "),
        ("[1, 2]", "data: found nothing, expected a list"),
        ({"rows": []}, "data: found nothing, expected a list"),
        ({"data": [3]}, "data[0]: title: found nothing, expected a text"),
    ],
)
def test_a_file_that_is_not_squad_says_so(write, document, message):
    assert_refused(write(document), message)


def test_a_file_of_other_bytes_or_a_folder_is_not_read_as_text(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.json").write_bytes(b'{"data": "\xe9"}')
    with pytest.raises(WorkshopError, match=r"latin\.json: byte 10 is not UTF-8"):
        load_squad(str(tmp_path / "latin.json"), "train")
    with pytest.raises(WorkshopError, match="found a folder without data"):
        load_squad(str(tmp_path / "empty"), "train")


@pytest.mark.parametrize("name", ["missing.json", "folder/missing.json", "/nowhere/squad", "./squad"])
def test_a_missing_file_is_not_looked_up_on_the_hub(name):
    with pytest.raises(WorkshopError, match="no such file") as error:
        load_squad(name, "train")
    assert str(Path(name)) in str(error.value)


def test_rows_of_the_hub_become_the_same_examples(tmp_path, monkeypatch):
    row = {"id": "q", "title": "t", "question": "Who?", "context": "Ann.", "answers": {"text": ["Ann"]}}
    file = tmp_path / "plain_text/train-00000-of-00001.parquet"
    monkeypatch.setattr(hub, "dataset_folder", lambda name, fetch: tmp_path)
    file.parent.mkdir()
    pq.write_table(pa.Table.from_pylist([row]), file)
    assert load_squad("rajpurkar/squad") == [Example("q", "t", "Who?", "Ann.", ("Ann",))]
    pq.write_table(pa.Table.from_pylist([row | {"answers": {"text": []}}]), file)
    with pytest.raises(WorkshopError, match=r"rajpurkar/squad_v2: train\[0\]\.answers: found an empty list"):
        load_squad("rajpurkar/squad_v2")
    (tmp_path / "other").mkdir()
    file.rename(tmp_path / "other" / file.name)
    pq.write_table(pa.Table.from_pylist([row]), file)
    with pytest.raises(WorkshopError, match=r"found 2 configurations \(other, plain_text\)"):
        load_squad("two/configurations")


def test_training_and_evaluation_never_overlap(write):
    path = write(squad())
    train, evaluation = split_examples(path, 1, 1)
    assert [example.id for example in train + evaluation] == ["q1", "q2"]
    assert [len(part) for part in split_examples(path, 4, 4)] == [1, 1]
    with pytest.raises(WorkshopError, match="2 of its examples among the training examples"):
        split_examples(path, 2, 2, eval_dataset=path)


@needs_data
def test_the_first_train_and_the_last_evaluate():
    path = f"{DATA}/squad/train-v1.1.first44.json"
    everything = load_squad(path, "train")
    train, evaluation = split_examples(path, 50, 10)
    assert (train, evaluation) == (everything[:50], everything[-10:])
    train, evaluation = split_examples(path, 50, 10, eval_dataset=f"{DATA}/squad/dev-v1.1.json")
    assert len(train) == 50 and evaluation[0].id == "56be4db0acb8001400a502ec"


@pytest.mark.parametrize(
    ("train_size", "eval_size", "message"),
    [
        (10**6, 1, "TRAIN_SIZE=1000000: found 192 examples in sample"),
        (1, 10**6, "EVAL_SIZE=1000000: found 48 examples in sample"),
    ],
)
def test_a_size_that_cannot_be_had_is_not_silently_cut(train_size, eval_size, message):
    with pytest.raises(WorkshopError, match=message):
        split_examples("sample", train_size, eval_size)


def test_metric_needs_no_torch():
    code = "import sys; from workshop.training import squad_metric; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "datasets"} & set(modules)
