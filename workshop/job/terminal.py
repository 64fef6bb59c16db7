"""Show train.out as it grows, without blank lines and DeepSpeed's and W&B's information; a step or bar every 5 s."""

import re
import threading
import time
from typing import TextIO

from workshop.record.printable import show

_INFORMATION = re.compile(r"\s*$|\[[\d:, -]+\] \[INFO\]|(?:\x1b\[[\d;]*m)*wandb\S*: (?!ERROR|WARNING)")


def follow(output: TextIO, over: threading.Event) -> None:
    """Print the lines that follow in this file until the step is over; a carriage return ends a line, too."""
    next_s, begun, last = float("-inf"), "", False
    with output:
        while not last:
            last = over.wait(0.2)
            *lines, begun = (begun + output.read() + ("\n" if last else "")).split("\n")
            for line in lines:
                progress = re.match(r"\{'loss': |step \d+: loss |.*\d%\|", line)
                if not _INFORMATION.match(line) and not (progress and time.monotonic() < next_s):
                    next_s = time.monotonic() + 5 if progress else next_s
                    show(line)
