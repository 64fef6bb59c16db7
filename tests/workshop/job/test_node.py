"""One node's share: loggers beside the command, ended with it; what differs by node is expanded on the node."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import PATH, REPO, program, wait_until
from tests.leftovers import commands_with, processes_of

pytestmark = pytest.mark.long

LOGGERS = {
    "GPU_LOGGER": "nvidia-smi --query-gpu=timestamp,memory.used --format=csv -lms 100",
    "CPU_LOGGER": "psrecord --include-children --interval 1",
    "PSS_LOGGER": "python -m workshop.measure.memory_logger",
}


def node(folder: Path, *command: str, path: str = PATH, **changes: str) -> subprocess.Popen[str]:
    variables = {"PATH": path, "RUN_DIR": str(folder), "PYTHONPATH": str(REPO), "NNODES": "1"} | LOGGERS | changes
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-m", "workshop.job.node", *command], env=variables, **pipes)


def test_K11_killed_node_leaves_neither_command_nor_logger(tmp_path: Path) -> None:
    job = node(tmp_path, "sleep", "1000")
    wait_until(lambda: any("memory_logger" in command for command in processes_of(tmp_path)))
    job.send_signal(signal.SIGKILL)
    job.wait()
    wait_until(lambda: processes_of(tmp_path) == [])


def test_stopped_logger_does_not_keep_a_job_whose_training_has_failed(tmp_path: Path) -> None:
    job = node(tmp_path, "bash", "-c", "until [ -e $RUN_DIR/over ]; do sleep 0.1; done; exit 3")
    loggers: list[int] = []
    while not loggers:
        found = commands_with("RUN_DIR", tmp_path).items()
        loggers = [pid for pid, command in found if "-m workshop.measure.memory_logger" in command]
    os.kill(loggers[0], signal.SIGSTOP)
    (tmp_path / "over").touch()
    assert job.wait(timeout=60) == 3


def test_next_attempt_ends_the_ranks_of_a_killed_node_process(tmp_path: Path) -> None:
    """As under srun, where nobody inherits them. Another node's and this node's srun go on."""
    job = node(tmp_path, "bash", "-c", "setsid sleep 1000 & wait", SLURM_NODEID="1")
    other = node(tmp_path, "sleep", "2000", SLURM_NODEID="0")
    srun = subprocess.Popen(["sleep", "3000"], env={"PATH": PATH, "RUN_DIR": str(tmp_path), "SLURM_NODEID": "1"})

    def sleeping() -> list[str]:
        return sorted(command for command in processes_of(tmp_path) if command.startswith("sleep"))

    wait_until(lambda: len(sleeping()) == 3)
    job.kill()
    job.wait()
    assert "sleep 1000 " in sleeping(), "its launcher is dead, and it is not"
    assert node(tmp_path, "true", SLURM_NODEID="1").wait(timeout=60) == 0
    assert sleeping() == ["sleep 2000 ", "sleep 3000 "]
    for process in (other, srun):
        process.kill()
        process.wait()


def node_with_limits(folder: Path, script: str, kill_after_s: float, end_after_s: float, **changes: str) -> int:
    """A node's exit code that runs this line of bash with other limits."""
    limits = f"processes.LOOK_EVERY_S, processes.KILL_AFTER_S, ending.END_AFTER_S = 0.1, {kill_after_s}, {end_after_s}"
    main = f"from workshop.job import ending, node, processes; {limits}; node.main()"
    variables = {"PATH": PATH, "RUN_DIR": str(folder), "PYTHONPATH": str(REPO), "NNODES": "1"} | changes
    with (folder / "train.out").open("w") as out:
        command = [sys.executable, "-c", main, "bash", "-c", script]
        return subprocess.run(command, env=variables, stdout=out, timeout=300).returncode


@pytest.mark.parametrize(
    ("mark", "outlives", "written"),
    [(mark, "sleep 1; touch $RUN_DIR/written", True) for mark in ("finished", "saved 7")]
    + [("saves", "exec sleep 1000", False)],
)
def test_process_has_time_after_the_trainings_last_word(tmp_path, mark, outlives, written) -> None:
    """W&B's process still writes after a training's end; a rank whose launcher was killed must not."""
    (tmp_path / ".control").write_text(f"starting\n{mark}\n")
    assert node_with_limits(tmp_path, f"setsid bash -c '{outlives}' & exit 3", 0.2, 1000) == 3
    assert (processes_of(tmp_path), (tmp_path / "written").exists()) == ([], written)


