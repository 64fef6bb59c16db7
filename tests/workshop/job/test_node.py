"""One node's share: loggers beside the command, ended with it; what differs by node is expanded on the node."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import PATH, REPO, program, wait_until
from tests.leftovers import processes_of

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


@pytest.mark.parametrize(
    ("mark", "outlives", "written"),
    [(mark, "sleep 1; touch $RUN_DIR/written", True) for mark in ("finished", "saved 7")]
    + [("saves", "exec sleep 1000", False)],
)
def test_process_has_time_after_the_trainings_last_word(
    tmp_path: Path, mark: str, outlives: str, written: bool
) -> None:
    """W&B's process still writes after a training's end; a rank whose launcher was killed must not."""
    (tmp_path / ".control").write_text(f"starting\n{mark}\n")
    script = "import workshop.job.processes as p; p.KILL_AFTER_S = 1000; import workshop.job.node as node; node.main()"
    variables = {"PATH": PATH, "RUN_DIR": str(tmp_path), "PYTHONPATH": str(REPO), "NNODES": "1"}
    command = [sys.executable, "-c", script, "bash", "-c", f"setsid bash -c '{outlives}' & exit 3"]
    assert subprocess.run(command, env=variables, timeout=300).returncode == 3
    assert (processes_of(tmp_path), (tmp_path / "written").exists()) == ([], written)


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
