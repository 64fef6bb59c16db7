"""What the labels of the READMEs' tables mean. The blank tables are the table definitions; this is their dictionary.

A row's or column's label names a metric, or selects runs, or both ("GPU Mem (Offload)"). A cell is its table's defaults
merged with its row's and its column's meaning, and must end with exactly one metric. A new table is more entries here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tools.logs.run import Not
from tools.tables.comparisons import Where
from tools.tables.ladder import LADDER, PEERS, TOP, VARIANTS, label


@dataclass(frozen=True)
class Meaning:
    """Attributes: metric: a key of METRICS or None; where: conditions on the run (see Run.facts; stage, offload).

    std: the figure's standard deviation over the repeats, in place of its median.
    """

    metric: str | None = None
    where: Where = field(default_factory=dict)
    std: bool = False


@dataclass(frozen=True)
class TableDefaults:
    """Attributes: exercise: the folder(s) whose runs fill the table; where: conditions on all of the table's runs."""

    exercise: str | tuple[str, ...]
    where: Where = field(default_factory=dict)

    @property
    def exercises(self) -> tuple[str, ...]:
        return (self.exercise,) if isinstance(self.exercise, str) else self.exercise


_560M = {"model": "bloom-560m", "train_examples": 500}
_1B7 = {"model": "bloom-1b7"}
_LADDER = {"model": "bloom-560m", "world_size": 1}
_METHODS = ("fsdp", "deepspeed-multi-gpu", "speed-ladder")
TABLES: dict[str, TableDefaults] = {
    "1": TableDefaults("baseline"),
    "2": TableDefaults("baseline"),
    "2b": TableDefaults("baseline"),
    # Not of the large micro-batch that Table 4d is about; a smaller GPU may ask for another than the exercise's.
    "3": TableDefaults("deepspeed-single-gpu", _560M | {"batch_size": Not(16)}),
    "4": TableDefaults("deepspeed-single-gpu", {"batch_size": Not(16)}),
    "4b": TableDefaults("deepspeed-single-gpu", _560M),
    "4c": TableDefaults("deepspeed-single-gpu", _560M | {"timed": True}),
    "4d": TableDefaults("deepspeed-single-gpu", _560M),
    "5": TableDefaults("deepspeed-multi-gpu", _1B7 | {"config": "zero0", "nodes": 1, "examples_per_gpu": 10_000}),
    "6": TableDefaults("deepspeed-multi-gpu", _1B7 | {"nodes": 1, "world_size": 2}),
    "7": TableDefaults("deepspeed-multi-gpu", _1B7 | {"nodes": 1, "world_size": 2}),
    "8": TableDefaults("deepspeed-multi-gpu", _1B7 | {"config": "zero0"}),
    "9": TableDefaults(("deepspeed-zero3-offload", "deepspeed-multi-gpu", "fsdp")),
    # Table 10b's labels ask for batches of 16 examples per GPU and step; these runs are no other table's.
    "10": TableDefaults("fsdp", {"nodes": 1, "world_size": 4, "examples_per_gpu_step": Not(16)}),
    "10b": TableDefaults("fsdp", {"nodes": 1, "world_size": 4, "precision": "fp16"}),
    "11": TableDefaults("fsdp", {"config": "full_shard", "nodes": 1, "examples_per_gpu_step": Not(16)}),
    "12": TableDefaults("fsdp", {"config": "full_shard", "gpus_per_node": 1, "examples_per_gpu_step": Not(16)}),
    "13": TableDefaults("custom_model", {"config": None, "world_size": 1, "use_fsdp": False}),
    "14": TableDefaults("custom_model", {"config": None, "nodes": 1, "use_fsdp": True}),
    "15": TableDefaults("custom_model", {"config": None, "gpus_per_node": 1, "use_fsdp": True}),
    "16": TableDefaults("custom_model"),
    "17": TableDefaults("benchmark", {"nodes": 1}),
    "18": TableDefaults("speed-ladder", _LADDER | {"learning": False}),
    "18b": TableDefaults("speed-ladder", _LADDER | {"learning": False}),
    "18c": TableDefaults("speed-ladder", _LADDER | {"learning": False}),
    "18d": TableDefaults("speed-ladder", _LADDER | {"learning": True}),
    "19": TableDefaults(_METHODS, {"model": "bloom-1b7", "rung": TOP, "nodes": 1, "world_size": 4}),
    "19b": TableDefaults(_METHODS, {"model": "bloom-1b7", "rung": TOP, "nodes": 1, "world_size": 2}),
    "20": TableDefaults(_METHODS, {"model": "bloom-7b1", "rung": TOP, "nodes": 1, "world_size": 4}),
    "21": TableDefaults("by-hand", {"world_size": 4, "grad_acc": 1}),
    "21b": TableDefaults("by-hand", {"world_size": 2, "grad_acc": 1}),
    "21c": TableDefaults("by-hand", {"world_size": 4, "grad_acc": 4}),
}

_SAMPLES = Meaning("samples_per_second")
_PEAK_GPU = Meaning("peak_gpu")
_PEAK_CPU = Meaning("peak_cpu")

# Labels as `normalised` gives them: lower case, without markup, single spaces.
_LABELS: dict[str, Meaning] = {
    "value": Meaning(),
    "train loss (final)": Meaning("train_loss"),
    "train loss": Meaning("train_loss"),
    "eval loss (epoch 1)": Meaning("eval_loss_1"),
    "eval loss (epoch 2)": Meaning("eval_loss_2"),
    "eval loss (epoch 3)": Meaning("eval_loss_3"),
    "eval loss (final)": Meaning("eval_loss_final"),
    "training speed (samples/sec)": _SAMPLES,
    "samples/sec": _SAMPLES,
    "train samples/sec": _SAMPLES,
    "steps/sec": Meaning("steps_per_second"),
    "evaluation speed (samples/sec)": Meaning("eval_samples_per_second"),
    "eval speed (samples/sec)": Meaning("eval_samples_per_second"),
    "steps per epoch": Meaning("steps_per_epoch"),
    "memory allocated (mib)": Meaning("memory_allocated"),
    "gpu utilization (%)": Meaning("gpu_utilization"),
    "exact match (%)": Meaning("exact_match"),
    "f1 (%)": Meaning("f1"),
    "peak gpu memory usage (mib)": _PEAK_GPU,
    "peak gpu memory used (mib)": _PEAK_GPU,
    "peak gpu memory (mib)": _PEAK_GPU,
    "mean gpu memory usage (mib)": Meaning("mean_gpu"),
    "average gpu memory (mib)": Meaning("mean_gpu"),
    "minimum gpu memory usage (mib)": Meaning("min_gpu"),
    "peak cpu memory used (mib)": _PEAK_CPU,
    "peak cpu memory (mib)": _PEAK_CPU,
    "peak cpu memory, rss (mib)": _PEAK_CPU,
    "peak cpu memory, pss (mib)": Meaning("peak_cpu_pss"),
    "average cpu memory (mib)": Meaning("mean_cpu"),
    "total runtime": Meaning("total_runtime"),
    "train runtime (sec)": Meaning("train_runtime"),
    "gpu mem (no offload)": Meaning("peak_gpu", {"offload": False}),
    "gpu mem (offload)": Meaning("peak_gpu", {"offload": True}),
    "mem savings (%)": Meaning("memory_savings"),
    "train runtime (no offload)": Meaning("train_runtime", {"offload": False}),
    "train runtime (offload)": Meaning("train_runtime", {"offload": True}),
    "runtime change (%)": Meaning("runtime_change"),
    "pin_memory true": Meaning(where={"config": "zero2_offload"}),
    "pin_memory false": Meaning(where={"config": "zero2_offload_unpinned"}),
    "ddp": Meaning(where={"method": "ddp"}),
    "fsdp1": Meaning(where={"method": "fsdp1"}),
    "fsdp2": Meaning(where={"method": "fsdp2"}),
    "deepspeed zero-3": Meaning(where={"method": "zero3"}),
    "parameter sharding": Meaning("shards_parameters"),
    "gradient sharding": Meaning("shards_gradients"),
    "optimizer sharding": Meaning("shards_optimizer"),
    "cpu offload": Meaning("cpu_offload", {"cpu_offload": True}),
    "no model-code change": Meaning("unchanged_model", {"unchanged_model": True}),
    "works with hf trainer": Meaning("hf_trainer", {"hf_trainer": True}),
    "total gpus": Meaning("world_size"),
    "samples/s (default)": Meaning("samples_per_second_trainer"),
    "samples/s (callback)": _SAMPLES,
    "gpu memory (gb, default)": Meaning("gpu_memory_smi_gb"),
    "gpu memory (gb, callback)": Meaning("gpu_memory_callback_gb"),
    "loss": Meaning("train_loss"),
    "runtime (s)": Meaning("train_runtime"),
    "allreduce bw (gb/s)": Meaning("allreduce_bandwidth"),
    "published rule": Meaning(where={"config": "published"}),
    "constant work": Meaning(where={"config": "constant"}),
    "num layers": Meaning("num_layers"),
    "per-gpu batch": Meaning("batch_size"),
    "total params (m)": Meaning("parameters"),
    "flops per gpu per step (tflop)": Meaning("flops_per_step"),
    "efficiency (%)": Meaning("efficiency"),
    "samples/s": _SAMPLES,
    "samples/s scale factor": Meaning("samples_scale_factor"),
    "runtime scale factor": Meaning("runtime_scale_factor"),
    "gpu memory allocated (gb)": Meaning("memory_allocated_gb"),
    "step time (ms)": Meaning("step_time"),
    "step time, std (ms)": Meaning("step_time", std=True),
    "tokens/s": Meaning("median_tokens_per_second"),
    "tokens/s, std": Meaning("median_tokens_per_second", std=True),
    "peak allocated (mib)": Meaning("peak_allocated"),
    "peak reserved (mib)": Meaning("peak_reserved"),
    "forward (ms)": Meaning("forward_part"),
    "backward (ms)": Meaning("backward_part"),
    "reduce gradients (ms)": Meaning("reduce_part"),
    "update (ms)": Meaning("update_part"),
    "optimizer (ms)": Meaning("optimizer_part"),
    "mfu (%)": Meaning("mfu"),
    "mean gpu memory (mib)": Meaning("mean_gpu"),
    "stage 3 + offload, tuned": Meaning(where={"config": "zero3_offload_tuned"}),
    **{
        f"tuning/{name}": Meaning(where={"config": name})
        for name in ("params_on_gpu", "leaf", "gpu_leaf", "gpu_leaf_small")
    },
    "full_shard": Meaning(where={"config": "full_shard"}),
    "full_shard + offload": Meaning(where={"config": "full_shard_offload"}),
    "full_shard + checkpointing": Meaning(where={"config": "full_shard_checkpointing"}),
    "shard_grad_op": Meaning(where={"config": "shard_grad_op"}),
    "shard_grad_op + offload": Meaning(where={"config": "shard_grad_op_offload"}),
    "hybrid_shard": Meaning(where={"config": "hybrid_shard"}),
    "hybrid_shard + offload": Meaning(where={"config": "hybrid_shard_offload"}),
    **{label(rung): Meaning(where={"rung": rung}) for rung in (*LADDER, *VARIANTS)},
    "padded tokens/s": Meaning("tokens_per_second"),
    "real tokens/s": Meaning("real_tokens_per_second"),
    "mfu by the convention (%)": Meaning("mfu_by_convention"),
    "examples": Meaning("examples_trained"),
    "optimizer steps": Meaning("optimizer_steps"),
    "time in steps (s)": Meaning("time_in_steps"),
    "train loss (last tenth)": Meaning("last_loss"),
    "held-out loss": Meaning("eval_loss_final"),
    "training questions, exact match (%)": Meaning("train_exact_match"),
    "training questions, f1 (%)": Meaning("train_f1"),
    "held-out, exact match (%)": Meaning("exact_match"),
    "held-out, f1 (%)": Meaning("f1"),
    "examples per step": Meaning("examples_per_step"),
    "gain over the rung below": Meaning("gain_over_rung_below"),
    "gain over the textbook": Meaning("gain_over_textbook"),
    "of rung 10 (%)": Meaning("share_of_stream"),
    "of the top (%)": Meaning("share_of_top"),
    "one gpu": Meaning(where={"exercise": "speed-ladder", "world_size": 1}),
    "of n times one gpu (%)": Meaning("share_of_one_gpu"),
    "zero-2, textbook": Meaning(where={"config": "zero2_textbook"}),
    "zero-3, textbook": Meaning(where={"config": "zero3_textbook"}),
    "all-reduce": Meaning("all_reduces"),
    "all-gather": Meaning("all_gathers"),
    "reduce-scatter": Meaning("reduce_scatters"),
    "other collectives": Meaning("other_collectives"),
    "sent per rank (mib)": Meaning("sent_bytes"),
    "predicted (mib)": Meaning("predicted_bytes"),
    "between two nodes (mib)": Meaning("sent_between_nodes"),
}


def _grid_cell(match: re.Match) -> Meaning:
    """A name of the benchmark's, zs2_bf16_gpus1_bs32_sl128: ZeRO stage, precision, GPUs, batch, sequence length."""
    stage, precision, gpus, batch, length = match.groups()
    sizes = {"world_size": int(gpus), "batch_size": int(batch), "max_length": int(length)}
    return Meaning(where={"config": f"zero{stage}", "precision": precision} | sizes)


def _stage(match: re.Match) -> Meaning:
    return Meaning(where={"stage": int(match[1])} | ({"offload": True} if match[2] else {}))


def _batch(match: re.Match) -> Where:
    """Micro-batch x accumulation: "4 x 4"."""
    return {"batch_size": int(match[1]), "grad_acc": int(match[2])}


def _of_batch(metric: str) -> Callable[[re.Match], Meaning]:
    """A figure of one micro-batch and accumulation: "Samples/s, 4 x 4"."""
    return lambda match: Meaning(metric, _batch(match))


def _rung(match: re.Match) -> Meaning:
    """A rung and how long it trained: "11 labelled, 40 epochs"."""
    rung = next(rung for rung in LADDER if label(rung) == match[1])
    return Meaning(where={"rung": rung, "epochs": int(match[2])})


def _rows(match: re.Match) -> Meaning:
    """A rung or a peer and its micro-batch: "peer: trl padded, 64 rows"."""
    rung = next(rung for rung in (*LADDER, *PEERS) if label(rung) == match[1])
    return Meaning(where={"rung": rung, "batch_size": int(match[2])})


def _model(match: re.Match) -> Meaning:
    data = {"train_examples": int(match[2].replace(",", ""))} if match[2] else {}
    return Meaning(where={"model": f"bloom-{match[1]}"} | data)


_PATTERNS: list[tuple[re.Pattern[str], Callable[[re.Match], Meaning]]] = [
    (re.compile(r"zs([0-3])_(fp32|fp16|bf16)_gpus(\d+)_bs(\d+)_sl(\d+)"), _grid_cell),
    (re.compile(r"(?:stage |zero-)([0-3])( \+ offload)?"), _stage),
    (
        re.compile(r"(\d+) x (\d+), (fp32|fp16|bf16)"),
        lambda match: Meaning(where=_batch(match) | {"precision": match[3]}),
    ),
    (re.compile(r"bloom-(560m|1b1|1b7|3b|7b1)(?:, ([\d,]+)(?: examples)?)?"), _model),
    (re.compile(rf"({'|'.join(map(label, LADDER))}), (\d+) epochs?"), _rung),
    (re.compile(rf"({'|'.join(map(label, (*LADDER, *PEERS)))}), (\d+) rows"), _rows),
    (re.compile(r"samples/s, (\d+) x (\d+)"), _of_batch("samples_per_second")),
    (re.compile(r"of ddp, (\d+) x (\d+) \(%\)"), _of_batch("share_of_ddp")),
    (re.compile(r"peak allocated, (\d+) x (\d+) \(mib\)"), _of_batch("peak_allocated")),
    (
        re.compile(r"single node, (\d+) gpus?"),
        lambda match: Meaning(where={"nodes": 1, "world_size": int(match[1])}),
    ),
    (re.compile(r"(\d+) gpus?"), lambda match: Meaning(where={"world_size": int(match[1])})),
    (re.compile(r"(\d+) nodes?"), lambda match: Meaning(where={"nodes": int(match[1])})),
]


def normalised(label: str) -> str:
    """A label as it is looked up: markup, case and spacing do not change its meaning."""
    return " ".join(re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", label).split()).casefold()


def meaning(label: str) -> Meaning | None:
    """What a label stands for, or None if it stands for nothing."""
    name = normalised(label)
    if name in _LABELS:
        return _LABELS[name]
    for pattern, build in _PATTERNS:
        if match := pattern.fullmatch(name):
            return build(match)
    return None


def run_conditions(where: Where) -> Where:
    """Conditions on a run's facts: a stage and whether there is offload are together the name of a configuration."""
    where = dict(where)
    stage, offload = where.pop("stage", None), where.pop("offload", False)
    return where if stage is None else where | {"config": f"zero{stage}{'_offload' if offload else ''}"}
