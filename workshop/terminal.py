"""What a person can follow of a training's output while it runs.

train.out keeps all of it. Shown are of the lines about steps, and of progress bars, one every few seconds, of a bar
also its end and no state twice; a warning that several ranks give once; and nothing that DeepSpeed and W&B only inform
about, nor what sounds wrong and is not.
"""

import codecs
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

INTERVAL_S = 5.0
LOOK_EVERY_S = 0.2
_PROGRESS = re.compile(r"\{'loss': |step \d+: loss |.*\d%\|")  # the Trainer's line, by-hand's, a bar
_BAR = re.compile(r"(.*\d%)\|")
_WANDB = re.compile(r"wandb: (?!ERROR|WARNING)")
# The run's own first line says that it trains on the CPU. A head that is tied to the embeddings is in no checkpoint.
# One node needs no list of hosts, and the launcher counts its GPUs. The Trainer leaves accumulation to DeepSpeed.
_HARMLESS = re.compile(
    r"Setting accelerator to CPU\.|There were missing keys in the checkpoint model loaded: \['lm_head\.weight'\]"
    r"|Unable to find hostfile, will proceed with training with local resources"
    r"|Detected VISIBLE_DEVICES=\S+ but ignoring it"
    r"|Gradient accumulation steps mismatch: GradientAccumulationPlugin has 1, "
)
_DEEPSPEED = re.compile(r"\[[\d:, -]+\] \[(?P<level>[A-Z]+)\] (\[\S+\] )?")


def lines(pieces: Iterable[str]) -> Iterator[str]:
    """What is between line ends; a progress bar's are carriage returns."""
    rest = ""
    for piece in pieces:
        *complete, rest = re.split(r"[\r\n]", rest + piece)
        yield from complete
    yield rest


def readable(printed: Iterable[str], clock: Callable[[], float] = time.monotonic) -> Iterator[str]:
    """Those lines that are shown."""
    shown_s, shown_bar = float("-inf"), ""
    warnings: set[str] = set()
    for line in printed:
        stamp = _DEEPSPEED.match(line)
        if not line.strip() or (stamp and stamp["level"] == "INFO") or _WANDB.match(line) or _HARMLESS.search(line):
            continue
        if _PROGRESS.match(line):
            now_s, bar = clock(), _BAR.match(line)
            ended = bar and bar[1].endswith("100%")
            if (bar and bar[1] == shown_bar) or (now_s - shown_s < INTERVAL_S and not ended):
                continue
            shown_s, shown_bar = now_s, bar[1] if bar else shown_bar
        elif "warning" in line.lower():
            text = line[stamp.end() :] if stamp else line
            if text in warnings:
                continue
            warnings.add(text)
        yield line


def follow(output: Path, offset: int, over: threading.Event) -> None:
    """Print what a person can follow of a step's output, until the step is over."""

    def pieces() -> Iterator[str]:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        with output.open("rb") as file:
            file.seek(offset)
            while True:
                last = over.is_set()
                if piece := file.read(1 << 16):
                    yield decode(piece)
                elif last:
                    return
                else:
                    over.wait(LOOK_EVERY_S)

    try:
        for line in readable(lines(pieces())):
            print(line, flush=True)
    except BrokenPipeError:  # nobody looks any more; the training goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
