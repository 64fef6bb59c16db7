"""Tables 3 to 4d: what DeepSpeed's stages and offload cost on one GPU."""

from tools.logs.run import NoneOf
from tools.tables.table import Asked, Table, batch, figure, runs, zero

PINNED = {"pin_memory true": "zero2_offload", "pin_memory false": "zero2_offload_unpinned"}
SMALL = runs(model="bloom-560m", train_examples=500)
FP16, BF16 = "4 x 4, fp16", "16 x 1, bf16"
STAGES = ("Stage 1", "Stage 1 + offload", "Stage 2", "Stage 2 + offload", "Stage 3", "Stage 3 + offload")
CONFIG_AND_BATCH = "DeepSpeed config | Micro-batch x accumulation, precision"


def pinned(setting: str, column: str) -> Asked:
    return figure(column), runs(config=PINNED[setting])


def model_and_stage(model_and_data: str, config: str, column: str) -> Asked:
    """Of `BLOOM-3b, 10,000`: the model, and on how many examples."""
    model, examples = model_and_data.split(", ")
    where = runs(model=model.lower(), train_examples=int(examples.replace(",", "")))
    return figure(column), where | zero(config)


def config_and_batch(config: str, sizes: str, column: str) -> Asked:
    return figure(column), zero(config) | batch(sizes)


TABLES = [
    # Tables 3 and 4 are not about the large micro-batches of Tables 4d and 9b; a smaller GPU may ask for another than
    # ours.
    Table(
        "3",
        "Pinned memory",
        "BLOOM-560m, 500 examples, stage 2 + offload | Peak GPU Memory (MiB) | Peak CPU Memory, RSS (MiB) | "
        "Total Runtime (s)",
        PINNED,
        pinned,
        SMALL | runs(batch_size=NoneOf([16])),
    ),
    Table(
        "4",
        "ZeRO stages",
        "Model and data | DeepSpeed config | Peak GPU Memory (MiB) | Peak CPU Memory, RSS (MiB) | Total Runtime (s)",
        [
            *(("BLOOM-560m, 500", stage) for stage in STAGES),
            *(("BLOOM-3b, 10,000", stage) for stage in ("Stage 2 + offload", "Stage 3 + offload")),
            *(("BLOOM-7b1, 10,000", stage) for stage in ("Stage 3 + offload", "Stage 2 + offload")),
        ],
        model_and_stage,
        runs(batch_size=NoneOf([16, 24])),
    ),
    Table(
        "4b",
        "What a step costs: 16 examples",
        f"{CONFIG_AND_BATCH} | Step time (ms) | Samples/s | Peak allocated (MiB) | States (MiB)",
        [(stage, FP16) for stage in ("Stage 0", *STAGES)],
        config_and_batch,
        SMALL,
    ),
    Table(
        "4c",
        "Where a step goes",
        f"{CONFIG_AND_BATCH} | Forward (ms) | Backward (ms) | Reduce gradients (ms) | Update (ms) | Optimizer (ms)",
        [
            ("Stage 3 + offload", FP16),
            *((f"tuning/{name}", FP16) for name in ("params_on_gpu", "leaf", "gpu_leaf", "gpu_leaf_small")),
            ("Stage 3 + offload, tuned", FP16),
            *((config, BF16) for config in ("Stage 3 + offload", "tuning/gpu_leaf", "Stage 3 + offload, tuned")),
        ],
        config_and_batch,
        SMALL | runs(timed=True),
    ),
    Table(
        "4d",
        "Tuned: stage 3 + offload",
        f"{CONFIG_AND_BATCH} | Step time (ms) | Samples/s | Peak allocated (MiB)",
        [
            *((config, FP16) for config in ("Stage 3 + offload", "tuning/leaf", "Stage 3 + offload, tuned")),
            ("Stage 3 + offload", "16 x 1, fp16"),
            *((config, BF16) for config in ("Stage 3 + offload", "tuning/leaf", "Stage 3 + offload, tuned", "Stage 0")),
        ],
        config_and_batch,
        SMALL,
    ),
]
PREDICTIONS = {
    "1": [f"4b | {'; '.join(f'Stage {stage} / {FP16}' for stage in range(4))} | Step time (ms)"],
    "2": [
        "4 | BLOOM-560m, 500 / Stage 2; BLOOM-560m, 500 / Stage 2 + offload | Peak GPU Memory (MiB)",
        "4 | BLOOM-560m, 500 / Stage 2; BLOOM-560m, 500 / Stage 2 + offload | Peak CPU Memory, RSS (MiB)",
    ],
}
