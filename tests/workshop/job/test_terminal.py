"""What a person sees of train.out: steps and bars now and then, each warning once, the rest as it was printed."""

import os
import subprocess
import sys
from pathlib import Path

from tests.launching import REPO
from workshop.job.terminal import readable


def shown(*printed: str, seconds_between: float = 0.0) -> list[str]:
    """What is shown of lines printed with so many seconds between them."""
    now_s = iter(seconds_between * number for number in range(len(printed)))
    return list(readable(printed, clock=lambda: next(now_s)))


def test_warning_of_several_ranks_comes_once_and_what_only_informs_or_sounds_wrong_never() -> None:
    first = "[2026-11-22 13:20:04,547] [WARNING] [engine.py:1:_do_sanity_check] An engine has been set up before."
    ours = "warning: nvidia-smi not found: no GPU memory log"
    errors = ["error (rank 0): no", "error (rank 1): no"]
    assert shown(first, first.replace("04,547", "05,001"), ours, ours, *errors) == [first, ours, *errors]
    coloured = "\x1b[1;34mwandb\x1b[0m: Find logs at: "  # as W&B's process writes where the training was told to end
    assert shown("wandb: ", "wandb: Run summary:", coloured, "wandb: ERROR no room") == ["wandb: ERROR no room"]
    printed = [
        "[2026-11-22 13:23:48,047] [INFO] [launch.py:158:main] nnodes=1, num_local_procs=2",
        "[2026-11-22 17:08:26,422] [WARNING] [real_accelerator.py:213:get_accelerator] Setting accelerator to CPU. If",
        "[2026-11-22 17:17:51,463] [WARNING] [runner.py:214:fetch_hostfile] Unable to find hostfile, will proceed with "
        "training with local resources only.",
        "[RANK 0] Gradient accumulation steps mismatch: GradientAccumulationPlugin has 1, DeepSpeed config has 2.",
        "[transformers] There were missing keys in the checkpoint model loaded: ['lm_head.weight'].",
        "[transformers] There were missing keys in the checkpoint model loaded: ['h.0.mlp.weight', 'lm_head.weight'].",
    ]
    assert shown(*printed) == printed[-1:]


def test_terminal_shows_each_line_and_one_that_is_closed_ends_quietly(tmp_path: Path) -> None:
    output = tmp_path / "train.out"
    output.write_text("a\r100%|##\nb\n")
    follow = "import pathlib, threading; from workshop.job.terminal import follow; over = threading.Event(); "
    follow += f"over.set(); follow(pathlib.Path({str(output)!r}), 0, over)"
    job = subprocess.run([sys.executable, "-c", follow], cwd=REPO, capture_output=True, text=True)
    assert job.stdout.splitlines() == ["a", "100%|##", "b"], "what ends a bar is a line's end too"
    reading, writing = os.pipe()
    os.close(reading)
    job = subprocess.run([sys.executable, "-c", follow], cwd=REPO, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (job.returncode, job.stderr) == (0, b"")
