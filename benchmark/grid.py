"""The cells of a benchmark as lines for `python -m tools submit`: every combination of the axes, repeats outermost.

    python benchmark/grid.py > my_runs.txt                                       # Table 17 on one GPU
    python benchmark/grid.py --batch 8 16 32 64 --stages 0 --precisions bf16     # step time against the batch
    python -m tools submit --list my_runs.txt                                    # run what is not completed yet
    python -m tools submit --list my_runs.txt --only failed,oom                  # try again what went wrong

A machine that grows warm or busy in the meantime then changes all cells alike, not the last ones.
"""

import argparse
from itertools import product

PRECISIONS = {"fp32": "FP16=false BF16=false", "fp16": "FP16=true BF16=false", "bf16": "FP16=false BF16=true"}
STAGES = range(4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each cell (default: 3)")
    parser.add_argument("--batch", type=int, nargs="+", default=[32], help="rows per GPU (default: 32)")
    parser.add_argument("--length", type=int, nargs="+", default=[128], help="tokens per row (default: 128)")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1], help="GPUs of one node (default: 1)")
    parser.add_argument("--model", nargs="+", default=["gpt2"], metavar="NAME")
    axes = parser.parse_args()
    repeats = range(1, axes.repeats + 1)
    cells = product(repeats, axes.model, axes.gpus, axes.length, axes.batch, axes.precisions, axes.stages)
    for repeat, model, gpus, length, batch, precision, stage in cells:
        shape = f"MODEL_NAME={model} MAX_LENGTH={length} BATCH_SIZE={batch}"
        run = f"benchmark/benchmark.slurm ds_configs/zero{stage}.json"
        print(f"{shape} {PRECISIONS[precision]} REPEAT={repeat} --gpus-per-node={gpus} {run}")


if __name__ == "__main__":
    main()
