"""When what is left of a training that has said its last word (workshop/record/control.py) is ended.

Ranks and W&B's process may still write then; launchers do not. A launcher that hangs would keep the job.
"""

import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from workshop.job import processes
from workshop.record.control import Control
from workshop.record.printable import show

END_AFTER_S = 300  # for ranks and W&B's process


class Ending:
    """The time limit of this process's descendants.

    Args:
        spared: ids of processes that do not belong to the training.
        later_s: added to the limits; 0 for a node. The supervisor ends only what no node has ended.
    """

    def __init__(self, control: Control, spared: Collection[int] = (), later_s: float = 0.0) -> None:
        self.control, self.spared, self.later_s = control, spared, later_s
        self.has_launcher = False
        self.kill_s, self.shown = float("inf"), later_s > 0

    def within(self, seconds: float) -> None:
        """Set the limit to `seconds` from now, unless it is earlier."""
        self.kill_s = min(self.kill_s, time.monotonic() + seconds + self.later_s)

    def due(self) -> bool:
        """Return whether the limit has passed. Ask often: launchers are told from ranks while there are ranks."""
        said, ranks = self.control.read(), self._ranks() or self._ranks()  # a parent may go while the first looks
        if said.refused:
            self.within(0)
        if said.at_end:
            self.within(END_AFTER_S if ranks else processes.KILL_AFTER_S)
            left_s = self.kill_s - time.monotonic()
            if ranks and not self.shown and left_s < END_AFTER_S - processes.KILL_AFTER_S:
                self.shown = True
                show(f"the training has ended; processes that still run have {left_s:.0f} s: {sorted(ranks)}")
        return time.monotonic() >= self.kill_s

    def end_all(self, told: Callable[[], object], after_s: float) -> None:
        """SIGKILL all descendants, also ranks whose launcher was killed: when due, or at once before the last word.

        Args: told: asked often, whether they are to end `after_s` from now at the latest.
        """
        # A parent may go while the first looks.
        while living := processes.descendants(self.spared) or processes.descendants(self.spared):
            if told():
                self.within(after_s)
            due = not self.control.read().at_end or self.due()
            # All stand still first: a launcher would report the ends of its ranks.
            for number in (signal.SIGSTOP, signal.SIGKILL) if due else ():
                for pid in living:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            time.sleep(0.02)

    def _ranks(self) -> set[int]:
        """Return the ids of the living ranks and of W&B's process; of all descendants until a launcher is seen."""
        living = processes.descendants(self.spared)
        ranks = processes.ranks(living)
        self.has_launcher |= bool(ranks)
        return ranks if self.has_launcher else living
