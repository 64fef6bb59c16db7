"""When a node ends what is left of a training that has said its last word (workshop/record/control.py).

Ranks and W&B's process may still write then; launchers do not. A launcher that hangs or is stopped would keep the job.
"""

import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from workshop.job import processes
from workshop.record.control import Control, Said
from workshop.record.exercises import Start
from workshop.record.printable import show

END_AFTER_S = 300  # for ranks and W&B's process


class Ending:
    """The time limit of this process's descendants.

    Args:
        start: of this process.
        spared: ids of processes that do not belong to the training: loggers.
        later_s: added to the limits; 0 for a node. The supervisor ends only what no node has ended.
    """

    def __init__(self, control: Control, start: Start, spared: Collection[int] = (), later_s: float = 0.0) -> None:
        self.control, self.spared, self.later_s = control, spared, later_s
        self.launchers, self.begun = set[int](), False
        self.kill_s, self.shown = float("inf"), later_s > 0
        self.nodes = start.nodes if start.job else 1  # emulated ones share a process
        self.word = f"ended {start.node}"

    def within(self, seconds: float) -> None:
        """Set the limit to `seconds` from now, unless it is earlier."""
        self.kill_s = min(self.kill_s, time.monotonic() + seconds + self.later_s)

    def due(self, said: Said | None = None) -> bool:
        """Return whether the limit has passed. Ask often: launchers are told from ranks while the training starts."""
        said = said or self.control.read()
        if not self.begun:  # a short training may be over by the next look
            self.launchers, self.begun = processes.launchers(self.spared) or self.launchers, bool(said.lines)
        if said.at_end:
            self._limit(said.lines)
        if said.refused:
            self.within(0)
        return time.monotonic() >= self.kill_s

    def end_all(self, told: Callable[[], object], after_s: float) -> None:
        """SIGKILL all descendants, also ranks whose launcher was killed: when due, or at once before the last word.

        Args: told: asked often, whether they are to end `after_s` from now at the latest.
        """
        # A parent may go while the first looks.
        while living := processes.descendants(self.spared) or processes.descendants(self.spared):
            if told():
                self.within(after_s)
            said = self.control.read()
            due = not said.at_end or self.due(said)
            # All stand still first: a launcher would report the ends of its ranks.
            for number in (signal.SIGSTOP, signal.SIGKILL) if due else ():
                for pid in living:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            time.sleep(0.02)

    def _limit(self, lines: list[str]) -> None:
        self.within(END_AFTER_S)
        if not (living := self._ranks() or self._ranks()):  # a parent may go while the first looks
            if self.word not in lines:
                with suppress(OSError):  # a full disk
                    self.control.say(self.word)
            # torchrun's of the first node hosts the rendezvous: without it the other nodes' end their ranks.
            if len({line for line in lines if line.startswith("ended ")} | {self.word}) >= self.nodes:
                self.within(processes.KILL_AFTER_S)
        elif not self.shown and (left_s := self.kill_s - time.monotonic()) < END_AFTER_S - processes.KILL_AFTER_S:
            self.shown = True
            show(f"the training has ended; processes that still run have {left_s:.0f} s: {sorted(living)}")

    def _ranks(self) -> set[int]:
        """Return the ids of the living ranks and of what they started."""
        return processes.descendants(self.spared) - self.launchers
