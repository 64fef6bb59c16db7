"""Real trainings of resilience/train.py that are started and killed within a second: forks of one process that has
imported PyTorch and the Trainer already, each with its own environment and run folder.

Run as a script it reads a JSON line per training, {"environment": …, "ranks": …, "kill_after_s": …}, and answers each
with a line: the exit codes of the ranks, negative for a signal. The class starts that script and talks to it.
"""

import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

import psutil

from tests.leftovers import own_namespaces_allowed, take_own_shm

REPO = Path(__file__).parents[2]
TINY = {
    **{"MODEL_NAME": "tiny", "MODEL_INIT": "random", "TOKENIZER_NAME": "sample", "DATASET": "sample"},
    **{"TRAIN_SIZE": "48", "EVAL_SIZE": "4", "MAX_LENGTH": "64", "NUM_EPOCHS": "2", "BATCH_SIZE": "2", "GRAD_ACC": "1"},
    **{"LEARNING_RATE": "2e-3", "WEIGHT_DECAY": "0.01", "FP16": "false", "BF16": "false", "GENERATE_SIZE": "0"},
    **{"SAVE": "steps", "SAVE_STEPS": "5", "SAVE_LIMIT": "2", "FAULT": "none", "FAULT_STEP": "18"},
    **{"EXPERIMENT_NAME": "resilience", "OUTPUT_DIR": "bloom-qa-finetuned", "OMP_NUM_THREADS": "1"},
    **{"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"},
}
STEPS = 48  # on one rank
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h: this process becomes the parent of its children's orphans


class Trainings:
    """Starts trainings one after the other; `with` ends the process that they are forks of.

    Args: shm: the folder that they have as /dev/shm.
    """

    def __init__(self, shm: Path) -> None:
        self.shm = shm

    def __enter__(self) -> Self:
        environment = os.environ | TINY | {"PYTHONPATH": f"{REPO}:{REPO}/resilience"}
        self._parent = subprocess.Popen(
            [sys.executable, __file__, str(self.shm)],
            cwd=REPO / "resilience",
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._parent.stdin.close()
        self._parent.wait(timeout=10)

    def train(self, run: Path, ranks: int = 1, kill_after_s: float | None = None, **settings: str) -> list[int]:
        """One attempt in the folder `run`, as workshop/job/supervisor.py would make it; the exit code of each rank."""
        from workshop.checkpoints import newest
        from workshop.outcome import record_end
        from workshop.run_record import reopen

        output = run / settings.get("OUTPUT_DIR", TINY["OUTPUT_DIR"])
        checkpoint = newest(output)
        with patch.dict(os.environ, TINY | settings):  # for the record, and for no other test's launch
            if (run / "run.json").exists():
                reopen(run, str(checkpoint or ""), "failed")
            own = {"RUN_DIR": str(run), "RESUME_FROM": str(checkpoint or "")}
            codes = self.ask(environment=settings | own, ranks=ranks, kill_after_s=kill_after_s)
            record_end(run, 1 if any(codes) else 0, "")
        return codes

    def processes(self) -> list[str]:
        """What still runs of trainings that are over, also where the process that started it is dead."""
        return [" ".join(child.cmdline()) for child in psutil.Process(self._parent.pid).children(recursive=True)]

    def ask(self, **question: Any) -> list[int]:
        self._parent.stdin.write(json.dumps(question) + "\n")
        self._parent.stdin.flush()
        return json.loads(self._parent.stdout.readline())


def attempt(environment: dict[str, str], ranks: int, kill_after_s: float | None) -> list[int]:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(probe.getsockname()[1]), "WORLD_SIZE": str(ranks)}
    children = []
    for rank in range(ranks):
        child = os.fork()
        if not child:
            os.environ.update(environment | {"LAUNCHER_PID": str(os.getppid())})
            if ranks > 1:
                os.environ.update(meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            take_own_shm(Path(sys.argv[1]))
            train_in_this_process()
        children.append(child)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(random.choice(children), signal.SIGKILL)
    codes = {}
    while children:
        child, status = os.wait()
        children.remove(child)
        codes[child] = os.waitstatus_to_exitcode(status)
        if codes[child]:  # as torchrun does
            for other in children:
                os.kill(other, signal.SIGKILL)
    return [codes[child] for child in sorted(codes)]


def train_in_this_process() -> None:
    import train
    from workshop import recording, run_record

    recording.end_process = sys.exit  # what `atexit` has registered is the parent's
    run = Path(os.environ["RUN_DIR"])
    run.mkdir(parents=True, exist_ok=True)
    code = 1
    try:
        output = os.open(run / "train.out", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if os.environ.get("RANK", "0") == "0":
            run_record.begin(run, "resilience", "", ["train.py"])
        train.main()
        code = 0
    except SystemExit as told_to_end:
        code = told_to_end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the libraries print is no answer
    import train  # noqa: F401  (here, not in every fork)

    own_namespaces_allowed()  # likewise

    for line in sys.stdin:
        print(json.dumps(attempt(**json.loads(line))), file=answers, flush=True)
