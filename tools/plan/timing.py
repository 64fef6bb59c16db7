"""How long an optimizer step takes, and the job beside its steps: what is counted, times fitted constants.

    step = (gpu^p + host^p)^(1/p) + gaps + network + offload

GPU and host work in parallel: the host launches what the GPU computes, and the longer of the two decides. `p` says how
well they overlap (infinite: the step is the longer one). Non-overlapped work is added: gaps between steps, the wait for
other GPUs, the CPU's optimizer and copies over PCIe.

A step of a small model is host-bound: its kernels take microseconds, a launch from Python takes 20 to 40. Then the
CPU decides, not the GPU: the reference runs' hosts differ by up to 2 times in the same step.
"""

from dataclasses import dataclass
from typing import Any

from tools.logs.communication import messages_of
from tools.plan.constants import FORMULAS, Constants
from tools.plan.gpus import Gpu
from tools.plan.memory import kept_bytes, weight_bytes
from tools.plan.workload import Strategy, Workload
from workshop.settings.offload import moved_bytes

_TERMS = FORMULAS["step_time_s"]
_ADAM_BYTES, _ADDED_BYTES = 40, 12  # of fp32: the update; a gradient added to another


@dataclass(frozen=True)
class StepTime:
    """A step's parts (s)."""

    gpu: Any
    host: Any
    gaps: Any
    network: Any
    offload: Any
    total: Any

    @property
    def decided_by(self) -> str:
        """What takes longest: the gpu, the host that launches, the network, or what is offloaded to the CPU."""
        return max(("gpu", "host", "network", "offload"), key=lambda part: getattr(self, part))


def step_time(work: dict[str, Any], constants: Constants) -> StepTime:
    """Args: work: of a step (`work_of`), or an array of each kind for many steps."""

    def part(name: str) -> Any:
        return sum(work.get(key, 0.0) * constants[key] for key, term in _TERMS.items() if term.part == name)

    gpu, host, *others = map(part, ("gpu", "host", "gaps", "network", "offload"))
    p = constants["p"]
    return StepTime(gpu, host, *others, total=(gpu**p + host**p) ** (1 / p) + sum(others))


def work_of(workload: Workload, step: dict[str, Any], gpu: Gpu) -> dict[str, float]:
    """What is to be done in an optimizer step on one rank, by the names of terms.csv. Args: step: as simulated.

    Raises InputError if the GPU does not have the run's precision.
    """
    strategy, bandwidth = workload.strategy, gpu.memory_gb_per_s * 1e9
    found = _computed(workload, step, gpu) | _STATES[strategy.sharding](strategy, step, bandwidth) | {"steps": 1}
    if strategy.moment_bytes < 2 * strategy.weight_bytes:
        found["eight_bit_updates"] = step["trained"]["parameter_tensors"]
    if "cpu_adam" in found and strategy.sharding == "zero3" and workload.shape["precision"] == "fp16":
        found["cpu_overflow"] = found["cpu_adam"]
    in_node, between_nodes = traffic(workload, step)
    found |= {"link": in_node / (gpu.link_gb_per_s * 1e9), "fabric": between_nodes / (workload.fabric_gb_per_s * 1e9)}
    if strategy.offload.share:
        moved, pageable = _moved_bytes(strategy, step["trained"]["parameters"] / strategy.shards)
        found |= {"pcie": moved / (gpu.host_gb_per_s * 1e9), "unpinned": pageable / (gpu.host_gb_per_s * 1e9)}
    return found


