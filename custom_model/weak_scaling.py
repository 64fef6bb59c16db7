"""The sizes of a weak-scaling run: `python -m custom_model.weak_scaling RULE.json GPUS` prints them for the launcher.

Weak scaling keeps the work of each GPU constant while GPUs are added, so that the time of a step should not change.
Here the model grows: the total batch stays 16 sequences, each GPU gets fewer of them and computes more layers. The
published rule doubles the layers when the batch per GPU halves; it forgets that the head does not double with them, so
the work falls (erratum K8).
"""

import os
import sys
from pathlib import Path

from custom_model.flops import Shapes
from workshop.record.errors import InputError
from workshop.record.printable import counted
from workshop.settings.configuration import read_rule


def main() -> None:
    path, gpus = Path(sys.argv[1]), int(sys.argv[2])
    rule, on = read_rule(path), counted(gpus, "GPU")
    if gpus not in rule:
        raise InputError(f"{path}: has no sizes for {on}, expected {', '.join(map(str, sorted(rule)))}")
    names = ("HIDDEN_SIZE", "FF_DIM", "VOCAB_SIZE", "MAX_LENGTH")
    shapes, sizes = Shapes(*(int(os.environ[name]) for name in names)), rule[gpus]
    print(f"NUM_LAYERS={sizes.num_layers} BATCH_SIZE={sizes.batch_size} GRAD_ACC=1")
    first, work = shapes.flops_per_step(*rule[min(rule)]), shapes.flops_per_step(*sizes)
    print(
        f"{path.stem} rule on {on}: {counted(sizes.num_layers, 'layer')}, batch {sizes.batch_size} per GPU, "
        f"{work / 1e12:.4g} TFLOP per GPU and step ({work / first - 1:+.1%} against {counted(min(rule), 'GPU')})",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
