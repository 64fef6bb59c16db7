"""A checkpoint is whole or not there: damage is found before anything is loaded, and named."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from workshop.run_folder import checkpoints
from workshop.run_folder.checkpoints import (
    MANIFEST,
    UNFINISHED,
    check_processes,
    digests,
    fault,
    finish,
    keep_newest,
    newest,
)
from workshop.run_folder.errors import InputError


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Three whole checkpoints with a file of three blocks in a folder, after 5, 10 and 100 steps."""
    for step in (5, 100, 10):
        folder = tmp_path / UNFINISHED / f"checkpoint-{step}"
        (folder / "shards").mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"w" * 100)
        (folder / "shards/rank0").write_bytes(os.urandom(2500))
        size = finish(folder, tmp_path / folder.name, step=step, world_size=2, fixed_world_size=step == 10)
        assert size == 2600
    return tmp_path


def test_newest_checkpoint_is_by_number_and_what_is_not_whole_is_none(output: Path) -> None:
    assert [fault(output / f"checkpoint-{step}") for step in (5, 10, 100)] == ["", "", ""]
    assert newest(output) == output / "checkpoint-100"
    assert list((output / UNFINISHED).iterdir()) == []
    for name in ("checkpoint-7", "checkpoint-best"):
        (output / "damaged" / name).mkdir(parents=True)
    assert newest(output / "damaged") is newest(output / "nowhere") is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda shard: os.truncate(shard, 1200), "shards/rank0 has 1,200 bytes, its manifest says 2,500"),
        (Path.unlink, "shards/rank0 is missing"),
        (lambda shard: shard.write_bytes(bytes(2500)), "shards/rank0 has not the content that its manifest says"),
        (lambda shard: (shard.parents[1] / MANIFEST).unlink(), "its manifest.json cannot be read"),
        (lambda shard: (shard.parents[1] / MANIFEST).write_text('{"files": '), "its manifest.json cannot be read"),
    ],
    ids=["truncated", "missing", "altered", "no_manifest", "cut_manifest"],
)
def test_damaged_checkpoint_is_skipped_by_name_and_the_one_before_is_taken(
    output: Path, damage, words: str, capsys: pytest.CaptureFixture
) -> None:
    damage(output / "checkpoint-100/shards/rank0")
    assert newest(output) == output / "checkpoint-10"
    assert f"warning: checkpoint-100 is skipped: {words}" in capsys.readouterr().out


ENTRY = {"files": {"model.safetensors": [100, "0"]}}


@pytest.mark.parametrize(
    "content",
    [
        *[[], {}, {"files": {}}, {"files": []}, {"files": {"model.safetensors": 100}}],
        *[{"files": {"model.safetensors": [None, None]}}, {"files": {"model.safetensors": [1e999, "0"]}}],
        *[{"files": {"x" * 300: [1, "0"]}}, {"files": {"shards": [1, "0"]}}, {"files": {"\0": [1, "0"]}}],
        *[ENTRY | {"world_size": "2"}, ENTRY | {"world_size": None}, ENTRY | {"train_runtime_s": []}],
    ],
    ids=repr,
)
def test_manifest_of_another_form_is_no_whole_checkpoint(output: Path, content: object) -> None:
    (output / "checkpoint-100" / MANIFEST).write_text(json.dumps(content))
    assert newest(output) == output / "checkpoint-10"


def test_the_newest_stay_and_none_go_without_a_limit(output: Path) -> None:
    keep_newest(output, 0)
    assert len(list(output.glob("checkpoint-*"))) == 3
    keep_newest(output, 2)
    assert {path.name for path in output.glob("checkpoint-*")} == {"checkpoint-10", "checkpoint-100"}


def test_manifest_of_several_ranks_shares_is_that_of_one_and_what_one_did_not_see_is_read_again(tmp_path: Path) -> None:
    for name, size in (("large", 900), ("b", 20), ("c", 10), ("grown", 5)):
        (tmp_path / name).write_bytes(os.urandom(size))
    shares = [digests(tmp_path, rank, 2) for rank in (0, 1)]
    assert [list(share) for share in shares] == [["large", "c"], ["b", "grown"]]
    assert shares[0] | shares[1] == digests(tmp_path)
    del shares[0]["c"]
    (tmp_path / "grown").write_bytes(bytes(6))
    folder = tmp_path.with_name("whole")
    assert finish(tmp_path, folder, shares, step=1, world_size=2) == 936
    assert fault(folder) == ""


def test_another_number_of_processes_is_refused_where_the_library_cannot(output: Path) -> None:
    check_processes(output / "checkpoint-100", 1)
    check_processes(output / "checkpoint-10", 2)
    with pytest.raises(InputError, match="found 1, expected 2"):
        check_processes(output / "checkpoint-10", 1)


def test_manifest_of_a_failed_save_never_takes_the_checkpoints_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / UNFINISHED / "checkpoint-5"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"w" * 100)
    monkeypatch.setattr(json, "dumps", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        finish(folder, tmp_path / "checkpoint-5", step=5)
    assert newest(tmp_path) is None
    checkpoints.remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []
