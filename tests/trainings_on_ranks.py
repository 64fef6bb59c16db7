"""Trainings without launches: forks of one process that has imported PyTorch, the Trainer and DeepSpeed already.

Each training is its exercise's train.py with the environment that its launcher would have set; what it prints is in its
run folder's train.out. Those of a list run one after the other in the same ranks. What the launchers do is tested
elsewhere.

Run as a script it reads a JSON line per question, the arguments of `attempt`, and answers each with a line: the exit
codes of the ranks, negative for a signal. The class starts that script and talks to it.
"""

import ctypes
import gc
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self, TypedDict

import psutil

from tests.leftovers import own_namespaces_allowed, take_own_shm
from tools.logs.run import Run
from tools.logs.runs import read_run
from workshop.record.exercises import find_exercise
from workshop.settings.env_file import sourced

REPO = Path(__file__).parents[1]
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h: this process becomes the parent of its children's orphans

# Of every training, unless it says otherwise: a tiny model, without weight decay.
SETTINGS = {
    **{"MODEL_NAME": "tiny", "MODEL_INIT": "random", "TOKENIZER_NAME": "sample", "DATASET": "sample"},
    **{"TRAIN_SIZE": "48", "EVAL_SIZE": "4", "MAX_LENGTH": "64", "NUM_EPOCHS": "1", "BATCH_SIZE": "4"},
    **{"GRAD_ACC": "2", "LEARNING_RATE": "2e-3", "WEIGHT_DECAY": "0", "FP16": "false", "BF16": "false"},
    **{"REPORT_TO": "none", "SAVE": "no", "GENERATE_SIZE": "0", "OUTPUT_DIR": "bloom-qa-finetuned"},
    "MAX_STEPS": "0",  # all of them
}


class Training(TypedDict):
    """exercise: its folder; environ: what its launcher would have set; command: the script and its arguments."""

    exercise: str
    environ: dict[str, str]
    command: list[str]


def training(
    run: Path, exercise: str, config: str | Path = "", command: Sequence[str | Path] = ("train.py",), **settings: str
) -> Training:
    """In the run folder `run`, with the exercise's env_vars.sh; `config`: a configuration, from its folder on."""
    folder = find_exercise(exercise, "*", REPO)
    path = str(folder / config) if config else ""
    given = SETTINGS | {"RUN_DIR": str(run), "EXPERIMENT_NAME": exercise, "CONFIG": path, "REPO": str(REPO)} | settings
    environ = sourced(folder / "env_vars.sh", given)
    return Training(exercise=exercise, environ=environ, command=list(map(str, command)))


def counted(run: Path, exercise: str) -> Run:
    """A training's run, with the facts that its launcher would have written."""
    facts = {"exercise": exercise, "state": "completed", "start_time": "2026-11-24T10:00:00+00:00", "nodes": 1}
    (run / "run.json").write_text(json.dumps(facts | json.loads((run / "run.json").read_text())))
    return read_run(run)


class Ranks:
    """Processes that train; `with` ends the process that they are forks of.

    Args: environ: of all trainings, from the libraries' import on.
    """

    def __init__(self, **environ: str) -> None:
        folders = [REPO, REPO / "further/speed-ladder", REPO / "further/by-hand"]  # some launchers add one of these
        path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
        own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        own["TORCH_COMPILE_DISABLE"] = "1"  # read at PyTorch's import; DeepSpeed's Muon would compile for a minute
        self.environ = own | environ | {"PYTHONPATH": path}

    def __enter__(self) -> Self:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command, environ = [sys.executable, __file__], os.environ | self.environ
        self._parent = subprocess.Popen(command, cwd=REPO, env=environ, start_new_session=True, **pipes)
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._parent.pid, signal.SIGKILL)
        self._parent.communicate()

    def train(self, trainings: Sequence[Training], ranks: int = 2) -> None:
        """All of them on so many ranks; fails with what the last one printed where one does not end well."""
        codes = self.ask(trainings=trainings, ranks=ranks)
        if codes != [0] * ranks:
            printed = [Path(training["environ"]["RUN_DIR"]) / "train.out" for training in trainings]
            last = max((path for path in printed if path.exists()), key=lambda path: path.stat().st_mtime)
            raise AssertionError(f"{codes} {last}: {last.read_text()[-6000:]}")

    def processes(self) -> list[str]:
        """What still runs of trainings that are over, also where the process that started it is dead."""
        return [" ".join(child.cmdline()) for child in psutil.Process(self._parent.pid).children(recursive=True)]

    def ask(self, **question: Any) -> list[int]:
        self._parent.stdin.write(json.dumps(question) + "\n")
        self._parent.stdin.flush()
        answer = self._parent.stdout.readline()
        assert answer, "the process that the ranks are forks of has ended"
        return json.loads(answer)