def _computed(workload: Workload, step: dict[str, Any], gpu: Gpu) -> dict[str, float]:
    """Kernels of all forward and backward passes; blocks under torch.compile launch none of their own."""
    shape, accumulation, precision = workload.shape, workload.strategy.accumulation, workload.shape["precision"]
    bandwidth = gpu.memory_gb_per_s * 1e9 / workload.filled

    def count(what: str, *classes: str, places: tuple[str, ...] = ("blocks", "outside")) -> float:
        return accumulation * sum(
            found[what] for place in places for name, found in step["operations"][place].items() if name in classes
        )

    def seconds(flops: float, precision: str) -> float:
        return flops / gpu.flops_per_s(precision) * workload.filled

    products = "matrix product", "unaligned product", "expert product", "fp32 product"
    found = {
        "unaligned_products": seconds(count("flops", "unaligned product"), "fp32"),
        "expert_products": seconds(count("flops", "expert product"), precision),
        "fp32_products": seconds(count("flops", "fp32 product"), "fp32"),
        "attention": seconds(count("flops", "attention"), precision) * workload.attention_share,
        "product_bytes": count("bytes", *products, "attention") / bandwidth,
        "dequantized_bytes": count("bytes", "dequantize") / bandwidth,
        "packed": accumulation * bool(shape.get("packing")),
    }
    products_s, alone = seconds(count("flops", "matrix product"), precision), ("blocks", "outside")
    if shape.get("compile"):
        alone = ("outside",)
        found["compiled_blocks"] = step["blocks"] * accumulation
    else:
        found["modules"] = step["parameter_modules"] * accumulation
    kind = "fp32_products" if precision == "fp32" else "half_products"
    found[kind] = found.get(kind, 0) + products_s
    found["other_bytes"] = count("bytes", "other", places=alone) / bandwidth
    found["launches"] = count("launches", *products, "attention", "other", "dequantize", places=alone)
    return found | ({"launches": accumulation, "compiled_blocks": 0, "packed": 0} if workload.cuda_graph else {})


def _adam(strategy: Strategy, step: dict[str, Any], bandwidth: float) -> dict[str, float]:
    """The update of a rank's shard, on the GPU and on the CPU. Args: bandwidth: of the GPU's memory (bytes/s)."""
    shard, on_cpu = step["trained"]["parameters"] / strategy.shards, strategy.offload.share
    moved = (_ADAM_BYTES + _ADDED_BYTES * (strategy.accumulation - 1)) * strategy.weight_bytes / 4
    found = {"adam_bytes": moved * shard * (1 - on_cpu) / bandwidth}
    return found | ({"cpu_adam": shard * on_cpu} if on_cpu else {})


def _trainer(strategy: Strategy, step: dict[str, Any], bandwidth: float) -> dict[str, float]:
    """One GPU and DDP."""
    return _adam(strategy, step, bandwidth) | {"updates": step["trained"]["parameter_tensors"]}


def _zero012(strategy: Strategy, step: dict[str, Any], bandwidth: float) -> dict[str, float]:
    tensors, found = step["trained"]["parameter_tensors"], _adam(strategy, step, bandwidth)
    if strategy.sharding != "zero0":
        found["zero_gradients"] = tensors * (strategy.accumulation if strategy.sharding == "zero2" else 1)
    return found if strategy.offload.share else found | {"deepspeed_updates": tensors / strategy.shards}


def _zero3(strategy: Strategy, step: dict[str, Any], bandwidth: float) -> dict[str, float]:
    found = _adam(strategy, step, bandwidth)
    gathers = 2 - kept_bytes(step, strategy) / weight_bytes(step, strategy.width)
    found["zero3_modules"] = step["parameter_modules"] * strategy.accumulation * gathers
    return found if strategy.offload.share else found | {"zero3_updates": step["trained"]["parameter_tensors"]}


def _fsdp(strategy: Strategy, step: dict[str, Any], bandwidth: float) -> dict[str, float]:
    """_fsdp_collectives.py casts a rank's shard into the message and copies the gathered one out, parameter by
    parameter; _fsdp_param.py adds up whole gradients between micro-batches."""
    updated, accumulation, width = step["trained"], strategy.accumulation, strategy.width
    shard, weights = updated["parameters"] / strategy.shards, weight_bytes(step, width)
    cast = (2 * weights + (4 - width) * updated["parameters"]) / strategy.shards
    gathers = accumulation * (2 if strategy.reshards else 1)
    copied = gathers * (cast + 2 * weights) + 3 * (accumulation - 1) * width * updated["parameters"]
    found = {"fsdp_updates": updated["parameter_tensors"], "gathered_bytes": copied / bandwidth}
    found["fsdp_tensors"] = step["parameter_tensors"] * gathers
    if not strategy.offload.share:
        return found | {"adam_bytes": _ADAM_BYTES * shard / bandwidth}
    found |= {"fsdp_cpu_adam": shard, "fsdp_cpu_tensors": step["parameter_tensors"] * accumulation}
    return found | ({"fsdp1_offload": shard} if strategy.sharding == "fsdp1" else {})


