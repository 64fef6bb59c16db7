"""Tables 9 to 9c: what each method can do, what offload keeps where, and offload near its floor."""

from tools.tables.table import Asked, Table, config_and_batch, figure, of_row, of_rows, runs

METHODS = {"DDP": "ddp", "FSDP1": "fsdp1", "FSDP2": "fsdp2", "DeepSpeed ZeRO-3": "zero3"}
ABILITIES = {
    "CPU offload": runs(**{"sharding.cpu_offload": True}),
    "No model-code change": runs(unchanged_model=True),
    "Works with HF Trainer": runs(hf_trainer=True),
}


def ability(label: str, method: str) -> Asked:
    return figure(label), ABILITIES.get(label, {}) | runs(method=METHODS[method])


SINGLE = ["deepspeed-single-gpu"]
TABLES = {
    "9": Table(ability, exercises=["deepspeed-zero3-offload", "deepspeed-multi-gpu", "fsdp"]),
    "9a": Table(of_row, runs(model="bloom-7b1", config="zero3_offload", batch_size=4, grad_acc=4, world_size=2)),
    "9b": Table(of_rows(config_and_batch), runs(model="bloom-3b", batch_size=24), SINGLE, label_columns=2),
    "9c": Table(of_rows(config_and_batch), runs(model="bloom-1b7", batch_size=16), SINGLE, label_columns=2),
}
PREDICTIONS = {
    "1": ["9a | States (MiB); Peak CPU Memory, RSS (MiB) | Value"],
    "2": ["9a | Peak allocated (MiB) | Value"],
    "3": ["9a | Step time (ms) | Value"],
}
