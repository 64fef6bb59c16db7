"""From a simulated step (workshop/simulate/step_on_meta.py) to the peak of allocated memory under a strategy, in bytes.

Each strategy has a few moments at which the peak can be; at each, terms are added up. What a term is and where the
library's source says so stands beside it. P: parameters; w: ranks that share a shard; bytes per parameter: fp32 4,
half 2. Beside LoRA's adapters P is theirs, and the frozen weights lie beside it. DeepSpeed is 0.19.8, PyTorch 2.13.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any

from tools.plan.constants import CudaContext
from tools.plan.workload import Strategy, Workload

# cuBLAS's workspaces and small tensors; the same 65.2 MiB beside the simulation in every reference run without ZeRO.
WORKSPACE_BYTES = 65 << 20
MIB = 2**20
# DeepSpeed's defaults where the configuration does not say: deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig.
REDUCE_BUCKET, MAX_LIVE_PARAMETERS = 500_000_000, 1_000_000_000
# Processes that compile for a rank: torch/_inductor/config.py, decide_compile_threads: a node's cores, at most 32. The
# reference runs' hosts had 16 cores for each GPU.
_MOST_COMPILERS, _CORES_PER_GPU = 32, 16

Terms = dict[str, float]


def counted(
    workload: Workload, step: dict[str, Any], whole: dict[str, Any]
) -> tuple[Terms, dict[str, dict[str, float]], list[float]]:
    """The terms of allocated memory, the work by formula, and `before_training`; all MiB.

    Args: step: of the fullest rank; whole: of the model.
    """
    terms = {name: size / MIB for name, size in peak_allocated(step, workload.strategy).items()}
    work = {"reserved_mib": reserved_work(workload, step, terms), "cpu_mib": cpu_work(workload, whole)}
    return terms, work, [size / MIB for size in before_training(workload, whole)]


def peak_allocated(step: dict[str, Any], strategy: Strategy) -> Terms:
    """The terms of the moment at which most is allocated on the fullest rank; their sum is the peak."""
    fullest = max(_MOMENTS[strategy.sharding](step, strategy), key=lambda terms: sum(terms.values()))
    return {**fullest, "workspace": WORKSPACE_BYTES}


def weight_bytes(step: dict[str, Any], width: int, of_block: bool = False) -> int:
    """The bytes of the weights of the model or of a block: `width` per trained one, frozen ones as they are stored."""
    parameters, stored = ("block_parameters", "block_bytes") if of_block else ("parameters", "bytes")
    return width * step["trained"][parameters] + step.get("frozen", {}).get(stored, 0)


def kept_bytes(step: dict[str, Any], strategy: Strategy) -> float:
    """The weights that ZeRO-3 keeps from the forward to the backward pass, and gathers once."""
    live = strategy.zero.get("stage3_max_live_parameters", MAX_LIVE_PARAMETERS)
    return min(weight_bytes(step, strategy.width), strategy.width * live)


def _frozen(step: dict[str, Any], shards: int = 1) -> Terms:
    """The frozen weights of a rank; the scales of those with 4 bits are no parameters, so each rank has all of them."""
    sizes = step.get("frozen")
    return {"frozen weights": sizes["bytes"] / shards + sizes["scale_bytes"]} if sizes else {}


def _replicated(step: dict[str, Any], strategy: Strategy) -> list[Terms]:
    """One GPU or DDP: weights, two Adam moments, gradients from the first backward pass on, mostly in fp32."""
    parameters = step["trained"]["parameters"]
    weights = strategy.weight_bytes * parameters
    fixed: Terms = {"weights": weights, "optimizer": strategy.moment_bytes * parameters, **_frozen(step)}
    if strategy.sharding == "ddp":
        # The reducer's buckets, which the gradients are copied to: torch/csrc/distributed/c10d/reducer.cpp,
        # initialize_buckets; the Trainer leaves gradient_as_bucket_view off.
        fixed["buckets"] = weights
    return _micro_batches(step, strategy, fixed, carried=weights)


def _micro_batches(step: dict[str, Any], strategy: Strategy, fixed: Terms, carried: float) -> list[Terms]:
    """The first micro-batch makes its gradients, the later ones find them there (`carried`, bytes)."""
    moments = [
        # The peak with gradients and the one without may be apart; their difference still makes the right sum.
        fixed | {"activations": part["peak_bytes"], "gradients": part["peak_with_gradients_bytes"] - part["peak_bytes"]}
        for part in step["parts"]
    ]
    if strategy.accumulation > 1:
        moments.append({**fixed, "activations": _activations(step), "gradients": carried})
    return moments


def _activations(step: dict[str, Any]) -> float:
    return max(part["peak_bytes"] for part in step["parts"])


def _zero0(step: dict[str, Any], strategy: Strategy) -> list[Terms]:
    """No ZeRO: weights in half precision, fp32 master weights and moments on every rank.

    Source: deepspeed/runtime/fp16/fused_optimizer.py, FP16_Optimizer: __init__ (fp32_groups_flat); step converts all
    gradients to fp32 and flattens the list while the converted ones and those in half precision are still there.
    """
    parameters = step["trained"]["parameters"]
    if not strategy.half:
        return _micro_batches(step, strategy, {"weights": 4 * parameters, "optimizer": 8 * parameters}, 4 * parameters)
    fixed = {"weights": 2 * parameters, "master weights": 4 * parameters, "optimizer": 8 * parameters, **_frozen(step)}
    in_step = {**fixed, "gradients": 2 * parameters, "gradients in fp32, twice": 8 * parameters}
    return [*_micro_batches(step, strategy, fixed, 2 * parameters), in_step]


def _zero12(step: dict[str, Any], strategy: Strategy) -> list[Terms]:
    """Stages 1 and 2. Source: deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer."""
    parameters, largest = (step["trained"][name] for name in ("parameters", "largest_parameter"))
    width, shards, zero = strategy.width, strategy.world_size, strategy.zero
    stage, offload = zero["stage"], strategy.offload.share > 0
    fixed: Terms = {"weights": width * parameters, **_frozen(step)}
    if offload:
        fixed["offload buffer"] = width * largest  # __init__: temp_grad_buffer_for_gpu_offload
    else:
        fixed["master weights"] = 4 * parameters / shards  # __init__: single_partition_of_fp32_groups
        fixed["optimizer"] = 8 * parameters / shards
    # setup_buckets: one buffer, two with overlap_comm; from the first gradient of a backward pass on.
    bucket = width * zero.get("reduce_bucket_size", REDUCE_BUCKET) * (2 if zero.get("overlap_comm") else 1)
    partition = 0 if stage == 2 and offload else width * parameters / (shards if stage == 2 else 1)
    # Of the micro-batches before: all_grad_tensors, whole gradients of the parameters that a rank holds a part of
    # (copy_grads_in_partition). The fullest rank is the one in whose part the largest one, the embedding, ends.
    share = parameters / shards
    carried = partition * (ceil(largest / share) if stage == 2 else 1)
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


def _zero3(step: dict[str, Any], strategy: Strategy) -> list[Terms]:
    """Stage 3. Source: deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3, and
    partitioned_param_coordinator.py, PartitionedParameterCoordinator (what stays gathered for its next use)."""
    parameters, width, shards, zero = step["trained"]["parameters"], strategy.width, strategy.world_size, strategy.zero
    fixed: Terms = {"gathered weights": kept_bytes(step, strategy)}
    # _setup_for_real_optimizer: bucket.buffer, there from the start.
    fixed["reduce bucket"] = width * zero.get("reduce_bucket_size", REDUCE_BUCKET)
    # A world of one gathers nothing: a shard on the GPU is the parameter (partition_parameters.py, NoGatherHandle).
    if not strategy.offload.parameters:
        fixed |= _frozen(step, shards)
        fixed["weights" if shards > 1 else "gathered weights"] = width * parameters / shards
    on_gpu = 1 - strategy.offload.share
    fixed["master weights"] = 4 * parameters / shards * on_gpu  # fp32_partitioned_groups_flat
    fixed["optimizer"] = 8 * parameters / shards * on_gpu
    # grad_partitions_flat_buffer: lies where the optimizer does.
    fixed["gradients"] = width * parameters / shards if on_gpu else 0
    if 0 < on_gpu < 1:  # the fp32 gradients of the GPU's part were measured beside it
        fixed["gradients"] += 4 * parameters / shards * on_gpu
    return [{**fixed, "activations": _activations(step)}]


def _fsdp(step: dict[str, Any], strategy: Strategy) -> list[Terms]:
    """FSDP2, and FSDP1, which is within 2 % of it.

    Source: torch/distributed/fsdp/_fully_shard: _fsdp_param.py (fp32 shards; gathered in param_dtype), _fsdp_state.py
    (the root unit stays gathered; the block needed next is gathered early), _fsdp_param_group.py, post_backward
    (without gradient synchronisation, as between the Trainer's micro-batches, whole gradients accumulate).
    """
    parameters, width, shards = step["trained"]["parameters"], strategy.width, strategy.shards
    freed = weight_bytes(step, width, of_block=True) * (step["blocks"] - 1) if strategy.reshards else 0
    fixed: Terms = {"gathered weights": weight_bytes(step, width) - freed}
    if not strategy.config.get("cpu_offload"):
        fixed |= _frozen(step, shards)
        fixed["weights"] = 4 * parameters / shards
        fixed["optimizer"] = strategy.moment_bytes * parameters / shards
    moments = []
    for part in step["parts"]:
        ready = part["gradient_bytes"] / width
        now = {**fixed, "activations": part["peak_bytes"], "gradients": 4 * ready / shards}
        moments.append(now)
        if strategy.accumulation > 1:
            moments.append({**now, "gradients": width * parameters})
    return moments


# By sharding the moments at which most can be allocated.
_MOMENTS = {"none": _replicated, "ddp": _replicated, "zero0": _zero0, "zero1": _zero12, "zero2": _zero12}
_MOMENTS |= {"zero3": _zero3, "fsdp1": _fsdp, "fsdp2": _fsdp}


# ---- beside the allocated tensors ----


_OF_ZERO, _OF_FSDP = ("new_states", "streams"), ("fsdp_shards", "blocks", "largest")
# By sharding what is made and freed in every step, by the names of terms.csv.
_BUFFERS = {"none": (), "ddp": ("ddp",), "zero0": _OF_ZERO, "zero1": ("zero1", *_OF_ZERO)}
_BUFFERS |= {"zero2": ("zero2", "largest", *_OF_ZERO), "zero3": ("zero3", "blocks", "largest", *_OF_ZERO)}
_BUFFERS |= {"fsdp1": ("fsdp1", *_OF_FSDP), "fsdp2": _OF_FSDP}


def reserved_work(workload: Workload, step: dict[str, Any], terms: Terms) -> dict[str, float]:
    """What PyTorch's allocator reserves: `allocated`, and gaps: `replayed`, or by the names of terms.csv. All MiB.

    On one GPU without DeepSpeed and torch.compile the allocations of a step were replayed in their order
    (workshop/simulate/allocator.py). Elsewhere the gaps that nothing fitted into are fitted: they grow with the
    activations, and with the buffers. Args: terms: of the allocated memory.
    """
    strategy, found, activations = workload.strategy, {"allocated": sum(terms.values())}, terms.get("activations", 0)
    if workload.plain and workload.filled == 1 and "gaps" in step:
        return found | {"replayed": step["gaps"]["added" if strategy.accumulation > 1 else "once"] / MIB}
    if workload.filled < 1:  # fitted to the one configuration that was measured, rung 3; left out in no check
        found["changing"] = activations
    updated, shards, width = step["trained"], strategy.shards, strategy.width
    parameters = updated["parameters"] / MIB
    # ZeRO-2 gathers nothing: its buffers are of what is trained.
    largest = (updated if strategy.sharding == "zero2" else step)["largest_parameter"]
    states = 8 * parameters / shards * (1 - strategy.offload.share)
    sizes = dict.fromkeys(("ddp", "zero3", "fsdp1"), width * parameters) | {
        "zero1": width * parameters / shards if shards > 1 else 0,  # one GPU gathers no updated weights
        "zero2": width * parameters / shards,
        "fsdp_shards": 4 * parameters / shards,
        "blocks": weight_bytes(step, width, of_block=True) / MIB,
        "largest": width * largest / MIB,
        # The first step makes the moments; at most all of what was freed before cannot hold them.
        "new_states": min(states, activations),
        "streams": 1,
    }
    return found | {"activations": activations} | {name: sizes[name] for name in _BUFFERS[strategy.sharding]}


def cuda_context(found: CudaContext, workload: Workload) -> tuple[float, float, float]:
    """CUDA's and NCCL's own memory, which nvidia-smi counts beside PyTorch's: least, median, largest (MiB)."""
    return next(found[name] for name in context_groups(workload) if name in found)


def context_groups(workload: Workload) -> tuple[str, str, str]:
    """Groups of configurations with equal memory of CUDA and NCCL, the nearest first."""
    strategy, gpus = workload.strategy, "several GPUs"
    if strategy.world_size == 1:
        gpus = "one GPU"
    elif workload.nodes == strategy.world_size:  # nodes of several GPUs also have NCCL's buffers of a node
        gpus = "several nodes"
    # Hybrid sharding has groups of ranks beside the world, each with NCCL's own buffers.
    hybrid = " hybrid" if strategy.config.get("dp_replicate_size", 1) > 1 else ""
    return f"{strategy.sharding}{hybrid}, {gpus}", gpus, "all"


def cpu_work(workload: Workload, step: dict[str, Any]) -> dict[str, float]:
    """What takes the CPU memory of a run's fullest node, by the names of terms.csv."""
    strategy, ranks, parameters = workload.strategy, workload.ranks_per_node, step["trained"]["parameters"]
    found: dict[str, float] = {"processes": ranks}
    several = strategy.world_size > 1 or workload.family == "fsdp"  # FSDP opens NCCL's group on one GPU, too
    if several:
        found["several"] = ranks
    # Once on a node: what starts the ranks. LoRA's exercise starts DeepSpeed's by torchrun, too.
    if workload.family == "zero" and "adapter_rank" not in workload.shape:
        found["deepspeed"] = 1
    elif several:
        found["torchrun"] = 1
    if workload.compiles:
        pool = min(_MOST_COMPILERS, _CORES_PER_GPU * ranks)
        found |= {"compilers": ranks * pool} | ({"workers": ranks} if workload.data_workers else {})
    if share := strategy.offload.share:
        copies = strategy.world_size / strategy.shards
        found[f"{workload.family}_offload"] = parameters / MIB * copies / workload.nodes * share
    elif strategy.sharding == "zero3":  # DeepSpeed's defragment makes one piece of a rank's shard there: zero/utils.py
        found["defragmented"] = strategy.width * parameters / MIB / workload.nodes
    return found | {"saved": saved_bytes(workload) * parameters / MIB}


def before_training(workload: Workload, step: dict[str, Any]) -> tuple[float, float]:
    """Bytes of all weights in the CPU memory of a node, and on a GPU, before they are sharded, cast or quantized.

    Pretrained ones, and those that are sharded part by part, lie in CPU memory first. Other random ones are drawn on
    the GPU: workshop/training/models.py, load_model. Under ZeRO-3 rank 0 alone copies them from the file, a layer at a
    time, and a random model is made sharded.
    """
    strategy, whole, parameters = workload.strategy, workload.shape.get("four_bits"), step["parameters"]
    weights = (2 if "frozen" in step else strategy.weight_bytes) * parameters
    by_parts = workload.layout or (workload.family == "fsdp" and not whole)
    if not (workload.pretrained or by_parts):
        return 0, 0 if strategy.sharding == "zero3" else weights
    sent = strategy.sharding == "fsdp2" and strategy.config.get("cpu_ram_efficient_loading") and not whole
    rank_0_alone = sent or strategy.sharding == "zero3"
    return weights * (1 if rank_0_alone else workload.ranks_per_node), 0


def saved_bytes(workload: Workload) -> float:
    """What a save holds in the fullest node's CPU memory at once, per trained parameter.

    Weights are 4 bytes: safetensors makes all of them bytes before it writes, and FSDP gathers them on rank 0. Then it
    copies the two moments: gathered all, sharded the node's.
    """
    config, moments = workload.strategy.config, 0.0
    if workload.save in ("steps", "epoch") and workload.family == "fsdp":
        moments = 8 / (workload.nodes if config.get("state_dict_type") == "SHARDED_STATE_DICT" else 1)
    return max(workload.strategy.weight_bytes * (workload.save != "no"), moments)
