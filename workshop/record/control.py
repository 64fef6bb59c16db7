"""RUN_DIR/.control: messages between supervisor and training, one per line; both only append.

| Line | Written by | Means |
|---|---|---|
| `starting` | supervisor | an attempt starts; the lines above belong to earlier ones |
| `saves` | training, before its first step | it has begun, and saves when it is told to stop |
| `saves nothing` | training, when it knows its settings | it does not save and gets no `stop` |
| `stop` | supervisor | save a checkpoint and end |
| `saved N` | training | checkpoint-N is saved; it ends here |
| `over` | training, after its last step | it no longer reads `stop` |
| `finished` | training's rank 0, after saving and answering | the run is completed, whatever its launcher's exit code |
| `ended N` | node N's process, after `saved` or `finished` | no rank of this node lives any more |
| `refused TEXT` | a rank, with the error that it would print | the training cannot run as it is asked to; end it |
"""

from pathlib import Path
from typing import NamedTuple


class Said(NamedTuple):
    """What the lines of the last attempt say."""

    lines: list[str]

    @property
    def saves(self) -> bool:
        """True from the training's first to its last step if it saves when it is told to stop."""
        return "saves" in self.lines and "over" not in self.lines

    @property
    def told(self) -> bool:
        """True if the training was told to stop and is not over."""
        return "stop" in self.lines and "over" not in self.lines

    @property
    def saved(self) -> str:
        """The step after which the training saved and ended on request; "": it did not."""
        return self._after("saved ")

    @property
    def finished(self) -> bool:
        """True if the training has reached its end and saved everything; without it exit code 0 means nothing."""
        return "finished" in self.lines

    @property
    def at_end(self) -> bool:
        """True if everything is written and the training ends by itself."""
        return self.finished or bool(self.saved)

    @property
    def refused(self) -> str:
        """The error of the first rank that could not use an input; "": there is none."""
        return self._after("refused ")

    def _after(self, word: str) -> str:
        return next((line.removeprefix(word) for line in self.lines if line.startswith(word)), "")


class Control:
    """The file of one run; without it there are no lines."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / ".control"

    def say(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{line}\n")

    def read(self) -> Said:
        """Return what is said after the last `starting`."""
        text = self.path.read_text() if self.path.is_file() else ""
        return Said(text.rpartition("starting\n")[2].splitlines())

    def tell(self) -> bool:
        """Tell the training to save and end; return whether it will."""
        said = self.read()
        if not said.saves or "stop" in said.lines:
            return False
        self.say("stop")
        return self.read().told
