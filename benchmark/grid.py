"""The cells of a benchmark as lines for `python -m tools submit`: every combination of the axes, repeats outermost.

    python benchmark/grid.py > my_runs.txt                                       # Table 17 on one GPU
    python benchmark/grid.py --batch 8,16,32,64 --stages 0 --precisions bf16     # step time against the batch
    python -m tools submit --list my_runs.txt                                    # run what is not completed yet
    python -m tools submit --list my_runs.txt --only failed,oom                  # try again what went wrong

A machine that grows warm or busy in the meantime then changes all cells alike, not the last ones.
"""

import argparse
from collections.abc import Iterator
from itertools import product

PRECISIONS = {"fp32": "FP16=false BF16=false", "fp16": "FP16=true BF16=false", "bf16": "FP16=false BF16=true"}


def lines(axes: argparse.Namespace) -> Iterator[str]:
    """One line per run, as in a submit.txt."""
    repeats = range(1, axes.repeats + 1)
    cells = product(repeats, axes.model, axes.gpus, axes.length, axes.batch, axes.precisions, axes.stages)
    for repeat, model, gpus, length, batch, precision, stage in cells:
        shape = f"MODEL_NAME={model} MAX_LENGTH={length} BATCH_SIZE={batch}"
        run = f"benchmark/benchmark.slurm ds_configs/zero{stage}.json"
        yield f"{shape} {PRECISIONS[precision]} REPEAT={repeat} --gpus-per-node={gpus} {run}"


def chosen(*allowed: str):
    """Reads comma-separated values; of `allowed` ones, if there are any."""

    def parse(text: str) -> list[str]:
        values = text.split(",")
        if wrong := [value for value in values if value not in allowed and (allowed or not value.isdecimal())]:
            expected = ", ".join(allowed) or "whole numbers"
            raise argparse.ArgumentTypeError(f"{wrong[0]!r}: expected {expected}, separated by commas")
        return values

    return parse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=chosen("0", "1", "2", "3"), default=["0", "1", "2", "3"], metavar="0,1,2,3")
    parser.add_argument("--precisions", type=chosen(*PRECISIONS), default=[*PRECISIONS], metavar=",".join(PRECISIONS))
    parser.add_argument("--repeats", type=int, default=3, help="runs of each cell (default: 3)")
    parser.add_argument("--batch", type=chosen(), default=["32"], metavar="N,N", help="rows per GPU (default: 32)")
    parser.add_argument("--length", type=chosen(), default=["128"], metavar="N,N", help="tokens per row (default: 128)")
    parser.add_argument("--gpus", type=chosen(), default=["1"], metavar="N,N", help="GPUs of one node (default: 1)")
    parser.add_argument("--model", type=lambda text: text.split(","), default=["gpt2"], metavar="NAME,NAME")
    print("\n".join(lines(parser.parse_args())))


if __name__ == "__main__":
    main()
