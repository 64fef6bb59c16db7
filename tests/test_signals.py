"""Tests that wait for what Ctrl-C does must not inherit a shell's decision to ignore it."""

import subprocess
import sys

from tests.launching import REPO


def test_processes_of_the_tests_hear_ctrl_c_although_the_shell_ignores_it() -> None:
    started = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    code = f"import subprocess, sys, tests.conftest; subprocess.run([sys.executable, '-c', {started!r}])"
    ignoring = ["bash", "-c", "trap '' INT; exec \"$@\"", "bash", sys.executable, "-c"]
    answers = [
        subprocess.run([*ignoring, program], cwd=REPO, capture_output=True, text=True, check=True).stdout.strip()
        for program in (started, code)
    ]
    assert answers == ["False", "True"]
