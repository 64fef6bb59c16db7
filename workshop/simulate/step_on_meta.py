"""A training step without a GPU and without weights: how many bytes its tensors take, and what it computes.

`python -m workshop.simulate.step_on_meta` reads steps and prints what they need, as lines of JSON. The "meta" device
runs the model's own code, its autograd graph included, on tensors that have shapes and no numbers: seconds for a model
of 7 billion parameters. `tools/plan/` starts this in a process of its own and adds what a strategy keeps beside it.

Parameters and their gradients are not counted: where they lie is the strategy's matter. Everything else is:
activations, logits, copies of weights in half precision, temporaries of single operations.
"""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from workshop.kernels.fast_models.loss import LossHead
from workshop.record.errors import InputError
from workshop.simulate.adapters_on_meta import frozen_bytes, numbers, with_adapters
from workshop.simulate.all_blocks import cut, kinds_of, operations_of_all, parts_of_all
from workshop.simulate.allocator import gaps
from workshop.simulate.fake_cuda import HALF, OnCuda, mimic_cuda
from workshop.simulate.tensor_bytes import Tracker, memory_of
from workshop.training.models import blocks_of, shape_config

# By LossHead, as in further/dimensions/, whose rows are whole: without a mask.
_RECOMPUTED = "recomputed"


@dataclass(frozen=True)
class StepShape:
    """The facts that decide a step's memory and operations.

    Attributes:
        model_name: a shape of workshop/training/models.py, or a model type that `module` registers, in `sizes`.
        engine: "autocast", fp32 weights and mixed precision per operation, as the Trainer alone and DDP; "half", a
            model in `precision` throughout, as DeepSpeed's and what FSDP gathers.
        precision: fp32, fp16, bf16.
        weights: what is trained under autocast: fp32, or bf16 (WEIGHTS=bf16).
        labelled: positions with logits per micro-batch; 0: all.
        fast, attention, loss, loss_chunk, stream, packing, compile: the speed ladder's switches.
        ddp_bucket_mib: of DDP, which cuts compiled blocks where its buckets end; 0: no DDP.
        short_rows: of an epoch's last micro-batch, which runs uncompiled (fast_models/compilation.py); 0: none.
        adapter_rank: of LoRA's adapters beside a frozen model in half precision; 0: all weights are trained.
        adapter_targets: the ends of their layers' names, with commas; empty: all linear ones of the blocks.
        four_bits: the frozen linear layers of the blocks are in NF4 (QLoRA).
    """

    model_name: str
    batch_size: int
    max_length: int
    engine: str = "autocast"
    precision: str = "fp16"
    weights: str = "fp32"
    gradient_checkpointing: bool = False
    fast: bool = False
    attention: str = "eager"
    loss: str = "full"
    loss_chunk: int = 0
    stream: str = "fp32"
    packing: bool = False
    labelled: int = 0
    compile: bool = False
    ddp_bucket_mib: int = 0
    short_rows: int = 0
    adapter_rank: int = 0
    adapter_dropout: float = 0
    adapter_targets: str = ""
    four_bits: bool = False
    module: str = ""
    sizes: dict[str, int] = field(default_factory=dict)

    half = property(lambda self: HALF.get(self.precision, torch.float32))
    # Autocast's type; None: it is off.
    autocast = property(lambda self: HALF.get(self.precision) if self.engine == "autocast" else None)
    # The type of the weights that are trained.
    trained = property(lambda self: self.half if "half" in self.engine or self.weights != "fp32" else torch.float32)


def build(shape: StepShape) -> torch.nn.Module:
    """The model, without weights and with all its blocks."""
    dtype = shape.half if shape.adapter_rank else shape.trained
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(_config(shape), dtype=dtype)
    model.config.use_cache = False  # as the Trainer sets it: keys and values are not kept a second time
    model.train()
    return model


def prepare(model: torch.nn.Module, shape: StepShape) -> torch.nn.Module:
    """The model with the shape's switches: checkpointing, the ladder's, adapters."""
    if shape.gradient_checkpointing:
        again = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), OnCuda(shape.autocast))}
        model.gradient_checkpointing_enable(again)
    if shape.fast:
        from workshop.kernels import fast_models

        if reason := _why_no_rung(model.config.model_type, shape.model_name, shape.max_length):
            raise InputError(reason)
        fast_models.use_fast_forward(model)
        model.use_kernel(shape.attention)
        fast_models.use_loss(model, "full" if shape.loss == "full" else "chunked", shape.loss_chunk)
        fast_models.use_residual_dtype(blocks_of(model), shape.stream)
    if shape.loss == _RECOMPUTED:
        head = model.get_output_embeddings()
        head.__class__, head.chunk = LossHead, shape.loss_chunk
        head.loss_sum = OnCuda(shape.autocast)(head.loss_sum)  # also where the backward pass calls it again
    if shape.adapter_rank:
        adapters = (shape.adapter_rank, shape.adapter_dropout, shape.adapter_targets)
        model = with_adapters(model, *adapters, shape.four_bits, shape.trained)
    return model


