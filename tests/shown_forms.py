"""Whether a launcher still prints what the instructor's demos and START.md show of it."""

import re
from pathlib import Path

from tools.rehearsal import demos
from tools.submit.submissions import read_argument

# What comes now and then (the terminal shows a line of a progress bar every few seconds), depends on the machine, or is
# another program's; the loss of the last evaluation is in the
# summary if there was one before the end.
_UNSTEADY = re.compile(r"\{'|step #|.*#%\||loss: |warning: |[EWI]#|\s|Traceback|torch\.|=|-|\[|$")


def assert_printed_as_shown(printed: str, line: str, logs: Path, resumed: bool = False) -> None:
    """The same lines, whatever they measured: a demo that shows others would puzzle a room.

    Args:
        printed: by a launcher in a test, whose runs are in `logs`.
        line: of a list in instructor/demos.
    """
    submission = read_argument(line, {})
    shown = (demos.kept(submission).folder / (demos.RESUMED if resumed else demos.LAUNCHED)).read_text()
    here, there = _forms(demos.without_places(printed, logs)), _forms(shown)
    assert (here - there, there - here) == (set(), set()), (
        f"not as instructor/demos/runs has it: {sorted(here ^ there)}; CONTRIBUTING.md says how to make the demos anew"
    )


def _forms(text: str) -> set[str]:
    text = re.sub(r" --(logs logs|local)\b", "", re.sub(r"-[jp]\d+\b", "-run", text))
    text = re.sub(r"\.venv/lib/[^/]+/site-packages/", "", text)  # PyTorch leaves it out where it works above .venv
    return {form for line in text.splitlines() if not _UNSTEADY.match(form := demos.form(line))}
