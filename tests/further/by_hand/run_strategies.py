"""Run on ranks by test_by_hand.py: a script of the exercise, then time_outs.json in its run folder.

It has the time-out of each group of ranks, seconds, as rank 0 left it.
"""

import importlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def time_outs_s() -> list[float]:
    groups = dist.distributed_c10d._world.pg_map
    return [group._get_backend(torch.device("cpu")).options._timeout.total_seconds() for group in groups]


if __name__ == "__main__":
    try:
        importlib.import_module(sys.argv[1]).main()
    finally:  # its end is the process's
        if dist.get_rank() == 0:
            Path(os.environ["RUN_DIR"], "time_outs.json").write_text(json.dumps(time_outs_s()))