@pytest.mark.parametrize(
    ("rank", "launcher", "kill_after_s", "end_after_s", "written"),
    [
        ("kill -STOP $LAUNCHER; touch written", "wait", 0.2, 1000, True),
        ("touch written", "wait; exec sleep 1000", 0.2, 1000, True),
        ("sleep 1; touch written", "wait", 0.2, 1000, True),
        ("kill -9 $LAUNCHER; sleep 1; touch written", "wait", 0.2, 1000, True),
        ("exec sleep 1000", "wait", 0.2, 1, False),
    ],
    ids=["stopped launcher", "launcher hangs", "atexit", "atexit, killed launcher", "rank hangs"],
)
def test_launcher_or_rank_that_does_not_end_after_its_training_is_ended(
    tmp_path: Path, rank: str, launcher: str, kill_after_s: float, end_after_s: float, written: bool
) -> None:
    """A stopped deepspeed.launcher.launch kept a job with its GPUs to the time limit. A rank may still write."""
    says = "cd $RUN_DIR; sleep 0.5; echo saves >> .control; echo finished >> .control"
    # The runner, its launcher, a rank.
    script = f"bash -c 'export LAUNCHER=$$; RANK=0 bash $RUN_DIR/rank & {launcher}; exit' & wait"
    (tmp_path / "rank").write_text(f"{says}; {rank}\n")
    node_with_limits(tmp_path, script, kill_after_s, end_after_s)
    assert (processes_of(tmp_path), (tmp_path / "written").exists()) == ([], written)
    said = (tmp_path / "train.out").read_text().count("the training has ended")
    assert said == ("sleep" in rank)


def test_launcher_of_one_node_stays_while_ranks_of_another_write(tmp_path: Path) -> None:
    """The first node's torchrun hosts the rendezvous: when it was killed, the other node's ended its rank."""
    (tmp_path / "rank").write_text("sleep 0.5; echo saves >> .control; echo finished >> .control\n")
    other = "until grep -q 'ended 0' .control; do sleep 0.1; done; sleep 1; touch written; echo ended 1 >> .control"
    with subprocess.Popen(["bash", "-c", other], cwd=tmp_path):
        in_job = {"SLURM_JOB_ID": "7", "NNODES": "2", "SLURM_NODEID": "0"}
        script = "cd $RUN_DIR; bash -c 'RANK=0 bash rank & wait; exec sleep 1000' & wait"
        node_with_limits(tmp_path, script, 0.2, 1000, **in_job)
        assert (processes_of(tmp_path), (tmp_path / "written").exists()) == ([], True)


def test_launcher_that_is_stopped_before_its_ranks_start_is_continued(tmp_path: Path) -> None:
    """Nothing else ends such a job: a rank watches itself from its start."""
    script = "bash -c 'kill -STOP $$; RANK=0 touch $RUN_DIR/written' & wait"
    node_with_limits(tmp_path, script, 0.2, 1000)
    assert (tmp_path / "written").exists()


def test_missing_loggers_are_one_warning_each_and_the_rest_goes_on(tmp_path: Path) -> None:
    """PATH without nvidia-smi, and with a psrecord that does not start: its log was empty, and nobody knew why."""
    program(tmp_path / "bin/python", f'exec {sys.executable} "$@"')
    program(tmp_path / "bin/psrecord", "trap '' TERM; touch $RUN_DIR/begun; exec python -c 'import nowhere'")
    wait = "until [ -e $RUN_DIR/begun ] && [ -e $RUN_DIR/cpu_pss.txt ]; do sleep 0.1; done"
    shown, _ = node(tmp_path, "bash", "-c", wait, path=f"{tmp_path}/bin:/usr/bin:/bin").communicate(timeout=60)
    assert shown.count("nvidia-smi not found: no GPU memory log") == 1
    why = "warning: psrecord ended, CPU memory is not logged: ModuleNotFoundError: No module named 'nowhere'"
    assert shown.count(why) == 1
    assert "Traceback" not in shown, "it would count as the training's"
