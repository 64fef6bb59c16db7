"""A checkpoint is whole or not there: damage is found before anything is loaded, and named."""

import os
from pathlib import Path

import pytest

from workshop.errors import WorkshopError
from workshop.job.checkpoints import MANIFEST, UNFINISHED, check_processes, fault, finish, keep_newest, newest


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


def test_whole_checkpoint_has_no_fault_and_the_newest_is_by_number(output: Path) -> None:
    assert [fault(output / f"checkpoint-{step}") for step in (5, 10, 100)] == ["", "", ""]
    assert newest(output) == output / "checkpoint-100"
    assert list((output / UNFINISHED).iterdir()) == []


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


def test_the_newest_stay_none_go_without_a_limit_and_nothing_is_nothing(output: Path) -> None:
    (output / "checkpoint-best").mkdir()
    keep_newest(output, 0)
    assert len(list(output.glob("checkpoint-*"))) == 4
    keep_newest(output, 2)
    assert {path.name for path in output.glob("checkpoint-*")} == {"checkpoint-10", "checkpoint-100", "checkpoint-best"}
    assert newest(output / "nowhere") is None


def test_another_number_of_processes_is_refused_where_the_library_cannot(output: Path) -> None:
    check_processes(output / "checkpoint-100", 1)
    check_processes(output / "checkpoint-10", 2)
    with pytest.raises(WorkshopError, match="found 1, expected 2"):
        check_processes(output / "checkpoint-10", 1)