def attempt(
    trainings: list[Training], ranks: int, kill_after_s: float | None = None, shm: str | None = None
) -> list[int]:
    """The exit codes of ranks that train; one of them is killed after `kill_after_s`, `shm` is their /dev/shm."""
    meeting = socket.create_server(("localhost", 0))
    environ = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(meeting.getsockname()[1]), "WORLD_SIZE": str(ranks)}
    environ |= {"LOCAL_WORLD_SIZE": str(ranks), "NPROC_PER_NODE": str(ranks), "NNODES": "1"}
    children = []
    for rank in range(ranks):
        child = os.fork()
        if not child:
            os.environ["LAUNCHER_PID"] = str(os.getppid())
            os.environ.update(environ | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            if shm:
                take_own_shm(Path(shm))
            run_rank(trainings, meeting, rank, ranks)
        children.append(child)
    meeting.close()
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(random.choice(children), signal.SIGKILL)
    codes = {}
    while children:
        child, status = os.wait()
        if child not in children:
            continue  # an orphan
        children.remove(child)
        codes[child] = os.waitstatus_to_exitcode(status)
        if codes[child]:  # as torchrun does
            for other in children:
                os.kill(other, signal.SIGKILL)
    return [codes[child] for child in sorted(codes)]


def run_rank(trainings: list[Training], meeting: socket.socket, rank: int, ranks: int) -> None:
    """All trainings in this process, whose end it is.

    Args: meeting: where rank 0 listens; a port that is free until it does might be taken meanwhile.
    """
    import torch.distributed as dist

    begin, port = dist.init_process_group, meeting.getsockname()[1]
    own = {"master_listen_fd": meeting.detach()} if rank == 0 else {}
    meeting.close()

    def begin_once(*given: Any, init_method: str | None = None, **named: Any) -> None:
        if not dist.is_initialized():
            store = dist.TCPStore("localhost", port, ranks, rank == 0, wait_for_workers=False, **own)
            begin(*given, **named | {"store": store, "rank": rank, "world_size": ranks})

    dist.init_process_group = begin_once
    dist.destroy_process_group = lambda *_: None  # the next training's ranks are the same
    code = 1
    try:
        for training in trainings:
            train(training)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def train(training: Training) -> None:
    """One training as its launcher would start it, but in this process."""
    exercise, before = find_exercise(training["exercise"], "*", REPO), dict(os.environ)
    os.environ |= training["environ"]
    run = Path(training["environ"]["RUN_DIR"])
    run.mkdir(parents=True, exist_ok=True)  # each rank does it
    output = os.open(run / "train.out", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(exercise)
    sys.argv, sys.path[0] = training["command"], str(exercise)
    try:
        runpy.run_path(training["command"][0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    sys.stdout.flush()
    os.environ.clear()  # the Trainer writes FSDP's configuration there, for accelerate
    os.environ |= before
    forget()


def forget() -> None:
    """What accelerate and transformers keep in the process: which method it uses, and DeepSpeed's configuration."""
    from accelerate.state import AcceleratorState, GradientState
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    gc.collect()
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    unset_hf_deepspeed_config()
    gc.freeze()  # a collection of the libraries' half a million objects, of which a training has four, takes 0.4 s


def main() -> None:
    sys.path[0] = str(REPO)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the libraries print is no answer

    from workshop import private_names

    private_names.end_process = sys.exit  # what `atexit` registered is the parent's; before others import it from there
    import cpuinfo
    import deepspeed.runtime.zero.muon.original_muon  # noqa: F401  (all of these: here, not in every fork)
    from transformers import Trainer  # noqa: F401

    cpuinfo.get_cpu_info = cache(cpuinfo.get_cpu_info)  # DeepSpeed's cpu_adam asks; it starts a process, for a second
    cpuinfo.get_cpu_info()
    own_namespaces_allowed()  # likewise
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(attempt(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
