"""What a person sees of train.out: steps and bars now and then, the rest as it was printed."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.launching import REPO
from workshop.job.terminal import follow


def test_terminal_is_not_flooded_and_hides_no_error(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture) -> None:
    steps = ["{'loss': 2.0}", "{'loss': 1.9}", "step 3: loss 1.8", " 50%|##"]
    information = [
        "[2026-11-22 13:23:48,047] [INFO] [launch.py:158:main] nnodes=1, num_local_procs=2",
        "\x1b[1;34mwandb\x1b[0m: Find logs at: ",  # as W&B's process writes where the training was told to end
        "wandb: ",
        "",
    ]
    others = ["[2026-11-22 13:20:04,547] [WARNING] [engine.py:1:x] no", "error (rank 1): no", "wandb: ERROR no room"]
    (tmp_path / "train.out").write_text("an earlier attempt\n" + "\n".join([*steps, *information, *others]))
    over, now_s = threading.Event(), [0, 0, 1, 4, 5, 5]  # a step that is shown asks twice
    over.set()
    monkeypatch.setattr(time, "monotonic", lambda: now_s.pop(0))
    output = (tmp_path / "train.out").open()
    output.readline()
    follow(output, over)
    assert capsys.readouterr().out.splitlines() == [steps[0], steps[3], *others]


def test_carriage_return_ends_a_line_and_a_closed_terminal_ends_quietly(tmp_path: Path) -> None:
    output = tmp_path / "train.out"
    output.write_text("a\r100%|##\nb\n")
    follow = "import threading; from workshop.job.terminal import follow; over = threading.Event(); "
    follow += f"over.set(); follow(open({str(output)!r}), over)"
    job = subprocess.run([sys.executable, "-c", follow], cwd=REPO, capture_output=True, text=True)
    assert job.stdout.splitlines() == ["a", "100%|##", "b"], "what ends a bar is a line's end too"
    reading, writing = os.pipe()
    os.close(reading)
    job = subprocess.run([sys.executable, "-c", follow], cwd=REPO, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (job.returncode, job.stderr) == (0, b"")
