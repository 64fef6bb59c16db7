"""Table 17: ZeRO stages by precisions."""

import re

from tools.logs.run import Where
from tools.tables.table import Table, of_rows, runs
from workshop.record.printable import counted


def experiment_runs(experiment: str) -> Where:
    """An experiment is named as the published grid names it: zs0_bf16_gpus1_bs32_sl128."""
    stage, precision, *numbers = re.fullmatch(r"zs(\d)_(\w+)_gpus(\d+)_bs(\d+)_sl(\d+)", experiment).groups()
    world_size, batch_size, max_length = map(int, numbers)
    sizes = runs(world_size=world_size, batch_size=batch_size, max_length=max_length)
    return sizes | runs(config=f"zero{stage}", precision=precision)


def in_words(experiment: str) -> str:
    """As a plot names it, its group first: zs0_bf16_gpus2_bs32_sl128 is `bf16, 2 GPUs: stage 0`."""
    stage, precision, gpus = re.match(r"zs(\d)_(\w+?)_gpus(\d+)", experiment).groups()
    return f"{precision}, {counted(int(gpus), 'GPU')}: stage {stage}"


TABLES = {"17": Table(of_rows(experiment_runs), runs(nodes=1), compares=["precision"])}
PREDICTIONS = {
    "1": ["17 | zs0_fp32_gpus1_bs32_sl128; zs3_fp32_gpus1_bs32_sl128 | Tokens/s"],
    "2": [
        "17 | zs0_fp32_gpus1_bs32_sl128; zs0_bf16_gpus1_bs32_sl128 | Tokens/s",
        "17 | zs0_fp32_gpus1_bs32_sl128; zs0_bf16_gpus1_bs32_sl128 | Peak allocated (MiB)",
    ],
    "3": ["17 | zs0_fp32_gpus1_bs32_sl128; zs0_bf16_gpus1_bs32_sl128 | Tokens/s; Tokens/s, std"],
}
