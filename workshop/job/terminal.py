"""Show a training's output while it runs, as far as a person can follow it.

train.out keeps all of it. Shown are: a line on steps every few seconds, a progress bar every few seconds and at its
end, the warning of several ranks once; not shown: information without use, and false alarms.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

INTERVAL_S = 5.0
LOOK_EVERY_S = 0.2
_PROGRESS = re.compile(r"\{'loss': |step \d+: loss |(?P<bar>.*\d%)\|")  # the Trainer's line, by-hand's, a bar
_STAMP = re.compile(r"^\[[\d:, -]+\] \[[A-Z]+\] (\[\S+\] )?")  # DeepSpeed's
# The run's own first line says that it trains on the CPU. A head that is tied to the embeddings is in no checkpoint.
# One node needs no list of hosts, and the launcher counts its GPUs. The Trainer leaves accumulation to DeepSpeed.
# bitsandbytes has an optional kernel for inference on the CPU.
_LEFT_OUT = re.compile(
    r"^\s*$|^(?:\x1b\[[\d;]*m)*wandb\S*: (?!ERROR|WARNING)|^\[[\d:, -]+\] \[INFO\]|Setting accelerator to CPU\."
    r"|There were missing keys in the checkpoint model loaded: \['lm_head\.weight'\]"
    r"|Unable to find hostfile, will proceed with training with local resources"
    r"|Detected VISIBLE_DEVICES=\S+ but ignoring it"
    r"|Failed to load CPU gemm_4bit_forward from kernels-community"
    r"|Gradient accumulation steps mismatch: GradientAccumulationPlugin has 1, "
)


def readable(printed: Iterable[str], clock: Callable[[], float] = time.monotonic) -> Iterator[str]:
    """Give the lines that are shown."""
    shown_s, shown_bar, warnings = float("-inf"), "", set()
    for line in printed:
        if _LEFT_OUT.search(line):
            continue
        if progress := _PROGRESS.match(line):
            now_s, bar = clock(), progress["bar"] or ""
            if (bar and bar == shown_bar) or (now_s - shown_s < INTERVAL_S and not bar.endswith("100%")):
                continue
            shown_s, shown_bar = now_s, bar or shown_bar
        elif "warning" in line.lower():
            if (text := _STAMP.sub("", line)) in warnings:
                continue
            warnings.add(text)
        yield line


def lines(output: Path, offset: int, over: threading.Event) -> Iterator[str]:
    """Give the lines of a growing file until the step is over; a carriage return ends a line, too."""
    with output.open(errors="replace") as file:
        file.seek(offset)
        begun = ""
        while not over.is_set():
            piece = file.readline()
            begun += piece
            if piece.endswith("\n"):
                yield begun.removesuffix("\n")
                begun = ""
            elif not piece:
                over.wait(LOOK_EVERY_S)
        yield from (begun + file.read()).split("\n")


def follow(output: Path, offset: int, over: threading.Event) -> None:
    """Print the lines that are shown until the step is over."""
    for line in readable(lines(output, offset, over)):
        show(line)


def show(text: str) -> None:
    """Print a line. Where the output is closed or its disk full, nothing is shown any more; the training continues."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