@cache
def _why_no_rung(kind: str, model_name: str, max_length: int) -> str:
    """Why the speed ladder refuses the model; "" if it does not. All its kernels compute what sdpa does."""
    from workshop.kernels.fast_models import FAMILIES, difference, packed_with

    if kind in FAMILIES:
        return ""
    reason = difference(shape_config(model_name), max_length, packed_with("sdpa", "chunked"), "cpu")
    return reason and f"{kind}: the ladder's kernels would train another model ({reason})"


def _config(shape: StepShape) -> Any:
    if not shape.module:
        return shape_config(shape.model_name)
    import_module(shape.module)  # registers its classes
    return AutoConfig.for_model(shape.model_name, **shape.sizes)


def batch(shape: StepShape, model_type: str) -> dict[str, torch.Tensor]:
    """A micro-batch as the collator makes it."""
    ids = torch.zeros(shape.batch_size, shape.max_length, dtype=torch.long, device="meta")
    found = {"input_ids": ids, "labels": torch.zeros_like(ids), "attention_mask": torch.ones_like(ids)}
    if model_type not in ("bloom", "simple-gpt"):
        # transformers looks into a flat mask, which has no numbers here; it would make this one of it.
        square = (shape.batch_size, 1, shape.max_length, shape.max_length)
        found["attention_mask"] = torch.ones(square, dtype=torch.bool, device="meta")
    if model_type == "opt":
        found["position_ids"] = ids  # which it would count by a flat mask
    if shape.loss == _RECOMPUTED:
        del found["attention_mask"]
    if shape.packing:
        found["document_ids"] = torch.zeros_like(ids)
    if shape.labelled:
        found["target_positions"] = torch.zeros(shape.labelled, dtype=torch.long, device="meta")
    return found


def simulate(shape: StepShape) -> dict[str, Any]:
    """Parts of one micro-batch's forward and backward pass, parameters' sizes, and operations by class.

    gaps: what PyTorch reserves beside it on one GPU, for one micro-batch per step and for several.
    Operations of compiled blocks are taken from eager ones. The parts of a shorter last micro-batch follow those of a
    usual one. Of the blocks between the first and the last one of each kind is simulated, and counted as often as the
    model has it.
    """
    model = build(shape)
    kinds, order = kinds_of(model), cut(model)
    model = prepare(model, shape)
    blocks = blocks_of(model)
    inside = {id(one) for one in blocks.parameters()}
    of_blocks = [one for number in order for one in blocks[number].parameters()]
    parameters = [one for one in model.parameters() if id(one) not in inside] + of_blocks
    modules = [*{*model.modules()} - {*blocks.modules()}]
    modules += [module for number in order for module in blocks[number].modules()]
    usual = _micro_batch(model, shape)
    micro_batches = _compiled_micro_batches(model, shape) if shape.compile else [usual]
    parts = [parts_of_all(one.parts, order, kinds) for one in micro_batches]
    found = {
        "parts": [moment for one in parts for moment in memory_of(one)],
        "blocks": len(order),
        **_sizes(parameters, of_blocks, len(order)),
        "parameter_modules": sum(any(True for _ in one.parameters(recurse=False)) for one in modules),
        "operations": operations_of_all(usual.operations, order),
    }
    if shape.adapter_rank:
        trained, trained_of_blocks = ([one for one in some if one.requires_grad] for some in (parameters, of_blocks))
        found["trained"] = _sizes(trained, trained_of_blocks, len(order))
        found["frozen"] = frozen_bytes(parameters, of_blocks, len(order))
    if shape.engine == "autocast" and not shape.compile:
        events = [event for part in parts[0] for event in part.events]
        weights = [(one.nbytes, one.requires_grad) for one in parameters]
        found["gaps"] = {"once": gaps(events, weights, 1), "added": gaps(events, weights, 2)}
    return found


def _sizes(parameters: list[torch.nn.Parameter], of_blocks: list[torch.nn.Parameter], blocks: int) -> dict[str, int]:
    sizes = [numbers(one) for one in parameters]
    return {
        "parameters": sum(sizes),
        "block_parameters": sum(map(numbers, of_blocks)) // blocks,
        "largest_parameter": max(sizes),
        "parameter_tensors": len(sizes),
    }


