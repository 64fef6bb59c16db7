"""A snapshot is the code of the moment, and says how it differs from its commit."""

import json
from pathlib import Path

import pytest

from tests.launching import git, program
from tools.submit import snapshot
from workshop.record.errors import InputError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    program(root / "ex/launcher.slurm", "")
    (root / "ex/train.py").write_text("print('old')\n")
    (root / "ex/ds_config.json").symlink_to("zero1.json")
    (root / ".gitignore").write_text(".venv/\n/logs/*\n/cluster.env\n")
    (root / "logs").mkdir()
    (root / "logs/README.md").write_text("runs\n")
    return root


def commit(root: Path) -> str:
    git(root, "init", "--quiet")
    git(root, "add", "--force", ".")
    git(root, "commit", "--quiet", "--message=first")
    return git(root, "rev-parse", "HEAD")


def facts(taken: snapshot.Snapshot) -> dict[str, object]:
    return json.loads((taken.folder / "snapshot.json").read_text())


def test_snapshot_stays_as_it_is_when_the_code_is_edited_and_other_code_is_elsewhere(root: Path) -> None:
    head = commit(root)
    taken = snapshot.take(root, root / "logs")
    assert facts(taken) == {"git_commit": head, "git_dirty": False}
    assert not (taken.folder / "code.diff").exists()
    assert snapshot.take(root, root / "logs").folder == taken.folder
    (root / "ex/train.py").unlink()
    second = snapshot.take(root, root / "logs")
    assert not (second.folder / "ex/train.py").exists()
    assert {path.name for path in taken.folder.parent.iterdir()} == {taken.folder.name, second.folder.name}
    assert (taken.folder / "ex/train.py").read_text() == "print('old')\n"
    assert (taken.folder / "ex/launcher.slurm").stat().st_mode & 0o777 == 0o500
    assert (taken.folder / "ex/ds_config.json").readlink() == Path("zero1.json")
    assert not (taken.folder / "logs").exists()


def test_keys_in_settings_reach_the_job_and_nobody_else(root: Path) -> None:
    (root / "ex/env_vars.sh").write_text("export TRAIN_SIZE=64\n")
    commit(root)
    (root / "ex/env_vars.sh").write_text("export WANDB_API_KEY=5a1adc0ffee7\n")
    (root / "ex/train.py").write_text('login(token="hf_5a1adc0ffee7")  # \udce9\n', errors="surrogateescape")
    folder = snapshot.take(root, root / "logs").folder
    assert "5a1adc0ffee7" not in (folder / "code.diff").read_text()
    assert "5a1adc0ffee7" in (folder / "ex/env_vars.sh").read_text(), "the job sources it"
    files = [path for path in folder.rglob("*") if not path.is_symlink() and path.parent != folder]
    assert {path.name for path in files if path.stat().st_mode & 0o077} == set()


def test_snapshot_holds_edits_and_new_files_except_large_ones_and_changes_nothing_in_the_repository(root: Path) -> None:
    commit(root)
    (root / "ex/train.py").write_text("print('new')\n")
    (root / "ex/new.py").write_text("x = 1\n")
    (root / "mine").mkdir()
    (root / "mine/run.json").write_text("{}")
    (root / "data.bin").write_bytes(bytes(snapshot.LARGEST_UNTRACKED_BYTES + 1))
    before = git(root, "status", "--porcelain"), git(root, "count-objects")
    taken = snapshot.take(root, root / "mine")
    assert (git(root, "status", "--porcelain"), git(root, "count-objects")) == before
    assert facts(taken)["git_dirty"] is True
    assert taken.left_out == ["data.bin"]
    assert (taken.folder / "ex/new.py").read_text() == "x = 1\n"
    assert (taken.folder / "ex/train.py").read_text() == "print('new')\n"
    assert not (taken.folder / "data.bin").exists() and not (taken.folder / "mine").exists()
    assert "new.py" not in (taken.folder / "code.diff").read_text()


def test_file_that_git_cannot_read_is_named_and_nothing_is_submitted(root: Path) -> None:
    """HEAD's code would run instead of the edited one."""
    commit(root)
    (root / "ex/new.py").write_text("x = 1\n")
    git(root, "config", "filter.broken.clean", "false")
    git(root, "config", "filter.broken.required", "true")
    (root / ".git/info/attributes").write_text("new.py filter=broken\n")
    with pytest.raises(InputError, match="update-index failed: fatal: ex/new"):
        snapshot.take(root, root / "logs")
