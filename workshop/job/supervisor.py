"""`python -m workshop.job.supervisor COMMAND...`: run a job, from its run folder to its outcome; launch.sh becomes it.

A run is resumed in its folder from its newest whole checkpoint: with RESUME_RUN=FOLDER, in a job that SLURM queued
again, and when a training died after it had saved one (at most RESTARTS times in a job, default 3).
"""

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from workshop.job import processes
from workshop.job.ending import Ending
from workshop.job.node import one_per_node
from workshop.job.outcome import NOT_BEGUN, begin, record_end
from workshop.job.terminal import follow
from workshop.record import checkpoints
from workshop.record.control import Control
from workshop.record.errors import InputError, failed_file
from workshop.record.exercises import Start
from workshop.record.printable import show
from workshop.record.run_record import read_run_record
from workshop.record.slurm_job import job_line
from workshop.settings.env_file import exported
from workshop.settings.settings import defaults

TOLD_TO_END = 143


class Supervisor:
    """Runs the job. Args: environ: that launch.sh has made; the run's folder and its checkpoint are added to a copy."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.command, self.environ = list(command), dict(environ)
        self.start = Start.of(self.environ)
        self.restarts = int(self.environ.get("RESTARTS") or 3)
        self.received = ""  # the signal that told this job to end
        self.noticed = "NOTICED" in self.environ  # SLURM has sent its notice of the time limit
        self.ended = False  # this process ended the training or did not start it; else it died by itself
        self.again = False  # no time is left: the requeued job continues the training
        self.others = processes.descendants()  # started by the shell that became this process: a `tee` of its output
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run the job; return its exit code."""
        self.begin(self.make_run_folder())
        if self.noticed:
            self.handle(signal.SIGUSR1)
        check = shlex.split(self.environ.get("CHECK_FIRST", ""))
        return self.end((self.run_command(check) if check else 0) or self.train())

    def make_run_folder(self) -> Path | None:
        """Make or find the run folder; return the checkpoint that an earlier run resumes from."""
        hosts, nodes, job = self.environ.get("DEEPSPEED_HOSTS", "").split(), self.start.nodes, self.start.job
        if self.command[0] == "deepspeed" and len(hosts) < nodes:
            problem = f"EMULATED_NODES={nodes}: deepspeed gives each node of one host the same GPUs"
            raise InputError(f"{problem}; expected sbatch --nodes={nodes}, or more GPUS_PER_NODE")
        runs = Path(self.environ["LOG_DIR"], self.environ["EXPERIMENT_NAME"])
        earlier = None
        if named := self.environ.get("RESUME_RUN"):
            earlier = Path(named)
            if not (earlier / "run.json").is_file():
                raise InputError(f"RESUME_RUN='{named}': no run.json there; expected a run folder")
        elif self.start.requeues:
            earlier = next(runs.glob(f"*-j{job}"), None)
        if not earlier and (checkpoint := self.environ.get("RESUME_FROM")):
            checkpoints.check(Path(checkpoint), self.start.processes)
        try:
            name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{f'j{job}' if job else f'p{os.getpid()}'}"
            self.run_dir = (earlier or runs / name).absolute()
            self.run_dir.mkdir(parents=True, exist_ok=bool(earlier))
            (self.run_dir / "train.out").touch()
            self.lock = processes.own_folder(self.run_dir)
        except OSError:
            unwritable = f"LOG_DIR='{runs.parent}': cannot write there"
            raise InputError(f"{unwritable}; expected a folder you may write to") from None
        self.control = Control(self.run_dir)
        state = read_run_record(self.run_dir).get("state")
        if state == "running" and self.control.read().finished:  # the supervisor was killed after the training's end
            state = record_end(self.run_dir, self.environ, 0, "")["state"]
        if state == "completed":  # maybe by the job before this one in the queue
            show(f"{self.run_dir}: this run is completed, nothing is left to train")
            sys.exit(0)
        self.environ["RUN_DIR"] = str(self.run_dir)
        if not earlier:
            script = f"{self.environ['EXERCISE_DIR']}/{self.environ['LAUNCHER']}"
            words = [script, *shlex.split(self.environ["LAUNCHER_ARGUMENTS"])]
            memory_mib = self.environ.get("SLURM_MEM_PER_NODE")
            again = {"command": words, "settings": given_settings(self.environ), "memory_mib": memory_mib}
            (self.run_dir / ".resume.json").write_text(json.dumps(again, indent=1) + "\n")
        if self.command[0] == "deepspeed":
            slots = [f"{host} slots={self.start.gpus_per_node}\n" for host in hosts]
            (self.run_dir / "hostfile").write_text("".join(slots))
        show(f"run folder: {self.run_dir}")
        return self.newest_checkpoint() if earlier else None

    def say(self, text: str) -> None:
        """Print on the terminal and into train.out."""
        show(text)
        with (self.run_dir / "train.out").open("a") as file:
            file.write(f"{text}\n")

    def newest_checkpoint(self) -> Path | None:
        """Return this run's newest whole checkpoint; print why newer ones are skipped."""
        checkpoint = checkpoints.newest((self.run_dir / self.environ["OUTPUT_DIR"]).resolve(), self.say)
        if checkpoint:
            checkpoints.check_processes(checkpoint, self.start.processes)
        return checkpoint

    def begin(self, checkpoint: Path | None) -> None:
        """Begin the next attempt: from the checkpoint, else from RESUME_FROM, else from the first step."""
        again = (self.run_dir / "run.json").exists()
        begin(self.run_dir, self.environ, self.command, str(checkpoint or ""))
        if checkpoint:
            self.environ["RESUME_FROM"] = str(checkpoint)
        if again:
            self.say(f"the run goes on from {self.environ.get('RESUME_FROM') or 'the first step: no whole checkpoint'}")

    def train(self) -> int:
        """Train, again as long as the training dies by itself and each time comes further than before."""
        for left in range(self.restarts, -1, -1):
            code = self.run_command(self.on_nodes())
            said = self.control.read()
            if said.finished or self.received or self.again or said.saved or not left:
                return code
            # Said again by `end`, unless the training goes on.
            ended = record_end(self.run_dir, self.environ, code, "", by_itself=True)
            checkpoint = self.newest_checkpoint() if ended["state"] == "failed" else None
            self.look_for_signals()
            if not checkpoint or str(checkpoint) == self.environ.get("RESUME_FROM") or self.received:
                return code
            if self.noticed:
                self.ended, self.again = False, True
                return code
            show(shown(ended))
            self.begin(checkpoint)
        return code

    def on_nodes(self) -> list[str]:
        """Return the command with loggers for every node. A command that begins with srun defines its own tasks."""
        node = [sys.executable, "-m", "workshop.job.node"]
        if self.command[0] == "srun":
            options = list(itertools.takewhile(lambda word: word.startswith("-"), self.command[1:]))
            return ["srun", *options, *node, "--task-per-gpu", *self.command[1 + len(options) :]]
        return one_per_node(node, self.command, self.start)

    def run_command(self, command: Sequence[str]) -> int:
        """Run the command; return its exit code, or TOLD_TO_END if a signal prevented it or made it save and end."""
        if self.look_for_signals() or self.again:
            return TOLD_TO_END
        output = self.run_dir / "train.out"
        viewed = output.open(errors="replace")  # before the training, which may delete it
        with output.open("ab") as out:
            viewed.seek(out.tell())
            self.process = process = processes.started(
                command, signal.SIGTERM, env=self.environ, stdin=self.lock, stdout=out, stderr=subprocess.STDOUT
            )
        over = threading.Event()
        viewer = threading.Thread(target=follow, args=(viewed, over), daemon=True)
        viewer.start()
        ending = Ending(self.control, self.start, self.others, later_s=processes.KILL_AFTER_S)
        while processes.is_running(process) and not ending.due():
            if number := processes.received(processes.JOB_SIGNALS, processes.LOOK_EVERY_S):
                self.handle(number)
        self.process = None
        ending.end_all(self.look_for_signals, 0)
        process.wait()
        over.set()
        viewer.join()
        said = self.control.read()
        if said.refused:
            self.say(said.refused)
        return TOLD_TO_END if self.again or said.saved else processes.exit_code(process)

    def look_for_signals(self) -> str:
        """Handle the signals that came between two commands; return the one that told this job to end."""
        while number := processes.received(processes.JOB_SIGNALS):
            self.handle(number)
        return self.received

    def handle(self, number: int) -> None:
        """Handle one of processes.JOB_SIGNALS as the table in workshop/job/__init__.py says."""
        if number == signal.SIGCHLD:
            return
        name = signal.Signals(number).name
        if number == signal.SIGUSR1:
            self.noticed = True
        else:
            self.received = name.removeprefix("SIG")
        running = self.process is not None and self.process.poll() is None
        if running and self.control.tell():
            show(f"{name}: the training saves a checkpoint and ends; a second signal ends it at once")
        elif number != signal.SIGUSR1:
            self.ended |= running
        elif not self.control.read().lines:
            self.ended = self.again = True
            show(f"{name}, SLURM's notice of the time limit: the training has not begun; it is ended")
        if running and self.ended:
            os.killpg(self.process.pid, signal.SIGTERM)
        # SLURM kills everything a few seconds (KillWait) after its TERM: so the end is written down now, too.
        if self.process and self.received:
            record_end(self.run_dir, self.environ, TOLD_TO_END, self.received, over=False)

    def requeue(self) -> None:
        """Queue the job again after SLURM's notice; at most RESTARTS times if its training never begins."""
        never_begins = json.dumps(read_run_record(self.run_dir)).count(NOT_BEGUN) > self.restarts
        job = self.start.job
        if not job or not ((self.noticed and self.control.read().saved) or (self.again and not never_begins)):
            return
        if re.search(r"\bRequeue=1", job_line(job)):
            show(f"queued again: scontrol requeue {job}")
            subprocess.run(["scontrol", "requeue", job])

    def end(self, code: int) -> int:
        notice = "USR1" if self.noticed and (self.ended or self.control.read().saved) else ""
        ended = record_end(self.run_dir, self.environ, code, self.received or notice, by_itself=not self.ended)
        if ended["state"] != "completed":
            show(shown(ended))
        self.requeue()
        if subprocess.run([sys.executable, "-m", "tools", "runs", str(self.run_dir)]).returncode:
            show(f"evidence: {self.run_dir}")
        return read_run_record(self.run_dir)["exit_code"]


def given_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this run's settings as env_vars.sh and the shell give them: paths whole, without keys."""
    no_keys = {name for name in exported(Path("env_vars.sh")) if not re.search("KEY|_TOKEN|SECRET|PASSWORD", name)}
    names = {*defaults(), *no_keys} - {"RUN_DIR", "CONFIG", "RESUME_FROM"}
    return {name: environ[name] for name in sorted(names) if environ.get(name)}


def shown(ended: dict[str, str]) -> str:
    """Return state, cause and reason in a line, without an error that the workshop has just printed itself."""
    return ": ".join(text for text in ended.values() if text and not text.startswith("error"))


def main() -> None:
    processes.lead_job()
    try:
        sys.exit(Supervisor(sys.argv[1:], os.environ).run())
    except OSError as error:
        raise InputError(f"{failed_file(error)}; expected a run folder that can be written") from None


if __name__ == "__main__":
    main()
