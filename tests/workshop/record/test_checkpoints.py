"""A checkpoint is whole or not there: damage is found before anything is loaded, and named."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from workshop.record import checkpoints
from workshop.record.checkpoints import MANIFEST, UNFINISHED, fault, finish, newest


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
def test_damaged_checkpoint_is_skipped_by_name(output: Path, damage, words: str, capsys: pytest.CaptureFixture) -> None:
    damage(output / "checkpoint-100/shards/rank0")
    assert newest(output) == output / "checkpoint-10"
    assert f"warning: checkpoint-100 is skipped: {words}" in capsys.readouterr().out


def test_failed_save_leaves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / UNFINISHED / "checkpoint-5"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"w" * 100)
    monkeypatch.setattr(json, "dumps", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        finish(folder, tmp_path / "checkpoint-5", step=5)
    assert newest(tmp_path) is None
    checkpoints.remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []
