"""What one run measured: a flat, typed record. Each field says where its figure is from, and how tables show it.

A new figure of one run is one more field here, if one of the sources (tools/logs/sources.py) has it. Figures that
compare runs are in tools/tables/comparisons.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Definition:
    """How a figure is named, found and shown.

    Attributes:
        metric: its name for labels and for `runs --figures`.
        sources: source and key, as "summary.json:train_loss"; the first that has it counts.
        unit, decimals: printed after the figure where no label names it; digits after the point.
        text: one line: what it is and which file it is from.
        missing: what a cell shows where no source has it.
    """

    metric: str
    sources: tuple[tuple[str, str], ...]
    unit: str
    decimals: int
    text: str
    missing: str


def _figure(metric: str, sources: str, unit: str, decimals: int, text: str, missing: str) -> Any:
    found = tuple(tuple(source.split(":", 1)) for source in sources.split())
    return field(default=None, metadata={"definition": Definition(metric, found, unit, decimals, text, missing)})


def _speed(metric: str, key: str, unit: str, decimals: int, text: str) -> Any:
    return _figure(metric, f"summary.json:train/{key}", unit, decimals, text, "no step times")


def _step_part(metric: str, timer: str, what: str) -> Any:
    text = f"{what}: median of DeepSpeed's timer {timer} after the warm-up, on rank 0 (train.out, TIMERS=true)"
    return _figure(metric, f"timers:{timer}", "ms", 1, text, "no timers")


def _eval_loss(metric: str, when: str) -> Any:
    text = f"eval_loss of the evaluation after {when} (summary.json or train.out)"
    return _figure(metric, f"evaluations:{metric}", "", 4, text, "no eval")


def _observed(metric: str, key: str, meaning: str) -> Any:
    text = f"{meaning} (run.json, sharding.{key}, observed in the run)"
    return _figure(metric, f"run.json:sharding.{key}", "", 0, text, "no sharding record")


def _calls(metric: str, name: str) -> Any:
    text = f"{name} calls of a rank in one optimizer step, small ones too (collectives.csv)"
    return _figure(metric, f"collectives:{name}", "", 0, text, "not counted")


def _part_only(key: str) -> str:
    return f"each rank holds only a part of the {key} in a run of the method on several GPUs"


@dataclass(frozen=True)
class RunFigures:
    """One run's figures; None where there is none.

    Attributes:
        missing: why, as a cell shows it, where that is not the definition's own `missing`.
        damaged: for those that a damaged file costs, what is wrong in which line of it.
        cause: what ended a run that did not complete, where run.json gives no reason.
    """

    missing: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    cause: str = ""

    train_loss: float | None = _figure(
        *("train_loss", "summary.json:train_loss train.out:train_loss", "", 4),
        *("the Trainer's train_loss: mean over all steps (summary.json or train.out)", "no train_loss"),
    )
    eval_loss_1: float | None = _eval_loss("eval_loss_1", "epoch 1")
    eval_loss_2: float | None = _eval_loss("eval_loss_2", "epoch 2")
    eval_loss_3: float | None = _eval_loss("eval_loss_3", "epoch 3")
    eval_loss_final: float | None = _eval_loss("eval_loss_final", "the last epoch")
    samples_per_second: float | None = _speed(
        *("samples_per_second", "samples_per_second", "samples/s", 2),
        "training examples per second over all GPUs, from synchronised step times; warm-up, evaluation and saving are "
        "not in it (summary.json, train/samples_per_second)",
    )
    forward_ms: float | None = _step_part("forward_part", "fwd", "forward passes of a step's micro-batches")
    backward_ms: float | None = _step_part("backward_part", "bwd", "their backward passes")
    reduce_ms: float | None = _step_part(
        "reduce_part", "bwd_allreduce", "of the backward passes, the gradients reduced and offloaded last"
    )
    update_ms: float | None = _step_part(
        "update_part", "step", "everything after them: search for overflow, norm, optimizer, new weights"
    )
    optimizer_ms: float | None = _step_part(
        "optimizer_part", "optimizer_step", "of the update, the optimizer and its copies"
    )
    steps_per_second: float | None = _speed(
        *("steps_per_second", "steps_per_second", "steps/s", 3),
        "optimizer steps per second, from the same step times (summary.json, train/steps_per_second)",
    )
    eval_samples_per_second: float | None = _figure(
        *("eval_samples_per_second", "summary.json:eval_samples_per_second train.out:eval_samples_per_second"),
        *("samples/s", 2, "the Trainer's, mean over the evaluations (summary.json or train.out)", "no eval"),
    )
    steps_per_epoch: float | None = _figure(
        *("steps_per_epoch", "run.json:steps_per_epoch", "", 0),
        *("ceil(examples / (micro-batch x GPUs x accumulation)) (run.json)", "no steps_per_epoch"),
    )
    gpu_utilization_percent: float | None = _figure(
        *("gpu_utilization", "summary.json/gpu:avg_gpu_util_%", "%", 1),
        "mean over all samples of all ranks during training, zeros included (summary.json, avg_gpu_util_%)",
        "no summary",
    )
    exact_match_percent: float | None = _figure(
        *("exact_match", "summary.json:exact_match", "%", 2),
        *("official SQuAD v1.1 score of greedy answers (summary.json)", "no EM/F1"),
    )
    f1_percent: float | None = _figure("f1", "summary.json:f1", "%", 2, "as exact_match (summary.json)", "no EM/F1")
    train_exact_match_percent: float | None = _figure(
        *("train_exact_match", "summary.json:train_exact_match", "%", 2),
        *("the same of questions that were trained on (summary.json, GENERATE_TRAIN_SIZE)", "no EM/F1"),
    )
    train_f1_percent: float | None = _figure(
        "train_f1", "summary.json:train_f1", "%", 2, "as above (summary.json)", "no EM/F1"
    )
    examples_trained: float | None = _figure(
        *("examples_trained", "steps.csv:examples", "", 0),
        "training examples in all steps; one that was trained on twice counts twice (steps.csv, samples)",
        "no step times",
    )
    optimizer_steps: float | None = _figure(
        "optimizer_steps", "steps.csv:steps", "", 0, "updates of the weights (steps.csv)", "no step times"
    )
    time_in_steps_s: float | None = _figure(
        *("time_in_steps", "steps.csv:time_s", "s", 0),
        "sum of the steps' times, with the first ones; evaluation and saving are not in it (steps.csv)",
        "no step times",
    )
    last_loss: float | None = _figure(
        *("last_loss", "steps.csv:last_loss", "", 4),
        *("training loss, mean over the last tenth of the steps (steps.csv)", "no step times"),
    )
    positions_trained: float | None = _figure(
        *("positions_trained", "steps.csv:positions", "", 0),
        *("tokens in all steps, padding included (steps.csv, tokens)", "no step times"),
    )
    peak_gpu_mib: float | None = _figure(
        *("peak_gpu", "gpu_memory:peak_mib", "MiB", 0),
        *("largest memory.used of any GPU of the node(s) (gpu_memory*.csv)", "no GPU log"),
    )
    mean_gpu_mib: float | None = _figure(
        *("mean_gpu", "gpu_memory:mean_mib", "MiB", 0),
        *("mean memory.used over all samples of all GPUs (gpu_memory*.csv)", "no GPU log"),
    )
    min_gpu_mib: float | None = _figure(
        "min_gpu", "gpu_memory:min_mib", "MiB", 0, "smallest memory.used of any GPU (gpu_memory*.csv)", "no GPU log"
    )
    peak_cpu_mib: float | None = _figure(
        *("peak_cpu", "cpu_memory:peak_mib", "MiB", 0),
        "peak of the processes' summed RSS on the node with the most; shared pages count once per process "
        "(cpu_memory*.txt, psrecord)",
        "no CPU log",
    )
    mean_cpu_mib: float | None = _figure(
        "mean_cpu", "cpu_memory:mean_mib", "MiB", 0, "mean of the same (cpu_memory*.txt)", "no CPU log"
    )
    peak_cpu_pss_mib: float | None = _figure(
        *("peak_cpu_pss", "cpu_pss:peak_mib", "MiB", 0),
        "peak proportional set size on the node with the most; shared pages count once (cpu_pss*.txt)",
        "no PSS log",
    )
    mean_cpu_pss_mib: float | None = _figure(
        "mean_cpu_pss", "cpu_pss:mean_mib", "MiB", 0, "mean of the same (cpu_pss*.txt)", "no PSS log"
    )
    train_runtime_s: float | None = _figure(
        *("train_runtime", "summary.json:train_runtime_s train.out:train_runtime", "s", 1),
        "the Trainer's train_runtime, with evaluation and saving between the epochs (summary.json or train.out)",
        "no train_runtime",
    )
    total_runtime_s: float | None = _figure(
        *("total_runtime", "run.json:runtime_s", "s", 0),
        *("whole job, start_time to end_time: loading, training, evaluation, saving (run.json)", "no end_time"),
    )
    world_size: float | None = _figure(
        *("world_size", "run.json:world_size", "", 0),
        *("training processes, one per GPU (run.json)", "no world_size"),
    )
    trainer_samples_per_second: float | None = _figure(
        "samples_per_second_trainer",
        "summary.json:train_samples_per_second train.out:train_samples_per_second",
        *("samples/s", 2),
        "the Trainer's own: training examples over the whole runtime: warm-up, evaluation and saving count "
        "too (summary.json or train.out, train_samples_per_second)",
        "no train_runtime",
    )
    mean_gpu_at_step_end_gb: float | None = _figure(
        *("gpu_memory_callback_gb", "summary.json/gpu:avg_mem_total_gb", "GB", 2),
        "memory in use on the device at the end of every training step, mean over steps and ranks (summary.json, "
        "avg_mem_total_MB)",
        "no summary",
    )
    num_layers: float | None = _figure(
        "num_layers", "run.json:num_layers", "", 0, "NUM_LAYERS (run.json)", "no NUM_LAYERS"
    )
    batch_size: float | None = _figure(
        "batch_size", "run.json:batch_size", "", 0, "BATCH_SIZE, per GPU (run.json)", "no BATCH_SIZE"
    )
    parameters_millions: float | None = _figure(
        *("parameters", "run.json:parameters_millions", "M", 1),
        *("parameters of the model, in millions (run.json)", "no model"),
    )
    flops_per_step_tflop: float | None = _figure(
        *("flops_per_step", "run.json:flops_per_step_tflop", "TFLOP", 2),
        "10^12 floating-point operations of the matrix products of one GPU in one step, forward and backward, from the "
        "shapes (run.json, flops_per_gpu_per_step)",
        "no FLOPs",
    )
    allreduce_gb_per_s: float | None = _figure(
        *("allreduce_bandwidth", "fabric:allreduce_gb_per_s", "GB/s", 2),
        "bus bandwidth of the all-reduce of the largest message over all GPUs as one world, before training (nccl.log)",
        "no fabric check",
    )
    step_time_ms: float | None = _figure(
        *("step_time", "computed:step_time_ms", "ms", 1),
        *("1000 / optimizer steps per second (summary.json, train/steps_per_second)", "no step times"),
    )
    median_tokens_per_second: float | None = _speed(
        *("median_tokens_per_second", "median_tokens_per_second", "tokens/s", 0),
        "median over the steps of tokens of all GPUs / step time, warm-up steps left out (summary.json)",
    )
    peak_allocated_mib: float | None = _figure(
        *("peak_allocated", "summary.json/gpu:peak_mem_alloc_mib", "MiB", 0),
        "largest peak over the ranks of what PyTorch's tensors took (summary.json, peak_mem_alloc_mib)",
        "not recorded",
    )
    peak_reserved_mib: float | None = _figure(
        *("peak_reserved", "summary.json/gpu:peak_mem_reserved_mib", "MiB", 0),
        "the same of what PyTorch's allocator held, used or not (summary.json, peak_mem_reserved_mib)",
        "not recorded",
    )
    real_tokens_per_second: float | None = _speed(
        *("real_tokens_per_second", "real_tokens_per_second", "tokens/s", 0),
        "tokens that are not padding per second over all GPUs, warm-up, evaluation and saving not in it (summary.json, "
        "train/real_tokens_per_second)",
    )
    tokens_per_second: float | None = _speed(
        *("tokens_per_second", "tokens_per_second", "tokens/s", 0),
        "the same with padding (summary.json, train/tokens_per_second)",
    )
    mfu_percent: float | None = _figure(
        *("mfu", "mfu:mfu_percent", "%", 1),
        "model FLOPs utilisation: (6 x parameters + 12 x layers x hidden size x row length) x tokens/s with padding, "
        "less the head's operations where no logits were computed, over the GPUs' data sheet peak (run.json, "
        "summary.json, tools/logs/gpu_peaks.py)",
        "no step times",
    )
    mfu_by_convention_percent: float | None = _figure(
        *("mfu_by_convention", "mfu:mfu_by_convention_percent", "%", 1),
        *("the same, as if logits had been computed at every position", "no step times"),
    )
    examples_per_step: float | None = _figure(
        *("examples_per_step", "computed:examples_per_step", "", 0),
        *("training examples in an optimizer step, mean; a packed row holds several (summary.json)", "no step times"),
    )
    all_reduces: float | None = _calls("all_reduces", "all-reduce")
    all_gathers: float | None = _calls("all_gathers", "all-gather")
    reduce_scatters: float | None = _calls("reduce_scatters", "reduce-scatter")
    other_collectives: float | None = _figure(
        *("other_collectives", "collectives:other", "", 0),
        *("calls of the same step that are none of these three (collectives.csv)", "not counted"),
    )
    sent_mib: float | None = _figure(
        *("sent_bytes", "collectives:sent_mib", "MiB", 2),
        "what a rank sends in the step: of every call the message x (n-1)/n, of an all-reduce twice, for a ring of n "
        "ranks (collectives.csv)",
        "not counted",
    )
    sent_between_nodes_mib: float | None = _figure(
        *("sent_between_nodes", "collectives:between_nodes_mib", "MiB", 2),
        "of it what one node sends to the next; of a run on one node, as if each half of its ranks were a node "
        "(collectives.csv)",
        "not counted",
    )
    predicted_sent_mib: float | None = _figure(
        *("predicted_bytes", "predicted:sent_mib", "MiB", 2),
        "what a rank would send by the ZeRO paper's formulas, from the parameters, the precision, the accumulation and "
        "the number of ranks (run.json)",
        "no parameters",
    )
    shards_parameters: bool | None = _observed("shards_parameters", "parameters", _part_only("parameters"))
    shards_gradients: bool | None = _observed("shards_gradients", "gradients", _part_only("gradients"))
    shards_optimizer: bool | None = _observed("shards_optimizer", "optimizer", _part_only("optimizer"))
    cpu_offload: bool | None = _observed(
        "cpu_offload", "cpu_offload", "a run with states in CPU memory between their uses completed"
    )
    unchanged_model: bool | None = _figure(
        *("unchanged_model", "run.json:unchanged_model", "", 0),
        "a run of the method had a model all of whose classes were PyTorch's and transformers' (run.json, "
        "sharding.own_modules, observed in the run)",
        "not recorded",
    )
    hf_trainer: bool | None = _figure(
        *("hf_trainer", "run.json:hf_trainer", "", 0),
        "a run of the method was driven by transformers' Trainer or a class made from it (run.json, trainer_classes, "
        "observed in the run)",
        "not recorded",
    )

    def reason(self, name: str) -> str:
        """Why there is no figure of this name, as a cell shows it."""
        return self.missing.get(name) or DEFINITIONS[name].missing


# The figures that tables show: field to definition, in the record's order.
DEFINITIONS: dict[str, Definition] = {
    one.name: one.metadata["definition"] for one in fields(RunFigures) if one.metadata
}
