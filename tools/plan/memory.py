"""From a simulated step (workshop/simulate/step_on_meta.py) to the peak of allocated memory under a strategy, in bytes.

Each strategy has a few moments at which the peak can be; at each, terms are added up. What a term is and where the
library's source says so stands beside it. P: parameters; w: ranks that share a shard; bytes per parameter: fp32 4,
half 2. DeepSpeed is 0.19.8, PyTorch 2.13.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any

# cuBLAS's workspaces and small tensors; the same 65.2 MiB beside the simulation in every reference run without ZeRO.
WORKSPACE_BYTES = 65 << 20
MIB = 2**20
# DeepSpeed's defaults where the configuration does not say. Source: deepspeed/runtime/zero/config.py,
# DeepSpeedZeroConfig: reduce_bucket_size, max_live_parameters.
REDUCE_BUCKET = 500_000_000
MAX_LIVE_PARAMETERS = 1_000_000_000

# by-hand's DDP sends bf16 copies of its buckets (bf16_compress_hook), which are freed late: so many sets of them were
# there beside all else in logs/reference/h200x4-host-c/by-hand, without and with accumulation (peaks of steps.csv).
_HOOK_COPIES = {False: 4, True: 2}

Terms = dict[str, float]


@dataclass(frozen=True)
class Strategy:
    """How a step's states lie on the GPUs.

    Attributes:
        method: none, ddp, zero0 to zero3, fsdp1, fsdp2; as run.json's sharding.method.
        world_size: ranks.
        accumulation: micro-batches per optimizer step.
        half: whether the run has a half precision; DeepSpeed then keeps fp32 master weights beside the half ones.
        config: the launcher's JSON, {} without one.
    """

    method: str
    world_size: int
    accumulation: int
    half: bool
    config: dict[str, Any]

    @property
    def zero(self) -> dict[str, Any]:
        """DeepSpeed's own part of the configuration; {} without it."""
        return self.config.get("zero_optimization", {})

    @property
    def shards(self) -> int:
        """Ranks that share one copy of the optimizer's states."""
        if self.method.startswith("fsdp"):
            return self.world_size // self.config.get("dp_replicate_size", 1)
        return self.world_size if self.method in ("zero1", "zero2", "zero3") else 1

    @property
    def reshards(self) -> bool:
        """Whether FSDP frees a block's gathered weights between its forward and its backward pass."""
        return self.config.get("reshard_after_forward", True) in (True, "full_shard")

    @property
    def share_on_cpu(self) -> float:
        """The share of the optimizer's states in CPU memory, 0 to 1."""
        if on_cpu(self.zero, "offload_optimizer"):
            return self.zero["offload_optimizer"].get("ratio", 1.0)
        return float(bool(self.config.get("cpu_offload")))

    @property
    def parameters_on_cpu(self) -> bool:
        return on_cpu(self.zero, "offload_param") or bool(self.config.get("cpu_offload"))

    @property
    def updates_elsewhere(self) -> bool:
        """Whether another process updates the states on the CPU. Source: deepspeed/runtime/{superoffload,zenflow}."""
        return bool(self.zero.get("zenflow")) or part_of(self.zero, "offload_optimizer").get("super_offload", False)

    @property
    def pinned(self) -> bool:
        """Whether the CPU memory that is offloaded to is pinned. Source: DeepSpeed's default, pin_memory: false."""
        return bool(self.config.get("cpu_offload")) or part_of(self.zero, "offload_optimizer").get("pin_memory", False)


def peak_allocated(step: dict[str, Any], strategy: Strategy) -> Terms:
    """The terms of the moment at which most is allocated on the fullest rank; their sum is the peak."""
    if strategy.method.startswith("zero"):
        moments = _zero(step, strategy)
    elif strategy.method.startswith("fsdp"):
        moments = _fsdp(step, strategy)
    else:
        moments = _replicated(step, strategy)
    fullest = max(moments, key=lambda terms: sum(terms.values()))
    return {**fullest, "workspace": WORKSPACE_BYTES}


