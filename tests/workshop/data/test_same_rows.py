"""Rows, labels and questions of every form of data must stay what they were: the losses of all exercises hang on it."""

import json
import os
from pathlib import Path

import pytest

from tests.workshop.data.forms import CHATML, kept, write_forms
from tests.workshop.data.questions import load_squad
from tests.workshop.environment import ENVIRONMENT
from workshop.data.encoding import load_tokenizer
from workshop.data.hub import Repository
from workshop.data.load import load_data, load_text
from workshop.run_folder.settings import Settings

BEFORE = json.loads((Path(__file__).parent / "rows_before.json").read_text())
SIZES = {"TRAIN_SIZE": "5", "EVAL_SIZE": "2", "MAX_LENGTH": "96", "GENERATE_SIZE": "2", "GENERATE_TRAIN_SIZE": "5"}
DATA = os.environ.get("SHARDLAB_TEST_DATA")
OFFICIAL = {"TRAIN_SIZE": "300", "EVAL_SIZE": "100", "GENERATE_SIZE": "100", "GENERATE_TRAIN_SIZE": "300"}


@pytest.mark.parametrize("form", [form for form in BEFORE if form != "official file"])
def test_form_gives_the_rows_it_gave(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, variant = form.partition(" ")
    monkeypatch.setattr(Repository, "snapshot", lambda self, **_: tmp_path / "hub")
    changes = {"DATASET": write_forms(tmp_path)[name]}
    changes |= {"MAX_LENGTH": "256"} if name in ("sample", "harbour") and variant != "rows" else {}
    changes |= {"LABELS": "text"} if variant == "LABELS=text" else {}
    tokenizer = load_tokenizer("sample")
    tokenizer.chat_template = CHATML if variant == "chat template" else None
    load = load_text if variant == "rows" else load_data
    settings = Settings.from_environment(ENVIRONMENT | SIZES | changes, tmp_path / "none.sh")
    assert kept(load(settings, tokenizer)) == BEFORE[form]


@pytest.mark.skipif(not DATA, reason="SHARDLAB_TEST_DATA is not set")
def test_official_files_are_read_whole_and_give_the_rows_they_gave(tmp_path: Path) -> None:
    files = {"DATASET": f"{DATA}/squad/train-v1.1.first44.json", "EVAL_DATASET": f"{DATA}/squad/dev-v1.1.json"}
    development = load_squad(files["EVAL_DATASET"])
    assert (len(load_squad(files["DATASET"])), len(development)) == (11_877, 10_570)
    assert all(answer in row["context"] for row in development for answer in row["answers"])
    environ = ENVIRONMENT | SIZES | OFFICIAL | files | {"MAX_LENGTH": "256"}
    settings = Settings.from_environment(environ, tmp_path / "none.sh")
    assert kept(load_data(settings, load_tokenizer(f"{DATA}/gpt2-tokenizer"))) == BEFORE["official file"]
