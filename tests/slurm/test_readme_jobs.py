"""Every sbatch line of the documents is accepted by a real SLURM as it stands, and leads to the launcher it names."""

import re
import subprocess
from collections.abc import Iterator

import pytest
from throwaway_slurm import ThrowawaySlurm

from tests.launching import REPO
from tests.readme_commands import STANDS_FOR, all_blocks, launchers, submissions

LINES = sorted({line for block in all_blocks() for line in submissions(block)})


@pytest.fixture(scope="module")
def large(slurm_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThrowawaySlurm]:
    """Nodes as the lines ask for them, in name only: jobs are held, none starts."""
    with ThrowawaySlurm(tmp_path_factory.mktemp("large"), nodes=4, gpus_per_node=8, memory_mib=512 * 1024) as cluster:
        yield cluster


def test_every_sbatch_line_is_accepted_and_finds_its_launcher(large: ThrowawaySlurm) -> None:
    assert len(LINES) > 20
    for line in LINES:
        command = line.replace("sbatch ", "sbatch --hold --parsable ")
        for words, here in STANDS_FOR.items():
            command = command.replace(words, here)
        answer = subprocess.run(["bash", "-c", command], cwd=REPO, env=large.env, capture_output=True, text=True)
        assert answer.returncode == 0, f"{line}\n{answer.stderr}"
        job = int(answer.stdout)
        shown = large.run("scontrol", "show", "job", str(job))
        if "--wrap=" in line:
            large.cancel(job)
            continue
        (launcher,) = launchers(line)
        assert f"Command={REPO / launcher}" in shown, line
        for argument in re.findall(r"\S+\.json", line.partition(".slurm")[2]):
            folder = (REPO / launcher).parent
            assert (REPO / argument).exists() or (folder / argument).exists(), line
        large.cancel(job)
