"""Tables 9 to 9c: what each method can do, and offload near its floor."""

from tools.tables.table import Asked, Table, batch, figure, runs, zero

METHODS = {"DDP": "ddp", "FSDP1": "fsdp1", "FSDP2": "fsdp2", "DeepSpeed ZeRO-3": "zero3"}
ABILITIES = {
    "Parameter sharding": runs(),
    "Gradient sharding": runs(),
    "Optimizer sharding": runs(),
    "CPU offload": runs(**{"sharding.cpu_offload": True}),
    "No model-code change": runs(unchanged_model=True),
    "Works with HF Trainer": runs(hf_trainer=True),
}
CONFIG_AND_BATCH = "DeepSpeed config | Micro-batch x accumulation, precision"


def ability(label: str, method: str) -> Asked:
    return figure(label), ABILITIES[label] | runs(method=METHODS[method])


def config_and_batch(config: str, sizes: str, column: str) -> Asked:
    return figure(column), zero(config) | batch(sizes)


TABLES = [
    Table(
        "9",
        "What each method can do",
        " | DDP | FSDP1 | FSDP2 | DeepSpeed ZeRO-3",
        ABILITIES,
        ability,
        exercises=["deepspeed-zero3-offload", "deepspeed-multi-gpu", "fsdp"],
    ),
    Table(
        "9b",
        "Offload near its floor: BLOOM-3b on one GPU, 24 rows",
        f"{CONFIG_AND_BATCH} | Step time (ms) | Samples/s | Peak allocated (MiB)",
        [(config, "24 x 1, bf16") for config in ("Stage 3 + offload", "tuning/leaf", "Stage 2 + offload")],
        config_and_batch,
        runs(model="bloom-3b", batch_size=24),
        ["deepspeed-single-gpu"],
    ),
    Table(
        "9c",
        "One update for several micro-batches: BLOOM-1b7 on one GPU, micro-batches of 16 rows",
        f"{CONFIG_AND_BATCH} | Step time (ms) | Samples/s | MFU (%) | Peak allocated (MiB)",
        [
            *(("Stage 3 + offload", f"16 x {count}, bf16") for count in (1, 16, 64)),
            *(("Stage 2 + offload", f"16 x {count}, bf16") for count in (1, 16)),
        ],
        config_and_batch,
        runs(model="bloom-1b7", batch_size=16),
        ["deepspeed-single-gpu"],
    ),
]
