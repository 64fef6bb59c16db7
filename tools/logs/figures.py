"""The figures of a run, each defined once: its name, how it is read, how tables name and show it, what it is.

Its function gives a run's figure: None where the run lacks it, or an UnavailableError with the words that a cell shows
instead; tools/logs/sources.py reads the files. A damaged file is a LogError and costs all figures that are from it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import Any

from tools.errors import LogError, UnavailableError
from tools.logs import communication, sources
from tools.logs.run import Run

A_WORD, YES_OR_NO = "a word", "yes or no"  # in place of decimals
MIB_PER_GB = 1e9 / 2**20


@dataclass(frozen=True)
class Figure:
    """A figure of a run.

    Attributes:
        name: in `--figures`, csv and page.
        of: from a run to its figure.
        title: of rows and columns that show it; `also` is another one.
        unit: named by its title; "" for none.
        decimals: digits after the point; YES_OR_NO; A_WORD, which is said in place of a figure.
        missing: what a cell shows where the run lacks it.
        definition: one line: what it is and which file it is from.
        std: the standard deviation over repeats, not the median.
    """

    name: str
    of: Callable[..., Any]
    title: str
    also: str = ""
    unit: str = ""
    decimals: int | str = 0
    missing: str = "not recorded"
    definition: str = ""
    std: bool = False

    @property
    def titles(self) -> list[str]:
        return [title for title in (self.title, self.also) if title]

    def written(self, value: float | bool) -> str:
        """A figure as printed: thousands separators and the decimals, no unit; of a tiny model two digits, not 0."""
        if isinstance(value, bool):
            return "yes" if value else "no"
        small = 0 < abs(value) < 0.5 * 10.0**-self.decimals
        return f"{value:,.{1 - math.floor(math.log10(abs(value))) if small else self.decimals}f}"


def _over(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


# DeepSpeed's timers: name, timer, title, and what it times.
# fmt: off
_TIMERS = (
    ("forward", "fwd", "Forward (ms)", "forward passes of a step's micro-batches"),
    ("backward", "bwd", "Backward (ms)", "backward passes of a step's micro-batches"),
    ("reduce", "bwd_allreduce", "Reduce gradients (ms)", "the end of the backward passes, in which the last gradients "
        "are reduced and offloaded"),
    ("update", "step", "Update (ms)", "everything after the backward passes: search for overflow, norm, optimizer, new "
        "weights"),
    ("optimizer", "optimizer_step", "Optimizer (ms)", "part of the update: the optimizer and its copies"),
)
_FIGURES = [
    Figure("train_loss", lambda run: sources.summary(run).get("train_loss"), "Train Loss (mean)", decimals=4,
        missing="no train_loss", definition="the loss of training, mean over all steps, not the last one printed: the "
        "Trainer's train_loss (summary.json or train.out)"),
    *(Figure(f"eval_loss_{epoch}", lambda run, epoch=epoch: sources.evaluations(run).get(f"eval_loss_{epoch}"),
        f"Eval Loss (Epoch {epoch})", decimals=4, missing="no eval", definition="eval_loss of the evaluation after "
        f"epoch {epoch} (summary.json or train.out)") for epoch in (1, 2, 3)),
    Figure("eval_loss_final", lambda run: sources.evaluations(run).get("eval_loss_final"), "Eval Loss (final)",
        also="Held-out loss", decimals=4, missing="no eval", definition="eval_loss of the evaluation after the last "
        "epoch (summary.json or train.out)"),
    Figure("samples_per_second", lambda run: sources.summary(run).get("train/samples_per_second"), "Samples/s",
        unit="samples/s", decimals=2, missing="no step times", definition="training examples per second over all GPUs, "
        "from synchronised step times; without warm-up, evaluation and saving (summary.json, "
        "train/samples_per_second)"),
    *(Figure(f"{name}_ms", lambda run, timer=timer: sources.timers(run).get(timer), title, unit="ms", decimals=1,
        missing="no timers", definition=f"{what}: median of DeepSpeed's timer {timer} after the warm-up, on rank 0 "
        "(train.out, TIMERS=true)") for name, timer, title, what in _TIMERS),
    Figure("steps_per_second", lambda run: sources.summary(run).get("train/steps_per_second"), "Steps/sec",
        unit="steps/s", decimals=3, missing="no step times", definition="optimizer steps per second, from synchronised "
        "step times (summary.json, train/steps_per_second)"),
    Figure("eval_samples_per_second", lambda run: sources.summary(run).get("eval_samples_per_second"),
        "Evaluation samples/s", unit="samples/s", decimals=2, missing="no eval", definition="the Trainer's, mean over "
        "the evaluations (summary.json or train.out); key `eval_samples_per_second`"),
    Figure("steps_per_epoch", lambda run: run.record.steps_per_epoch, "Steps per Epoch", missing="no steps_per_epoch",
        definition="ceil(examples / (micro-batch x GPUs x accumulation)) (run.json, steps_per_epoch)"),
    Figure("gpu_utilization_percent", lambda run: sources.gpu_summary(run).get("avg_gpu_util_%"), "GPU Utilization (%)",
        unit="%", decimals=1, missing="no summary", definition="mean over all samples of all ranks during training, "
        "zeros included (summary.json, avg_gpu_util_%)"),
    Figure("exact_match_percent", lambda run: sources.summary(run).get("exact_match"), "Exact Match (%)",
        also="Held-out, exact match (%)", unit="%", decimals=2, missing="no EM/F1", definition="official SQuAD v1.1 "
        "score of greedy answers (summary.json); key `exact_match`"),
    Figure("f1_percent", lambda run: sources.summary(run).get("f1"), "F1 (%)", also="Held-out, F1 (%)", unit="%",
        decimals=2, missing="no EM/F1", definition="official SQuAD v1.1 F1 of greedy answers (summary.json); key `f1`"),
    Figure("optimizer_steps", lambda run: sources.steps(run).get("steps"), "Optimizer steps", missing="no step times",
        definition="updates of the weights (steps.csv)"),
    Figure("compilation_s", lambda run: sources.steps(run).get("compilation_s"), "Compilation (s)", unit="s",
        decimals=1, missing="no step times", definition="what the warm-up steps take longer than as many later ones "
        "(steps.csv; summary.json, warmup_steps)"),
    Figure("second_loss", lambda run: sources.steps(run).get("second_loss"), "Loss after one step", decimals=4,
        missing="no step times", definition="training loss of the second step, so after one update (steps.csv)"),
    Figure("last_loss", lambda run: sources.steps(run).get("last_loss"), "Train loss (last tenth)", decimals=4,
        missing="no step times", definition="training loss, mean over the last tenth of the steps (steps.csv)"),
    Figure("positions_trained", lambda run: sources.steps(run).get("positions"), "Positions trained",
        missing="no step times", definition="tokens in all steps, padding included (steps.csv, tokens)"),
    Figure("peak_gpu_mib", lambda run: sources.gpu_memory(run).get("peak_mib"), "Peak GPU Memory (MiB)", unit="MiB",
        missing="no GPU log", definition="largest memory.used of any GPU of any node (gpu_memory*.csv)"),
    Figure("mean_gpu_mib", lambda run: sources.gpu_memory(run).get("mean_mib"), "Mean GPU Memory (MiB)", unit="MiB",
        missing="no GPU log", definition="mean memory.used over all samples of all GPUs, from the start to the end of "
        "the job (gpu_memory*.csv)"),
    Figure("mean_gpu_gb", lambda run: _over(sources.gpu_memory(run).get("mean_mib"), MIB_PER_GB),
        "Mean GPU Memory (GB)", unit="GB", decimals=2, missing="no GPU log", definition="mean memory.used over all "
        "samples of all GPUs, from the start to the end of the job, in 10^9 bytes (gpu_memory*.csv)"),
    Figure("min_gpu_mib", lambda run: sources.gpu_memory(run).get("min_mib"), "Minimum GPU Memory (MiB)", unit="MiB",
        missing="no GPU log", definition="smallest memory.used of any GPU (gpu_memory*.csv)"),
    Figure("mean_power_w", lambda run: sources.gpu_power(run).get("mean_w"), "Mean GPU Power (W)", unit="W",
        missing="not logged", definition="mean power.draw of a GPU while the timed steps ran, a sample a second "
        "(gpu_memory*.csv; summary.json, timed_start and timed_end)"),
    Figure("peak_power_w", lambda run: sources.gpu_power(run).get("peak_w"), "Peak GPU Power (W)", unit="W",
        missing="not logged", definition="largest power.draw of any GPU, each a mean of about a second "
        "(gpu_memory*.csv)"),
    Figure("energy_j", lambda run: sources.energy(run).get("energy_j"), "Energy (J)", unit="J", missing="not logged",
        definition="joules of all GPUs in the steps after the warm-up, by NVML's counter; none below 10 s "
        "(summary.json, energy_j)"),
    Figure("real_tokens_per_joule", lambda run: sources.energy(run).get("real_tokens_per_joule"),
        "Real tokens per joule", decimals=1, missing="not logged", definition="tokens of these steps that are not "
        "padding, over their joules (summary.json, real_tokens_per_joule)"),
    Figure("peak_cpu_mib", lambda run: sources.cpu_memory(run).get("peak_mib"), "Peak CPU Memory, RSS (MiB)",
        unit="MiB", missing="no CPU log", definition="peak of the processes' summed RSS on the node with the most; "
        "shared pages count once per process (cpu_memory*.txt, psrecord)"),
    Figure("mean_cpu_mib", lambda run: sources.cpu_memory(run).get("mean_mib"), "Mean CPU Memory, RSS (MiB)",
        unit="MiB", missing="no CPU log", definition="mean of the processes' summed RSS (cpu_memory*.txt)"),
    Figure("peak_cpu_pss_mib", lambda run: sources.cpu_memory(run, "cpu_pss").get("peak_mib"),
        "Peak CPU Memory, PSS (MiB)", unit="MiB", missing="no PSS log", definition="peak proportional set size on the "
        "node with the most; shared pages count once (cpu_pss*.txt)"),
    Figure("train_runtime_s", lambda run: sources.summary(run).get("train_runtime_s"), "Train Runtime (s)", unit="s",
        decimals=1, missing="no train_runtime", definition="the Trainer's train_runtime, with evaluation and saving "
        "between the epochs (summary.json, train_runtime_s; train.out, train_runtime)"),
    Figure("total_runtime_s", lambda run: None if run.state == "running" else run.runtime_s, "Total Runtime (s)",
        unit="s", missing="no valid end_time", definition="whole job, start_time to end_time: loading, training, "
        "evaluation, saving (run.json)"),
    Figure("world_size", lambda run: run.record.world_size, "Total GPUs", missing="no world_size",
        definition="training processes, one per GPU (run.json, world_size)"),
    Figure("trainer_samples_per_second", lambda run: sources.summary(run).get("train_samples_per_second"),
        "Trainer's samples/s", unit="samples/s", decimals=2, missing="no train_runtime", definition="the Trainer's "
        "own: training examples over the whole runtime: warm-up, evaluation and saving count too (summary.json or "
        "train.out, train_samples_per_second)"),
    Figure("trainer_steps_per_second", lambda run: sources.summary(run).get("train_steps_per_second"),
        "Trainer's steps/s", unit="steps/s", decimals=3, missing="no train_runtime", definition="the Trainer's own: "
        "optimizer steps over the whole runtime: warm-up, evaluation and saving count too (summary.json or train.out, "
        "train_steps_per_second)"),
    Figure("mean_gpu_at_step_end_gb", lambda run: _over(sources.gpu_summary(run).get("avg_mem_total_MB"), MIB_PER_GB),
        "GPU Memory at step end (GB)", unit="GB", decimals=2, missing="no summary", definition="memory in use on the "
        "device at the end of every training step, mean over steps and ranks (summary.json, avg_mem_total_MB, which "
        "are MiB)"),
    Figure("num_layers", lambda run: run.settings.get("num_layers"), "Num Layers", missing="no NUM_LAYERS",
        definition="NUM_LAYERS (run.json, settings.num_layers)"),
    Figure("batch_size", lambda run: run.settings.get("batch_size"), "Per-GPU Batch", missing="no BATCH_SIZE",
        definition="BATCH_SIZE, per GPU (run.json, settings.batch_size)"),
    Figure("parameters_millions", lambda run: _over(run.record.model.parameters, 1e6), "Total Params (M)", unit="M",
        decimals=1, missing="no model", definition="parameters of the model, in millions (run.json, model.parameters)"),
    Figure("trained_millions", lambda run: _over(run.record.model.trained_parameters, 1e6), "Trained parameters (M)",
        unit="M", decimals=2, missing="no model", definition="parameters that have gradients and states, in millions "
        "(run.json, trained_parameters)"),
    Figure("weights_mib", lambda run: run.record.sharding.weights_mib, "Weights (MiB)", unit="MiB", decimals=2,
        definition="what the fullest rank holds of the model's parameters after the first forward pass (run.json, "
        "sharding.weights_mib)"),
    Figure("gradients_mib", lambda run: run.record.sharding.gradients_mib, "Gradients (MiB)", unit="MiB", decimals=2,
        definition="what the same rank holds of their gradients; with DeepSpeed between two micro-batches (run.json, "
        "sharding.gradients_mib)"),
    Figure("optimizer_states_mib", lambda run: sources.summary(run).get("optimizer_states_mib"),
        "Optimizer states (MiB)", unit="MiB", decimals=2, definition="what the same rank's optimizer keeps: Adam's two "
        "moments, and with mixed precision or ZeRO DeepSpeed's fp32 copy of the weights (run.json, "
        "sharding.optimizer_states_mib; older runs: summary.json)"),
    Figure("states_mib", lambda run: run.record.sharding.states_mib, "States (MiB)", unit="MiB", decimals=2,
        definition="weights, gradients and optimizer states together that the fullest rank holds, in GPU or CPU memory "
        "(run.json, sharding.states_mib)"),
    Figure("flops_per_step_tflop", lambda run: _over(run.record.flops_per_gpu_per_step, 1e12),
        "FLOPs per GPU per Step (TFLOP)", unit="TFLOP", decimals=2, missing="no FLOPs", definition="10^12 "
        "floating-point operations of the matrix products of one GPU in one step, forward and backward, from the "
        "shapes (run.json, flops_per_gpu_per_step)"),
    Figure("allreduce_gb_per_s", lambda run: sources.fabric(run).get("allreduce_gb_per_s"), "AllReduce BW (GB/s)",
        unit="GB/s", decimals=2, missing="no fabric check", definition="bus bandwidth of the all-reduce of the largest "
        "message over all GPUs as one world, before training (nccl.log)"),
    Figure("step_time_ms", lambda run: sources.summary(run).get("step_time_ms"), "Step time (ms)", unit="ms",
        decimals=1, missing="no step times", definition="1000 / optimizer steps per second (summary.json, "
        "train/steps_per_second)"),
    Figure("median_tokens_per_second", lambda run: sources.summary(run).get("train/median_tokens_per_second"),
        "Tokens/s", unit="tokens/s", missing="no step times", definition="median over the steps of tokens of all GPUs "
        "/ step time, warm-up steps left out (summary.json); key `train/median_tokens_per_second`"),
    Figure("peak_allocated_mib", lambda run: sources.gpu_summary(run).get("peak_mem_alloc_mib"), "Peak allocated (MiB)",
        unit="MiB", definition="peak memory of PyTorch's tensors (allocated, not reserved), largest rank "
        "(summary.json, peak_mem_alloc_mib)"),
    Figure("peak_allocated_gb", lambda run: _over(sources.gpu_summary(run).get("peak_mem_alloc_mib"), MIB_PER_GB),
        "Peak allocated (GB)", unit="GB", decimals=2, definition="peak memory of PyTorch's tensors (allocated, not "
        "reserved), largest rank, in 10^9 bytes (summary.json, peak_mem_alloc_mib)"),
    Figure("peak_reserved_mib", lambda run: sources.gpu_summary(run).get("peak_mem_reserved_mib"),
        "Peak reserved (MiB)", unit="MiB", definition="peak memory that PyTorch's allocator held, used or not, largest "
        "rank (summary.json, peak_mem_reserved_mib)"),
    *(Figure(f"memory_{phase}_mib", lambda run, key=f"mem_{phase}_mib": sources.gpu_summary(run).get(key), title,
        unit="MiB", definition=f"what PyTorch's tensors have of rank 0's GPU {when} (summary.json, mem_{phase}_mib)")
        for phase, title, when in (
            ("loaded", "Loaded (MiB)", "before the first step"),
            ("forward", "After the forward pass (MiB)", "after the first step's last forward pass"),
            ("backward", "After the backward pass (MiB)", "before the first step's update"),
            ("update", "After the update (MiB)", "after the first step's update, with the moments"))),
    Figure("real_tokens_per_second", lambda run: sources.summary(run).get("train/real_tokens_per_second"),
        "Real tokens/s", unit="tokens/s", missing="no step times", definition="tokens per second that are not padding, "
        "over all GPUs, without warm-up, evaluation and saving (summary.json, train/real_tokens_per_second)"),
    Figure("tokens_per_second", lambda run: sources.summary(run).get("train/tokens_per_second"), "Padded tokens/s",
        unit="tokens/s", missing="no step times", definition="tokens per second, padding included (summary.json, "
        "train/tokens_per_second)"),
    Figure("mfu_percent", lambda run: sources.utilisation(run).get("mfu_percent"), "MFU (%)", unit="%", decimals=1,
        missing="no step times", definition="model FLOPs utilisation: (6 x parameters + 12 x layers x attention size x "
        "row length) x tokens/s with padding, less the head's operations where no logits were computed, over the GPUs' "
        "data sheet peak; a frozen parameter counts 4 times, not 6 (run.json, summary.json, tools/logs/mfu.py)"),
    Figure("mfu_by_convention_percent", lambda run: sources.utilisation(run).get("mfu_by_convention_percent"),
        "MFU by the convention (%)", unit="%", decimals=1, missing="no step times", definition="the same, as if logits "
        "had been computed at every position"),
    Figure("examples_per_step", lambda run: sources.summary(run).get("examples_per_step"), "Examples per step",
        missing="no step times", definition="training examples in an optimizer step, mean; a packed row holds several "
        "(summary.json, train/samples_per_second / train/steps_per_second)"),
    *(Figure(kind.replace("-", "_") + "s", lambda run, kind=kind: communication.counted_traffic(run).get(kind),
        kind.capitalize(), missing="not counted", definition=f"{kind} calls of a rank in one optimizer step, small "
        "ones too, but none in a group of one rank (collectives.csv)")
        for kind in ("all-reduce", "all-gather", "reduce-scatter")),
    Figure("sends", lambda run: communication.counted_traffic(run).get("send"), "Sends", missing="not counted",
        definition="sends to one other rank in one optimizer step, of the rank with the most (collectives.csv)"),
    Figure("other_collectives", lambda run: communication.counted_traffic(run).get("other"), "Other collectives",
        missing="not counted", definition="all other collective calls of a rank in one optimizer step"),
    Figure("sent_mib", lambda run: communication.counted_traffic(run).get("sent_mib"), "Sent per rank (MiB)",
        unit="MiB", decimals=2, missing="not counted", definition="MiB that a rank sends in the step: message x "
        "(n-1)/n per call, twice that for an all-reduce, in a ring of n ranks (collectives.csv)"),
    Figure("sent_between_nodes_mib", lambda run: communication.counted_traffic(run).get("between_nodes_mib"),
        "Between two nodes (MiB)", unit="MiB", decimals=2, missing="not counted", definition="MiB that one node sends "
        "to the next in the step; for a run on one node, each half of its ranks counts as a node (collectives.csv)"),
    Figure("predicted_sent_mib", communication.predicted_sent_mib, "Predicted (MiB)", unit="MiB", decimals=2,
        missing="no parameters", definition="MiB that a rank should send by the ZeRO paper's formulas, or "
        "further/dimensions/'s (tools/logs/communication.py), from the sizes in run.json"),
    Figure("predicted_bubble_percent", lambda run: _over(run.record.sharding.bubble, 0.01), "Predicted bubble (%)",
        unit="%", decimals=1, missing="no pipeline", definition="share of a step in which a rank of a pipeline waits, "
        "by its schedule's formula, if all stages take equally long (run.json, sharding.bubble)"),
    Figure("fullest_expert", lambda run: run.record.sharding.fullest_expert, "Fullest expert (x mean)", decimals=2,
        missing="no experts", definition="tokens of the expert with the most over the mean of its layer, in the "
        "counted step and the most unequal layer (run.json, sharding.fullest_expert)"),
    Figure("fullest_rank", lambda run: run.record.sharding.fullest_rank, "Fullest rank (x mean)", decimals=3,
        missing="no experts", definition="tokens that the experts of each layer's fullest rank compute, over the mean "
        "of the ranks, summed over the layers of the counted step (run.json, sharding.fullest_rank)"),
    Figure("stage_imbalance", lambda run: run.record.sharding.imbalance, "Largest stage (x mean)", decimals=2,
        missing="no pipeline", definition="work of the rank with the most, head and embedding included, over the mean "
        "of all ranks (run.json, sharding.imbalance)"),
    *(Figure(f"shards_{part}", lambda run, part=part: getattr(run.record.sharding, part),
        f"{part.removesuffix('s').capitalize()} sharding", decimals=YES_OR_NO, missing="no sharding record",
        definition=f"each rank holds only a part of the {part} in a run of the method on several GPUs (run.json, "
        f"sharding.{part}, observed in the run)") for part in ("parameters", "gradients", "optimizer")),
    Figure("cpu_offload", lambda run: run.record.sharding.cpu_offload, "CPU offload", decimals=YES_OR_NO,
        missing="no sharding record", definition="a run with states in CPU memory between their uses completed "
        "(run.json, sharding.cpu_offload, observed in the run)"),
    Figure("unchanged_model", lambda run: run.unchanged_model, "No model-code change", decimals=YES_OR_NO,
        definition="a run of the method had a model with classes of PyTorch and transformers only (run.json, "
        "sharding.own_modules, observed in the run)"),
    Figure("hf_trainer", lambda run: run.hf_trainer, "Works with HF Trainer", decimals=YES_OR_NO, definition="a run of "
        "the method used transformers' Trainer or a subclass (run.json, trainer_classes, observed in the run)"),
    Figure("fault_state", sources.state_before_fault, "State recorded", decimals=A_WORD, definition="end state of the "
        "attempt before the last one; for a run with one attempt, its end state (run.json, attempts)"),
    Figure("steps_lost", lambda run: sources.attempts_sum(run, "steps_lost"), "Steps lost", definition="steps that "
        "were repeated after the checkpoint, in all attempts (run.json, attempts)"),
    Figure("seconds_lost", lambda run: sources.attempts_sum(run, "seconds_lost"), "Seconds lost", unit="s", decimals=1,
        definition="from the last step of an attempt to the first new step, in all attempts (run.json, attempts)"),
    Figure("resumed_step", sources.resumed_step, "Resumed from step", definition="step of the checkpoint that the last "
        "attempt began with (run.json, attempts)"),
    Figure("checkpoint_time_s", lambda run: sources.summary(run).get("checkpoint_time_s"), "Checkpoint time (s)",
        also="Stall per save (s)", unit="s", decimals=2, missing="no checkpoint", definition="time that the training "
        "waits for a checkpoint, mean over the last attempt (summary.json, checkpoint_time_s)"),
    Figure("checkpoint_mib", lambda run: sources.summary(run).get("checkpoint_mib"), "Checkpoint size (MiB)",
        unit="MiB", missing="no checkpoint", definition="size of the newest checkpoint (summary.json, checkpoint_mib)"),
]
# fmt: on
OF_ONE_RUN = {figure.name: figure for figure in _FIGURES}


def measure(run: Run, name: str) -> float | bool:
    """A run's figure.

    Raises:
        UnavailableError: there is none; its text is what a cell shows.
        LogError: a file that it is from is damaged.
    """
    value = OF_ONE_RUN[name].of(run)
    if value is None:
        raise UnavailableError(OF_ONE_RUN[name].missing)
    if isinstance(value, Exception):
        raise value
    return value


def value_of(run: Run, name: str) -> Any:
    """A run's figure; None where there is none or its file is damaged."""
    try:
        return measure(run, name)
    except (UnavailableError, LogError):
        return None


def text_of(run: Run, name: str) -> str:
    """A run's figure as printed, without its unit, or the words for why there is none."""
    if run.state != "completed":
        return run.outcome
    try:
        return OF_ONE_RUN[name].written(measure(run, name))
    except UnavailableError as missing:
        return str(missing)
    except LogError:
        return "unreadable log"


def over_repeats(runs: Sequence[Run], name: str, std: bool = False) -> float | bool:
    """The median over runs that differ in REPEAT only, or their standard deviation. Raises as `measure` does."""
    values, missing = [], UnavailableError(OF_ONE_RUN[name].missing)
    for run in runs:
        try:
            values.append(measure(run, name))
        except UnavailableError as error:
            missing = error
    if not values:
        raise missing
    if std and len(values) == 1:
        raise UnavailableError("one run only")
    return stdev(values) if std else values[-1] if isinstance(values[-1], bool) else median(values)
