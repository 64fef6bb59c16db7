"""A killed compilation must not make every later job wait for ever."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.utils.file_baton import FileBaton

from workshop.compilation import is_open, remove_stale_locks


@pytest.fixture
def lock(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "cpu_adam").mkdir()
    return tmp_path / "cpu_adam" / "lock"


def test_lock_of_a_killed_compilation_is_removed(lock: Path, capsys) -> None:
    code = (
        f"from torch.utils.file_baton import FileBaton; import os; FileBaton({str(lock)!r}).try_acquire(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert lock.exists()
    an_hour_ago = time.time() - 3600
    os.utime(lock, (an_hour_ago, an_hour_ago))
    remove_stale_locks()
    assert not lock.exists()
    assert f"{lock}: removed" in capsys.readouterr().out


def test_lock_that_may_be_another_machines_is_waited_for(lock: Path, capsys) -> None:
    lock.touch()
    remove_stale_locks(longest_s=2)
    assert not lock.exists()
    waiting, removed = capsys.readouterr().out.splitlines()
    assert waiting.startswith(f"waiting for {lock}") and "removed" in removed


def test_lock_of_a_compilation_that_goes_on_is_left_alone(lock: Path) -> None:
    baton = FileBaton(str(lock))
    assert baton.try_acquire()
    assert is_open(lock)
    remove_stale_locks(longest_s=0)
    assert lock.exists()
    baton.release()
    assert not lock.exists()
