"""What the documents and the tools say to a real SLURM, and what they make of its answers."""

import re
import subprocess

from throwaway_slurm import ThrowawaySlurm

from tests.launching import REPO
from tests.readme_commands import STANDS_FOR, all_blocks, launchers, submissions

LINES = sorted({line for block in all_blocks() for line in submissions(block)})


def test_every_sbatch_line_of_the_documents_is_accepted_and_finds_its_launcher(slurm: ThrowawaySlurm) -> None:
    assert len(LINES) > 20
    for line in LINES:
        command = line.replace("sbatch ", "sbatch --hold --parsable ")
        for words, here in STANDS_FOR.items():
            command = command.replace(words, here)
        answer = subprocess.run(["bash", "-c", command], cwd=REPO, env=slurm.env, capture_output=True, text=True)
        assert answer.returncode == 0, f"{line}\n{answer.stderr}"
        shown = slurm.run("scontrol", "show", "job", answer.stdout.strip())
        slurm.cancel(int(answer.stdout))
        if "--wrap=" in line:
            continue
        (launcher,) = launchers(line)
        assert f"Command={REPO / launcher}" in shown, line
        for argument in re.findall(r"\S+\.json", line.partition(".slurm")[2]):
            folder = (REPO / launcher).parent
            assert (REPO / argument).exists() or (folder / argument).exists(), line