def _replicated(step: dict[str, Any], strategy: Strategy) -> list[Terms]:
    """One GPU or DDP: fp32 weights, two Adam moments, gradients from the first backward pass on."""
    weights = 4 * step["parameters"]
    fixed: Terms = {"weights": weights, "optimizer": 2 * weights}
    if strategy.method == "ddp":
        # The reducer's buckets, which the gradients are copied to: torch/csrc/distributed/c10d/reducer.cpp,
        # initialize_buckets; the Trainer leaves gradient_as_bucket_view off.
        fixed["buckets"] = weights
        if step.get("outside_parts") and strategy.half:
            fixed["buckets in bf16"] = _HOOK_COPIES[strategy.accumulation > 1] * weights / 2
    return _micro_batches(step, strategy, fixed, carried=weights)


def _micro_batches(step: dict[str, Any], strategy: Strategy, fixed: Terms, carried: float) -> list[Terms]:
    """The first micro-batch makes its gradients, the later ones find them there (`carried`, bytes)."""
    moments = [
        # The peak with gradients and the one without may be apart; their difference still makes the right sum.
        {**fixed, "activations": peak, "gradients": part["peak_with_gradients_bytes"] - peak}
        for part in step["parts"]
        for peak in [part["peak_bytes"]]
    ]
    if strategy.accumulation > 1:
        moments.append({**fixed, "activations": _activations(step), "gradients": carried})
    return moments


def _activations(step: dict[str, Any]) -> float:
    return max(part["peak_bytes"] for part in step["parts"])


def _zero(step: dict[str, Any], strategy: Strategy) -> list[Terms]:
    zero = strategy.zero
    return {0: _zero0, 1: _zero12, 2: _zero12, 3: _zero3}[zero.get("stage", 0)](step, strategy, zero)


def _zero0(step: dict[str, Any], strategy: Strategy, zero: dict[str, Any]) -> list[Terms]:
    """No ZeRO: weights in half precision, fp32 master weights and moments on every rank.

    Source: deepspeed/runtime/fp16/fused_optimizer.py, FP16_Optimizer: __init__ (fp32_groups_flat); step converts all
    gradients to fp32 and flattens the list while the converted ones and those in half precision are still there.
    """
    parameters = step["parameters"]
    if not strategy.half:
        return _micro_batches(step, strategy, {"weights": 4 * parameters, "optimizer": 8 * parameters}, 4 * parameters)
    fixed = {"weights": 2 * parameters, "master weights": 4 * parameters, "optimizer": 8 * parameters}
    in_step = {**fixed, "gradients": 2 * parameters, "gradients in fp32, twice": 8 * parameters}
    return [*_micro_batches(step, strategy, fixed, 2 * parameters), in_step]


def _zero12(step: dict[str, Any], strategy: Strategy, zero: dict[str, Any]) -> list[Terms]:
    """Stages 1 and 2. Source: deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer."""
    parameters, width, shards = step["parameters"], _width(strategy), strategy.world_size
    stage, offload = zero["stage"], on_cpu(zero, "offload_optimizer")
    fixed: Terms = {"weights": width * parameters}
    if offload:
        fixed["offload buffer"] = width * step["largest_parameter"]  # __init__: temp_grad_buffer_for_gpu_offload
    else:
        fixed["master weights"] = 4 * parameters / shards  # __init__: single_partition_of_fp32_groups
        fixed["optimizer"] = 8 * parameters / shards
    # setup_buckets: one buffer, two with overlap_comm; from the first gradient of a backward pass on.
    bucket = width * zero.get("reduce_bucket_size", REDUCE_BUCKET) * (2 if zero.get("overlap_comm") else 1)
    partition = 0 if stage == 2 and offload else width * parameters / (shards if stage == 2 else 1)
    # Of the micro-batches before: all_grad_tensors, whole gradients of the parameters that a rank holds a part of
    # (copy_grads_in_partition). The fullest rank is the one in whose part the largest one, the embedding, ends.
    share = parameters / shards
    carried = partition * (ceil(step["largest_parameter"] / share) if stage == 2 else 1)
    several = strategy.accumulation > 1
    moments = []
    for before, part in pairwise([{"gradient_bytes": 0}, *step["parts"]]):
        terms = {**fixed, "activations": part["peak_bytes"]}
        if before["gradient_bytes"]:  # stage 1 keeps whole gradients until the end, stage 2 this rank's share
            terms["gradients"] = before["gradient_bytes"] / (width * parameters) * partition
            terms["gradients"] += carried * (several and stage == 2)
            terms["reduce bucket"] = bucket
        moments.append(terms)
    if several:
        # Stage 2 returns its buckets after every backward pass (_release_ipg_buffers), stage 1 after the last one.
        held = bucket if stage == 1 else 0
        moments.append({**fixed, "activations": _activations(step), "gradients": carried, "reduce bucket": held})
    if not offload:
        # step: this rank's gradients, the same flat, and flat in fp32.
        flat = (2 * width + 4) * parameters / shards
        moments.append({**fixed, "gradients of the step": flat})
    return moments


