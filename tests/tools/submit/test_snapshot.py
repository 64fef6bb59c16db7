"""A snapshot is the code of the moment, and says how it differs from its commit."""

import json
import os
from pathlib import Path

import pytest

from tests.launching import git, program
from tools.submit import snapshot


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
    assert (taken.folder / "ex/launcher.slurm").stat().st_mode & 0o777 == 0o555
    assert (taken.folder / "ex/ds_config.json").readlink() == Path("zero1.json")
    assert not (taken.folder / "logs").exists()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_keys_in_edited_files_are_neither_in_the_diff_nor_for_others_to_read(root: Path, umask: int) -> None:
    (root / "ex/env_vars.sh").write_text("export TRAIN_SIZE=64\n")
    commit(root)
    (root / "ex/env_vars.sh").write_text("export WANDB_API_KEY=5a1adc0ffee7\nexport TOKENIZER_NAME=gpt2\n")
    (root / "ex/train.py").write_text('login(token="hf_5a1adc0ffee7")  # \udce9\n', errors="surrogateescape")
    before = os.umask(umask)
    try:
        folder = snapshot.take(root, root / "logs").folder
    finally:
        os.umask(before)
    diff = (folder / "code.diff").read_text(errors="surrogateescape")
    assert "5a1adc0ffee7" not in diff and "TOKENIZER_NAME=gpt2" in diff and "\udce9" in diff
    assert "5a1adc0ffee7" in (folder / "ex/env_vars.sh").read_text(), "the job sources it"
    modes = {path.relative_to(folder): path.lstat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
    assert modes.pop(Path("ex/env_vars.sh")) == 0o400
    assert {path: mode for path, mode in modes.items() if mode & umask and not (folder / path).is_symlink()} == {}


def test_the_diff_holds_edits_and_new_files_names_binary_ones_and_can_be_applied(root: Path) -> None:
    (root / "ex/picture.png").write_bytes(bytes(range(256)))
    commit(root)
    (root / "ex/picture.png").write_bytes(bytes(range(256))[::-1])
    (root / "plot.png").write_bytes(bytes(range(256)))
    (root / "ex/train.py").write_text("print('new')\n")
    (root / "ex/new.py").write_text("x = 1\n")
    before = git(root, "status", "--porcelain")
    taken = snapshot.take(root, root / "logs")
    assert git(root, "status", "--porcelain") == before, "the user's index has changed"
    assert facts(taken)["git_dirty"] is True
    diff = (taken.folder / "code.diff").read_text()
    assert diff.startswith("binary file, not shown: ex/picture.png\nbinary file, not shown: plot.png\ndiff --git")
    assert "Binary" not in diff and "GIT binary patch" not in diff
    git(root, "stash", "--include-untracked", "--quiet")
    git(root, "apply", str(taken.folder / "code.diff"))
    assert (root / "ex/train.py").read_text() == "print('new')\n"
    assert (root / "ex/new.py").read_text() == "x = 1\n"
