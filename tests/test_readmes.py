"""A command in a README that does not run costs a room of people five minutes.

Commands are run here as they stand, on the reference logs: those of the tools in this process, others by bash. Those
that submit a job are given to a real SLURM, which holds it (tests/slurm/test_submit.py); their launchers run to
the end in other tests.
"""

import io
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.launching import PATH, REPO
from tests.readme_commands import Block, all_blocks, runnable, submissions
from tests.simulated_here import simulated_here
from tests.tools.conftest import write_run
from tools.__main__ import main
from tools.plan.submitted_lines import workload_of
from tools.submit.submissions import OPERATIONAL, known_settings, read_argument

BLOCKS = all_blocks()
# A command that this process can run as bash would: its words, the file for what it prints, another code that is right.
TOOLS_COMMAND = re.compile(r"python -m tools ([^|<>;&$*(){}`~\n]+?)(?: > (\S+))?(?: \|\| \[ \$\? = (\d) \])?")


@pytest.mark.slow
def test_site_of_the_documents_is_built_without_a_link_that_leads_nowhere() -> None:
    job = subprocess.run(["make", "-o", ".venv/.installed-dev", "site"], cwd=REPO, capture_output=True, text=True)
    assert job.returncode == 0, job.stdout + job.stderr
    html = REPO / "site/html"
    assert "<li><p>" in (html / "fsdp/README.html").read_text().partition("<details>")[2], "the answers are no list"
    order = re.findall(r"^\| \[([\w-]+)\]\(\S+/README.md\) \|", (REPO / "README.md").read_text(), re.MULTILINE)
    pages = re.findall(r'href="(\S+)/README.html"', (html / "START.html").read_text())
    menu = [Path(page).name for page in pages]
    assert [name for name in dict.fromkeys(menu) if name in order] == order, "the course's order"
    assert not (html / "instructor/answers").exists(), "the answer keys are for `make site ANSWERS=1`"


def test_submitted_lines_are_what_a_job_on_gpus_trains() -> None:
    """Elsewhere they run tiny on CPUs, where some settings and configurations go together that fail on a GPU."""
    for block in BLOCKS:
        for line in submissions(block):
            for settings, rest in re.findall(r"((?:[A-Z_0-9]+=\S+ +)*)sbatch (\S.*?\.slurm[^)#;&]*)", line):
                known = known_settings(REPO / re.search(r"(\S+)/\w+\.slurm", rest)[1]) - OPERATIONAL
                words = [word for word in settings.split() if word.partition("=")[0] in known]
                workload_of(read_argument(" ".join([*words, rest]), {}))  # an error names the line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[int, str]]:
    """Runs a script, once, in a participant's folder: the repository, but what is written stays out of the real one.
    Gives its exit code and what it printed.
    """
    desk = tmp_path_factory.mktemp("desk")
    for entry in REPO.iterdir():
        if entry.name not in (".git", "cluster.env"):
            (desk / entry.name).symlink_to(entry)
    # The captioned tables of a text, as a participant copies them.
    copied = re.findall(r"^(?:\||\*\*Table |$).*", (REPO / "baseline/RESULTS.md").read_text(), re.MULTILINE)
    (desk / "my_results_baseline.md").write_text("\n".join(copied))
    environment = {"PATH": PATH, "HOME": os.environ["HOME"], "LOG_DIR": str(desk / "my_logs")}
    write_run(desk / "my_logs", "20261121-094500-p1", {"model": {"name": "tiny", "hidden_size": 64}})

    @cache
    def run(script: str) -> tuple[int, str]:
        found = TOOLS_COMMAND.fullmatch(script)
        if not found:
            command = ["bash", "-e", "-c", script]
            job = subprocess.run(command, cwd=desk, env=environment, capture_output=True, text=True, timeout=120)
            return job.returncode, job.stdout + job.stderr
        words, file, other_code = found.groups()
        printed, errors = io.StringIO(), io.StringIO()
        with chdir(desk), patch.dict(os.environ, environment, clear=True), simulated_here():
            with redirect_stdout(printed), redirect_stderr(errors):
                try:
                    code = main(shlex.split(words))
                except SystemExit as ended:  # argparse ends the process after --help
                    code = ended.code
            if file:
                Path(file).write_text(printed.getvalue())
        return 0 if code == int(other_code or 0) else code, printed.getvalue() + errors.getvalue()

    return run


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_commands_of_the_documents_run(block: Block, run: Callable[[str], tuple[int, str]]) -> None:
    try:
        lines = [runnable(line) for line in block.lines]
    except LookupError as nobody:
        pytest.fail(f"{block}: {block.lines}: {nobody}")
    as_written = re.sub(r"<(\w+)>", r"\1", "\n".join(block.lines))
    parsed = subprocess.run(["bash", "-n", "-c", as_written], capture_output=True, text=True)
    assert parsed.returncode == 0, f"{block}: {parsed.stderr}"
    if any(re.match(r"(export|unset|source|for) ", line) for line in lines):
        lines = ["\n".join(lines)]  # they are about the lines that follow
    for line in lines:
        code, printed = run(line)
        assert code == 0, f"{block}:\n{line}\n{printed[-3000:]}"
