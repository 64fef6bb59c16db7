"""What a person sees of train.out: steps and bars now and then, each warning once, the rest as it was printed."""

import os
import subprocess
import sys

from tests.launching import REPO
from workshop.training.terminal import INTERVAL_S, lines, readable


def shown(*printed: str, seconds_between: float = 0.0) -> list[str]:
    """What is shown of lines printed with so many seconds between them."""
    now_s = iter(seconds_between * number for number in range(len(printed)))
    return list(readable(printed, clock=lambda: next(now_s)))


def test_thousand_fast_steps_do_not_bury_the_evaluation() -> None:
    steps = [f"{{'loss': '{number}'}}" for number in range(1000)]
    evaluation = "{'eval_loss': '1.5', 'epoch': '1'}"
    assert shown(*steps, evaluation) == [steps[0], evaluation]
    by_hand = [f"step {number}: loss 1.5000, 3.0 ms" for number in range(1000)]
    assert len(shown(*by_hand, seconds_between=INTERVAL_S / 100)) == 10


def test_slow_steps_are_all_shown_and_so_is_where_the_training_stands() -> None:
    steps = [f"{{'loss': '{number}'}}" for number in range(3)]
    assert shown(*steps, seconds_between=INTERVAL_S) == steps
    assert shown("{'loss': '1'}", "step 7 of 48 (15%), about 59 s left")[1:] == ["step 7 of 48 (15%), about 59 s left"]


def test_warning_of_several_ranks_comes_once_and_the_libraries_information_never() -> None:
    first = "[2026-11-22 13:20:04,547] [WARNING] [engine.py:1:_do_sanity_check] An engine has been set up before."
    again = first.replace("04,547", "05,001")
    information = "[2026-11-22 13:23:48,047] [INFO] [launch.py:158:main] nnodes=1, num_local_procs=2"
    ours = "warning: nvidia-smi not found: no GPU memory log"
    errors = ["error (rank 0): no", "error (rank 1): no"]
    assert shown(first, information, again, ours, ours, *errors) == [first, ours, *errors]
    assert shown("wandb: ", "wandb: Run summary:", "wandb: ERROR no room") == ["wandb: ERROR no room"]


def test_bars_end_with_carriage_returns_and_pieces_anywhere() -> None:
    bars = ["  0%|   | 0/2", " 50%|#  | 1/2", "100%|###| 2/2"]
    text = "\r" + "\r".join(bars) + "\nnext\nlast"
    assert list(lines([text[:5], text[5:22], text[22:]])) == ["", *bars, "next", "last"]
    assert shown(*bars, "next") == [bars[0], bars[2], "next"]


def test_bar_does_not_stay_at_its_beginning_and_one_that_stands_still_is_shown_once() -> None:
    short = [f"tokenising: {percent}|##| {part}/2 [00:01<?, ?k/s]" for percent, part in (("  0%", 0), ("100%", 2))]
    assert shown("step 1: loss 9.0", *short, short[1]) == ["step 1: loss 9.0", short[1]]
    still = [f"compiling:   0%|  | 0/3 [00:{second}<?, ?file/s]" for second in range(10, 90, 10)]
    assert shown(*still, "built", seconds_between=2 * INTERVAL_S) == [still[0], "built"]


def test_terminal_that_is_closed_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "workshop.training.terminal"]
    job = subprocess.run(command, cwd=REPO, input=b"a\nb\n", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (job.returncode, job.stderr) == (0, b"")


def test_what_sounds_wrong_and_is_not_is_left_out() -> None:
    printed = [
        "[2026-11-22 17:08:26,422] [WARNING] [real_accelerator.py:213:get_accelerator] Setting accelerator to CPU. If",
        "[2026-11-22 17:17:51,463] [WARNING] [runner.py:214:fetch_hostfile] Unable to find hostfile, will proceed with "
        "training with local resources only.",
        "Detected VISIBLE_DEVICES=0,1 but ignoring it because one or several of --include/--exclude",
        "[RANK 0] Gradient accumulation steps mismatch: GradientAccumulationPlugin has 1, DeepSpeed config has 2.",
        "[transformers] There were missing keys in the checkpoint model loaded: ['lm_head.weight'].",
        "[transformers] There were missing keys in the checkpoint model loaded: ['h.0.mlp.weight', 'lm_head.weight'].",
    ]
    assert list(readable(printed)) == printed[-1:]
