"""Tables 9 to 9c: what each method can do, and offload near its floor."""

from tools.tables.table import Asked, Table, batch, figure, runs, zero

METHODS = {"DDP": "ddp", "FSDP1": "fsdp1", "FSDP2": "fsdp2", "DeepSpeed ZeRO-3": "zero3"}
ABILITIES = {
    "CPU offload": runs(**{"sharding.cpu_offload": True}),
    "No model-code change": runs(unchanged_model=True),
    "Works with HF Trainer": runs(hf_trainer=True),
}


def ability(label: str, method: str) -> Asked:
    return figure(label), ABILITIES.get(label, {}) | runs(method=METHODS[method])


def config_and_batch(config: str, sizes: str, column: str) -> Asked:
    return figure(column), zero(config) | batch(sizes)


TABLES = {
    "9": Table(ability, exercises=["deepspeed-zero3-offload", "deepspeed-multi-gpu", "fsdp"]),
    "9b": Table(config_and_batch, runs(model="bloom-3b", batch_size=24), ["deepspeed-single-gpu"]),
    "9c": Table(config_and_batch, runs(model="bloom-1b7", batch_size=16), ["deepspeed-single-gpu"]),
}
