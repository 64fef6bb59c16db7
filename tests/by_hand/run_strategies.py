"""Run by torchrun: the by-hand scripts one after the other in one launch, because starting Python takes the most time.

run_strategies.py FOLDER NAME=SCRIPT:CONFIG:SETTINGS...     a run folder FOLDER/NAME for each

In it time_outs.json has the time-out of each group of ranks, seconds, as rank 0 left it.
"""

import gc
import importlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from workshop.ending import end_process

REPO = Path(__file__).parents[2]


def time_outs_s() -> list[float]:
    groups = dist.distributed_c10d._world.pg_map
    return [group._get_backend(torch.device("cpu")).options._timeout.total_seconds() for group in groups]


def main(folder: Path, runs: list[str]) -> None:
    dist.init_process_group()
    dist.init_process_group = lambda: None  # the scripts meet in this one; destroyed below, not after each
    sys.path.insert(0, str(REPO / "by-hand"))
    usual = dict(os.environ)
    for run in runs:
        name, _, rest = run.partition("=")
        script, config, settings = rest.split(":")
        os.environ.clear()
        os.environ |= usual | dict(item.split("=") for item in settings.split(",") if item)
        os.environ |= {"RUN_DIR": str(folder / name), "CONFIG": str(REPO / "by-hand" / config) if config else ""}
        (folder / name).mkdir(parents=True, exist_ok=True)
        dist.barrier()
        importlib.import_module(script).main()
        if dist.get_rank() == 0:
            (folder / name / "time_outs.json").write_text(json.dumps(time_outs_s()))
        gc.collect()
    dist.barrier()
    dist.destroy_process_group()
    end_process()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