def _zero3(step: dict[str, Any], strategy: Strategy, zero: dict[str, Any]) -> list[Terms]:
    """Stage 3. Source: deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3, and
    partitioned_param_coordinator.py, PartitionedParameterCoordinator (what stays gathered for its next use)."""
    parameters, width, shards = step["parameters"], _width(strategy), strategy.world_size
    live = min(parameters, zero.get("stage3_max_live_parameters", MAX_LIVE_PARAMETERS))
    fixed: Terms = {"gathered weights": width * live}
    # _setup_for_real_optimizer: bucket.buffer, there from the start.
    fixed["reduce bucket"] = width * zero.get("reduce_bucket_size", REDUCE_BUCKET)
    # A world of one gathers nothing: a shard on the GPU is the parameter (partition_parameters.py, NoGatherHandle).
    if shards > 1 and not on_cpu(zero, "offload_param"):
        fixed["weights"] = width * parameters / shards
    elif shards == 1 and not on_cpu(zero, "offload_param"):
        fixed["gathered weights"] = width * parameters
    on_gpu = 1 - strategy.share_on_cpu
    fixed["master weights"] = 4 * parameters / shards * on_gpu  # fp32_partitioned_groups_flat
    fixed["optimizer"] = 8 * parameters / shards * on_gpu
    # grad_partitions_flat_buffer: lies where the optimizer does. With a ratio (part of the optimizer on each) the fp32
    # gradients of the GPU's part were measured beside it.
    fixed["gradients"] = (width * parameters / shards if on_gpu else 0) + (
        4 * parameters / shards * on_gpu if 0 < on_gpu < 1 else 0
    )
    return [{**fixed, "activations": _activations(step)}]


def _width(strategy: Strategy) -> int:
    return 2 if strategy.half else 4


def on_cpu(zero: dict[str, Any], part: str) -> bool:
    return part_of(zero, part).get("device", "none") == "cpu"


def part_of(zero: dict[str, Any], part: str) -> dict[str, Any]:
    """{} where it is left out or null, by which DeepSpeed means the same."""
    return zero.get(part) or {}


def _fsdp(step: dict[str, Any], strategy: Strategy) -> list[Terms]:
    """FSDP2, and FSDP1, which is within 2 % of it.

    Source: torch/distributed/fsdp/_fully_shard: _fsdp_param.py (fp32 shards; gathered in param_dtype), _fsdp_state.py
    (the root unit stays gathered; the block needed next is gathered early), _fsdp_param_group.py, post_backward
    (without gradient synchronisation, as between the Trainer's micro-batches, whole gradients accumulate).
    """
    parameters, width, shards = step["parameters"], _width(strategy), strategy.shards
    block = step["block_parameters"]
    gathered = parameters - block * (step["blocks"] - 1) if strategy.reshards else parameters
    fixed: Terms = {"gathered weights": width * gathered}
    if not strategy.config.get("cpu_offload"):
        fixed["weights"] = 4 * parameters / shards
        fixed["optimizer"] = 8 * parameters / shards
    moments = []
    # A loss that the training loop computes comes between the passes: the root unit is freed after the forward pass.
    outside = step.get("outside_parts", [False] * len(step["parts"]))
    for part, between in zip(step["parts"], outside, strict=True):
        ready = part["gradient_bytes"] / width
        now = {**fixed, "activations": part["peak_bytes"], "gradients": 4 * ready / shards}
        if between and strategy.reshards:
            del now["gathered weights"]
        moments.append(now)
        if strategy.accumulation > 1:
            moments.append({**now, "gradients": width * parameters})
    return moments
