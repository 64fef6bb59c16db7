"""The diff of a run's code, without what may hold keys: shell files, untracked files, and lines that name a key."""

import re
import subprocess
from pathlib import Path

_WITHOUT_SHELL_FILES = ("--", ".", ":(exclude)*.sh", ":(exclude)*.env")
_MAY_HOLD_KEY = re.compile(r"^([ +-]?).*(?:KEY|TOKEN|SECRET|PASSWORD|\bhf_|\bsk-).*$", re.IGNORECASE | re.MULTILINE)


def diff_without_keys(repository: Path) -> str:
    """Return `git diff HEAD` of tracked files other than *.sh and *.env; `[left out]` replaces each line with a key."""
    command = ["git", "-C", str(repository), "diff", "--no-color", "--no-ext-diff", "HEAD", *_WITHOUT_SHELL_FILES]
    diff = subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    return _MAY_HOLD_KEY.sub(r"\1[left out]", diff)
