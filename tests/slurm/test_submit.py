"""What is submitted is what runs: on a real SLURM, with a copy of this repository that may be edited."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from throwaway_slurm import ThrowawaySlurm

from tests.launching import REPO, git, record, wait_until
from tests.leftovers import leftovers
from tests.readme_commands import STANDS_FOR, all_blocks, launchers, submissions
from tools.commands import doctor

# Stands in for the training: what matters here is which version of it runs, and what it is given. One text, so one
# write: the loggers write into the same file.
TRAIN = 'import os\nprint("train.py is {version}; data:", os.environ["DATASET"], "config:", os.environ["CONFIG"])\n'
TRAIN += 'open(os.environ["RUN_DIR"] + "/.control", "a").write("finished\\n")\n'


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """This working tree as a repository of its own with one commit."""
    copy = tmp_path / "repo"
    for name in git(REPO, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (REPO / name).exists() and not name.startswith("logs/reference"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, copy / name, follow_symlinks=False)
    (copy / "baseline/train.py").write_text(TRAIN.format(version="committed"))
    git(copy, "init", "--quiet")
    git(copy, "add", ".")
    git(copy, "commit", "--quiet", "--message=copy")
    return copy


@pytest.fixture
def participant(tmp_path: Path) -> Path:
    """The folder in which the participant stands, with data of their own in it."""
    folder = tmp_path / "participant"
    folder.mkdir()
    (folder / "mine.json").write_text("{}")
    return folder


def environment(slurm: ThrowawaySlurm, copy: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{slurm.env['PATH']}"
    return slurm.env | {"PATH": path, "PYTHONPATH": str(copy), "LOG_DIR": "my_logs", "DATASET": "mine.json"}


def tools(slurm: ThrowawaySlurm, copy: Path, participant: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools", *words]
    return subprocess.run(command, cwd=participant, env=environment(slurm, copy), capture_output=True, text=True)


def job_of(printed: str) -> int:
    return int(re.search(r"^job (\d+)", printed, re.MULTILINE)[1])


def test_editing_while_queued_does_not_change_what_runs(slurm: ThrowawaySlurm, copy: Path, participant: Path) -> None:
    """Nor a configuration, which only a snapshot does not look up in the folder of the submission first."""
    exercise, train = copy / "baseline", copy / "baseline/train.py"
    train.write_text(TRAIN.format(version="submitted"))
    (exercise / "exercise.toml").write_text('[launchers."baseline.slurm"]\narguments = ["config"]\n')
    for configs in (exercise / "ds_configs", participant / "ds_configs"):
        configs.mkdir()
        (configs / "zero1.json").write_text("{}")
    (exercise / "submit.txt").write_text("baseline.slurm ds_configs/zero1.json\n")
    (copy / "cluster.env").write_text("export SBATCH_TIMELIMIT=7\n")
    submit = ("submit", "baseline")
    job = job_of(tools(slurm, copy, participant, *submit, "--", "--hold", "--mem=1G").stdout)
    assert slurm.show(job)["TimeLimit"] == "00:07:00", "cluster.env has not reached sbatch"

    train.write_text(TRAIN.format(version="edited"))
    (exercise / "env_vars.sh").write_text("exit 1\n")
    (copy / "workshop/job/outcome.py").write_text("raise SystemExit('edited')\n")
    again = tools(slurm, copy, participant, *submit, "--again").stdout
    assert "nothing to do" in again, "a queued run was queued again"
    slurm.run("scontrol", "release", str(job))

    assert slurm.wait(job) == "COMPLETED", slurm.job_output(job)
    (run,) = (participant / "my_logs/baseline").iterdir()
    trained = re.search(r"train.py is submitted; data: (\S+) config: (\S+)", (run / "train.out").read_text())
    assert trained[1] == f"{participant}/mine.json"
    assert trained[2].endswith("/baseline/ds_configs/zero1.json"), "the configuration from where the participant stands"
    found = record(run)
    assert (found["state"], found["config"], found["launcher"]) == ("completed", "zero1", "baseline.slurm")
    assert found["submission"] == "DATASET=mine.json baseline.slurm ds_configs/zero1.json"
    assert found["git_commit"] == git(copy, "rev-parse", "HEAD") and found["git_dirty"] is True
    assert '+print("train.py is submitted' in found["git_diff"] and "edited" not in found["git_diff"]
    assert (run / "code.diff").read_text() == found["git_diff"]
    wait_until(lambda: leftovers(run, slurm.shm) == [])

    git(copy, "checkout", "baseline/env_vars.sh")
    assert "skipped: completed" in tools(slurm, copy, participant, *submit).stdout


def test_snapshot_runs_at_the_second_depth(slurm: ThrowawaySlurm, copy: Path, participant: Path) -> None:
    """Its links lead into the snapshot, not to what is edited meanwhile. The first depth is tested above."""
    exercise = copy / "further/lora"
    (exercise / "train.py").write_text(TRAIN.format(version="submitted"))
    launcher = min(exercise.glob("*.slurm"))
    (exercise / "submit.txt").write_text(f"{launcher.name}\n")
    job = job_of(tools(slurm, copy, participant, "submit", exercise.name, "--", "--hold", "--mem=1G").stdout)
    (exercise / "train.py").write_text(TRAIN.format(version="edited"))
    slurm.run("scontrol", "release", str(job))
    assert slurm.wait(job) == "COMPLETED", slurm.job_output(job)
    (run,) = (participant / "my_logs" / exercise.name).iterdir()
    assert "train.py is submitted" in (run / "train.out").read_text()
    assert (record(run)["exercise"], record(run)["state"]) == (exercise.name, "completed")
    for given in ("lora", "further/lora"):
        assert "skipped: completed" in tools(slurm, copy, participant, "submit", given).stdout


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


def test_launcher_longer_than_the_partition_is_named_and_starts_with_a_shorter_limit(slurm, tmp_path) -> None:
    header = re.findall(r"^#.*$", (REPO / "baseline/baseline.slurm").read_text(), re.MULTILINE)
    (tmp_path / "short.slurm").write_text("\n".join([*header, "true", ""]))
    partition = slurm.run("sinfo", "--noheader", "--format=%P").split()[0].rstrip("*")
    site = {"cwd": tmp_path, "env": {"SBATCH_TIMELIMIT": "20"}}
    slurm.run("scontrol", "update", f"PartitionName={partition}", "MaxTime=30")
    try:
        waiting = slurm.submit("short.slurm", options=["--mem=1G"], cwd=tmp_path)
        assert slurm.wait(slurm.submit("short.slurm", options=["--mem=1G"], **site)) == "COMPLETED"
        assert slurm.show(waiting)["Reason"] == "PartitionTimeLimit"
        slurm.cancel(waiting)
        found = doctor.time_limit(slurm.env)
        assert found.status == "warning" and re.search(r"baseline/baseline.slurm \(60 min, planned \d+\)", found.text)
        assert "baseline.slurm" not in doctor.time_limit(slurm.env | {"SBATCH_TIMELIMIT": "20"}).text
    finally:
        slurm.run("scontrol", "update", f"PartitionName={partition}", "MaxTime=UNLIMITED")