# By sharding what it does with states beside all forward and backward passes.
_STATES = {"none": _trainer, "ddp": _trainer, "zero0": _zero012, "zero1": _zero012, "zero2": _zero012}
_STATES |= {"zero3": _zero3, "fsdp1": _fsdp, "fsdp2": _fsdp}


def traffic(workload: Workload, step: dict[str, Any]) -> tuple[float, float]:
    """Bytes per step: what a rank sends in its node, what a node sends to the others.

    Without a layout by the formulas of tools/logs/communication.py: one ring, which a node leaves once.
    """
    strategy = workload.strategy
    if workload.layout:
        return workload.layout.traffic(step, workload.ranks_per_node)
    if strategy.world_size == 1:
        return 0, 0
    formula = {"zero0": "ddp", "fsdp1": "fsdp2"}.get(strategy.sharding, strategy.sharding)
    width = strategy.weight_bytes if strategy.sharding == "ddp" else strategy.width
    gradients, weights = width * step["trained"]["parameters"], weight_bytes(step, width)
    gathered = weights if formula in ("zero3", "fsdp2") else gradients
    if formula == "fsdp2" and strategy.reshards:
        # accelerate keeps what lies outside the blocks until the backward pass.
        gathered = (weights + step["blocks"] * weight_bytes(step, width, of_block=True)) / 2
    replicas = strategy.config.get("dp_replicate_size", 1)
    how = {
        "method": formula,
        "replicas": replicas,
        "reshard_after_forward": strategy.reshards,
        "kept": kept_bytes(step, strategy) / weights,
        # DeepSpeed 0.19's stage_1_and_2.py: each slice of a bucket is all-reduced, though one rank needs it.
        "all_reduces": True,
    }
    gathers, *others = messages_of(how, strategy.world_size, strategy.accumulation)
    if formula == "fsdp2" and workload.nodes > 1 and replicas % workload.nodes == 0:
        # HYBRID_SHARD: a copy lies in one node, whose ranks add up each shard in a ring of its own over the copies.
        scattered, added = others
        return gathers * gathered + scattered * gradients, added * strategy.world_size // replicas * gradients
    sent = gathers * gathered + sum(others) * gradients
    return (sent, 0) if workload.nodes == 1 else (0, sent)


def _moved_bytes(strategy: Strategy, shard: float) -> tuple[float, float]:
    """Between GPU and CPU in a step with offload: in all, and of that into or out of memory that is not pinned."""
    if strategy.sharding.startswith("fsdp"):  # brings fp32 weights for each pass
        return 4 * shard * (2 * strategy.accumulation + 1), 0
    moved, pageable = moved_bytes(strategy.config, shard, strategy.accumulation, strategy.width)
    return moved, pageable if strategy.offload.pinned else moved


def other_work(workload: Workload, step: dict[str, Any], step_s: float) -> dict[str, float]:
    """What a job does beside its optimizer steps, by the names of terms.csv. Args: step_s: of an optimizer step."""
    strategy, billions = workload.strategy, step["trained"]["parameters"] / 1e9
    return {
        "jobs": 1,
        "deepspeed": strategy.sharding.startswith("zero"),
        "compilations": workload.compiles,
        "made": billions * strategy.offload.share,
        "saved": billions * workload.saves,
        "evaluated": workload.evaluations * workload.eval_examples * step_s / workload.rows_per_step / 3,
    }