def _micro_batch(model: torch.nn.Module, shape: StepShape) -> Tracker:
    """What a tracker sees of its forward and backward pass."""
    tracker = Tracker()
    for tensor in (*model.parameters(), *model.buffers()):
        tracker.ignore(tensor)
    with _hooks(tracker, model), tracker, mimic_cuda(shape.autocast, shape.loss, shape.fast):
        tracker.begin("forward", "embedding")
        inputs = batch(shape, model.config.model_type)
        with OnCuda(shape.autocast):
            if shape.loss == _RECOMPUTED:
                model.get_output_embeddings().targets = inputs.pop("labels")
                loss = model(**inputs).logits
            else:
                loss = model(**inputs).loss
        tracker.begin("backward", "head")
        loss.backward()
        del loss, inputs
    return tracker


def _compiled_micro_batches(model: torch.nn.Module, shape: StepShape) -> list[Tracker]:
    """One with compiled blocks, which stay in the model, and a shorter last one, uncompiled."""
    from workshop.simulate.compiled_on_meta import compile_blocks  # the compiler: seconds to import

    blocks, uncompiled = blocks_of(model), []
    if shape.short_rows:
        labelled = shape.labelled * shape.short_rows // shape.batch_size
        short = replace(shape, batch_size=shape.short_rows, labelled=labelled)
        uncompiled = [_micro_batch(model, short)]
    calls: list[tuple[Any, Any]] = []  # of the last block: its input has a gradient, also after a frozen embedding
    hook = blocks[-1].register_forward_pre_hook(lambda _, *call: calls.append(call), with_kwargs=True)
    with mimic_cuda(shape.autocast, shape.loss, shape.fast):
        with OnCuda(shape.autocast):
            model(**batch(shape, model.config.model_type))
        hook.remove()
        kinds = kinds_of(model)
        for kind in dict.fromkeys(kinds):
            equal = [block for block, own in zip(blocks, kinds, strict=True) if own == kind]
            compile_blocks(equal, *calls[0], shape.autocast, shape.ddp_bucket_mib << 20)
    return [_micro_batch(model, shape), *uncompiled]


@contextmanager
def _hooks(tracker: Tracker, model: torch.nn.Module) -> Iterator[None]:
    """Begin a part wherever the computation enters a block, or the gradient leaves one, and take each gradient."""
    blocks, backward = blocks_of(model), False

    def take(parameter: torch.Tensor) -> None:
        tracker.keep(parameter.grad)
        parameter.grad = None

    def gradient_at(unit: str, _: torch.Tensor) -> None:
        nonlocal backward
        backward = True
        tracker.begin("backward", unit)

    def enter(number: int, _: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        if not backward:
            tracker.begin("forward", str(number))
            if number == 0 and arguments[0].requires_grad:
                arguments[0].register_hook(partial(gradient_at, "embedding"))

    def leave(number: int, _: torch.nn.Module, arguments: Any, result: Any) -> None:
        if not backward:
            out = result if isinstance(result, torch.Tensor) else result[0]
            out.register_hook(partial(gradient_at, str(number)))
            if number == len(blocks) - 1:
                tracker.begin("forward", "head")

    handles = [block.register_forward_pre_hook(partial(enter, n)) for n, block in enumerate(blocks)]
    handles += [block.register_forward_hook(partial(leave, n)) for n, block in enumerate(blocks)]
    handles += [one.register_post_accumulate_grad_hook(take) for one in model.parameters() if one.requires_grad]
    yield
    for handle in handles:
        handle.remove()


def main() -> None:
    """A StepShape as JSON on each line of standard input; on each line of standard output what it needs, or `error`.

    Two processes work side by side. They are forked once all is imported, which takes as long as 20 steps.
    """
    shapes = [json.loads(line) for line in sys.stdin]
    if any(shape.get("adapter_rank") for shape in shapes):
        import_module("peft")
    if any(shape.get("compile") for shape in shapes):
        import_module("workshop.simulate.compiled_on_meta")
    with ProcessPoolExecutor(min(2, len(shapes)), get_context("fork")) as pool:
        for found in pool.map(answer, shapes):
            print(json.dumps(found), flush=True)


def answer(shape: dict[str, Any]) -> dict[str, Any]:
    """What the step needs, or `error`: also of a model whose own code fails without numbers."""
    try:
        return simulate(StepShape(**shape))
    except InputError as error:
        return {"error": str(error)}
    except Exception as error:
        what = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        return {"error": f"MODEL_NAME='{shape['model_name']}': its step cannot be simulated: {what}"}


if __name__ == "__main__":
    main()
