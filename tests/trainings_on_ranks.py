"""Several trainings, one after the other in the same ranks: each is its exercise's train.py, and Python starts once.

Run under torchrun with the name of a file: a JSON list of {exercise, environ, arguments}. The launchers' own part is
tested elsewhere.
"""

import gc
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

REPO = Path(__file__).parents[1]


class Training(TypedDict):
    """exercise: its folder; environ: what its launcher would have set; arguments: of train.py."""

    exercise: str
    environ: dict[str, str]
    arguments: list[str]


def run(trainings: Sequence[Training], folder: Path, ranks: int = 2, timeout_s: float = 240) -> str:
    """Train on so many ranks; what they print. Fails with its end if one does not end well."""
    plan = folder / "trainings.json"
    plan.write_text(json.dumps(trainings))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    own = {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    job = subprocess.run(
        [*command, __file__, str(plan)],
        **{"cwd": REPO, "env": os.environ | own, "capture_output": True, "text": True, "timeout": timeout_s},
    )
    assert job.returncode == 0, job.stdout[-4000:] + job.stderr[-6000:]
    return job.stdout


def train(training: Training) -> None:
    """One training as its launcher would start it, but in this process."""
    exercise, before = REPO / training["exercise"], dict(os.environ)
    os.environ |= training["environ"]
    Path(training["environ"]["RUN_DIR"]).mkdir(parents=True, exist_ok=True)  # each rank does it
    os.chdir(exercise)
    sys.argv, sys.path[0] = ["train.py", *training["arguments"]], str(exercise)
    runpy.run_path("train.py", run_name="__main__")
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


def main(plan: Path) -> None:
    import torch

    from workshop import ending, recording

    end = torch.distributed.destroy_process_group
    torch.distributed.destroy_process_group = lambda *_: None  # the next training's ranks are the same
    recording.end_process = lambda: None
    for training in json.loads(plan.read_text()):
        gc.freeze()  # the libraries' half a million objects: a collection, of which a training has four, takes 0.4 s
        train(training)
    end()
    ending.end_process()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
