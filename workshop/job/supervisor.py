"""`python -m workshop.job.supervisor COMMAND...`: a job from its run folder to its outcome; launch.sh becomes it.

A run goes on in its folder, from its newest whole checkpoint: RESUME_RUN=FOLDER, a job that SLURM queued again, and a
training that died after it had saved one (at most RESTARTS times in a job, default 3).
"""

import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from workshop.errors import WorkshopError
from workshop.job import checkpoints
from workshop.job.control import Control
from workshop.job.node import JOB_SIGNALS, exit_code, one_per_node, started, wait_for_job_signals
from workshop.job.outcome import kernel_oom_kills, record_end, slurm_state
from workshop.job.run_record import begin, reopen
from workshop.training.terminal import follow

TOLD_TO_END = 143


class Supervisor:
    """Runs the job. The environment is the one that launch.sh has made."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self.job = os.environ.get("SLURM_JOB_ID")
        self.nodes, self.per_node = int(os.environ["NNODES"]), int(os.environ["NPROC_PER_NODE"])
        self.received = ""  # the signal that told this job to end
        self.noticed = False  # SLURM has sent its notice of the time limit
        self.step: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """The exit code of the job."""
        self.make_run_folder()
        self.control = Control(self.run_dir)
        self.begin()
        check = shlex.split(os.environ.get("CHECK_FIRST", ""))
        return self.end((self.run_step(check) if check else 0) or self.train())

    def make_run_folder(self) -> None:
        """Once nothing stands in the way of the first step: a refused start leaves none."""
        runs, world_size = Path(os.environ["LOG_DIR"], os.environ["EXPERIMENT_NAME"]), self.nodes * self.per_node
        earlier = None
        if named := os.environ.get("RESUME_RUN"):
            earlier = Path(named)
            if not (earlier / "run.json").is_file():
                raise WorkshopError(f"RESUME_RUN='{named}': no run.json there; expected a run folder")
        elif int(os.environ.get("SLURM_RESTART_COUNT") or 0):
            earlier = next((record.parent for record in runs.glob(f"*-j{self.job}/run.json")), None)
        if not earlier and (checkpoint := os.environ.get("RESUME_FROM")):
            checkpoints.check(Path(checkpoint), world_size)
        fresh = runs / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{f'j{self.job}' if self.job else f'p{os.getpid()}'}"
        self.run_dir = (earlier or fresh).absolute()
        try:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            (self.run_dir / "train.out").touch()
        except OSError:
            raise WorkshopError(f"LOG_DIR='{runs.parent}': cannot write there; expected a writable folder") from None
        os.environ["RUN_DIR"] = str(self.run_dir)
        if earlier:
            self.go_on(self.newest_checkpoint())
        else:
            script = f"{os.environ['EXERCISE_DIR']}/{os.environ['LAUNCHER']}"
            words = [script, *shlex.split(os.environ["LAUNCHER_ARGUMENTS"])]
            (self.run_dir / ".launcher").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))
        if self.command[0] == "deepspeed" and (hosts := os.environ.get("DEEPSPEED_HOSTS")):
            slots = [f"{host} slots={self.per_node}\n" for host in hosts.split()]
            (self.run_dir / "hostfile").write_text("".join(slots))
        print(f"run folder: {self.run_dir}", flush=True)

    def begin(self) -> None:
        exercise = Path(os.environ["EXERCISE_DIR"]).name
        begin(self.run_dir, exercise, os.environ["CONFIG"], self.command, kernel_oom_kills())

    def say(self, text: str) -> None:
        """On the terminal and in train.out."""
        print(text, flush=True)
        with (self.run_dir / "train.out").open("a") as file:
            file.write(f"{text}\n")

    def newest_checkpoint(self) -> Path | None:
        """The newest whole checkpoint of this run; of newer ones that are not, a line says why."""
        output = self.run_dir / os.environ["OUTPUT_DIR"]
        checkpoints.remove_unfinished(output)
        found = checkpoints.newest(output.resolve(), self.say)
        if found:
            checkpoints.check_processes(found, self.nodes * self.per_node)
        return found

    def go_on(self, checkpoint: Path | None) -> None:
        """The run folder's next attempt: from the checkpoint given, else from RESUME_FROM, else from the first step."""
        reopen(self.run_dir, str(checkpoint or ""), slurm_state() or "failed")
        if checkpoint:
            os.environ["RESUME_FROM"] = str(checkpoint)
        self.say(f"the run goes on from {os.environ.get('RESUME_FROM') or 'the first step: no whole checkpoint'}")

    def train(self) -> int:
        """The training, again while it dies by itself and each time comes further than the time before."""
        for left in range(int(os.environ.get("RESTARTS") or 3), -1, -1):
            code = self.run_step(self.on_nodes())
            if code == 0 or self.received or self.control.saved or not left:
                return code
            ended = record_end(self.run_dir, code, "")  # again by `end`, unless the training goes on
            checkpoint = self.newest_checkpoint() if ended["state"] == "failed" else None
            self.look_for_signals()
            if not checkpoint or str(checkpoint) == os.environ.get("RESUME_FROM") or self.received or self.noticed:
                return code
            print(shown(ended))
            self.go_on(checkpoint)
            self.begin()
        return code

    def on_nodes(self) -> list[str]:
        """The command with the loggers beside it, on every node. A command that begins with srun has its own tasks."""
        node = [sys.executable, "-m", "workshop.job.node"]
        if self.command[0] == "srun":
            options = list(itertools.takewhile(lambda word: word.startswith("-"), self.command[1:]))
            return ["srun", *options, *node, "--task-per-gpu", *self.command[1 + len(options) :]]
        return one_per_node(node, self.command)

    def run_step(self, command: Sequence[str]) -> int:
        """Its exit code; TOLD_TO_END also where it did not start, or saved and ended, because it was told."""
        self.look_for_signals()
        if self.received:
            return TOLD_TO_END
        output = self.run_dir / "train.out"
        offset = output.stat().st_size
        with output.open("ab") as out:
            self.step = step = started(command, signal.SIGTERM, stdout=out, stderr=subprocess.STDOUT)
        over = threading.Event()
        viewer = threading.Thread(target=follow, args=(output, offset, over), daemon=True)
        viewer.start()
        while step.poll() is None:
            self.handle(signal.sigwait(JOB_SIGNALS))
        self.step = None
        over.set()
        viewer.join()
        return TOLD_TO_END if self.control.saved else exit_code(step)

    def look_for_signals(self) -> None:
        """Handles the signals that came between two steps."""
        while got := signal.sigtimedwait(JOB_SIGNALS, 0):
            self.handle(got.si_signo)

    def handle(self, number: int) -> None:
        """One of JOB_SIGNALS, that came while a step runs or between two: see the table in resilience/README.md."""
        if number == signal.SIGCHLD:
            return
        name, notice = signal.Signals(number).name, number == signal.SIGUSR1
        if notice:
            self.noticed = True
        else:
            self.received = name.removeprefix("SIG")
        running = self.step is not None and self.step.poll() is None
        if (running or notice) and self.control.tell(early=notice):
            print(f"{name}: the training saves a checkpoint and ends; a second signal ends it at once", flush=True)
        elif running and not notice:
            os.killpg(self.step.pid, signal.SIGTERM)
        # SLURM kills everything a few seconds (KillWait) after its TERM: so the end is written down now, too.
        if self.step and self.received:
            record_end(self.run_dir, TOLD_TO_END, self.received, over=False)

    def requeue(self) -> None:
        """After the notice and what was saved because of it, where the job may be queued again."""
        if not (self.job and self.noticed and self.control.saved):
            return
        answer = subprocess.run(["scontrol", "show", "job", self.job], capture_output=True, text=True)
        if re.search(r"\bRequeue=1", answer.stdout):
            print(f"queued again: scontrol requeue {self.job}", flush=True)
            subprocess.run(["scontrol", "requeue", self.job])

    def end(self, code: int) -> int:
        ended = record_end(self.run_dir, code, self.received or ("USR1" if self.noticed else ""))
        if ended["state"] != "completed":
            print(shown(ended), flush=True)
        self.requeue()
        if subprocess.run([sys.executable, "-m", "tools", "summary", str(self.run_dir)]).returncode:
            print(f"evidence: {self.run_dir}", flush=True)
        return code


def shown(ended: dict[str, str]) -> str:
    """State, cause and reason in a line; an error that the workshop itself has just printed is not said again."""
    return ": ".join(text for text in ended.values() if text and not text.startswith("error"))


def main() -> None:
    wait_for_job_signals()
    sys.exit(Supervisor(sys.argv[1:]).run())


if __name__ == "__main__":
    main()
