"""A training step without a GPU and without weights: how many bytes its tensors take, and what it computes.

`python -m workshop.step_on_meta` reads steps and prints what they need, both as lines of JSON. PyTorch's "meta" device
runs the model's own code, its autograd graph included, on tensors that have shapes and no numbers: seconds for a model
of 7 billion parameters. `tools/plan/` starts this in a process of its own and adds what a strategy keeps beside it.

Parameters and their gradients are not counted: where they lie is the strategy's matter. Everything else is:
activations, logits, copies of weights in half precision, temporaries of single operations.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from workshop.cuda_on_meta import HALF, Autocast, CudaKernels, answers_of_cuda
from workshop.errors import WorkshopError
from workshop.models import blocks_of, shape_config
from workshop.tensor_bytes import Tracker

# How much less a block compiled by torch.compile keeps for its backward pass than the same block uncompiled, under
# autocast: bytes per token and hidden size. A model in half precision throughout keeps the same either way.
# Fitted to peak_mem_alloc_mib of rungs 6 to 11 of logs/reference (bloom-560m and 1b7, 16 to 64 rows): exact to 0.2 %.
COMPILED_KEEPS_LESS = {"fp32": 2, "bf16": 4}  # by the type of the residual


@dataclass(frozen=True)
class StepShape:
    """What decides how much a step keeps in memory.

    Attributes:
        model_name: a shape of workshop/models.py, or a model type that `module` registers, in `sizes`.
        engine: "autocast", fp32 weights and mixed precision per operation, as the Trainer alone and DDP; "half", a
            model in `precision` throughout, as DeepSpeed's and what FSDP gathers.
        precision: fp32, fp16, bf16.
        labelled: positions with logits per micro-batch; 0: all.
        fast, attention, loss, loss_chunk, stream, packing, compile: the speed ladder's switches.
    """

    model_name: str
    batch_size: int
    max_length: int
    engine: str = "autocast"
    precision: str = "fp16"
    gradient_checkpointing: bool = False
    fast: bool = False
    attention: str = "eager"
    loss: str = "full"
    loss_chunk: int = 0
    stream: str = "fp32"
    packing: bool = False
    labelled: int = 0
    compile: bool = False
    module: str = ""
    sizes: dict[str, int] = field(default_factory=dict)


def build(shape: StepShape) -> torch.nn.Module:
    """The model, without weights."""
    dtype = torch.float32 if shape.engine == "autocast" else HALF.get(shape.precision, torch.float32)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(_config(shape), dtype=dtype)
    model.config.use_cache = False  # as the Trainer sets it: keys and values are not kept a second time
    model.train()
    if shape.gradient_checkpointing:
        again = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), _as_on_cuda(shape))}
        model.gradient_checkpointing_enable(again)
    if shape.fast:
        from workshop import fast_bloom

        fast_bloom.use_fast_forward(model)
        fast_bloom.use_attention(model, "sdpa" if shape.attention == "flex" else shape.attention)
        fast_bloom.use_loss(model, "chunked" if shape.loss == "liger" else shape.loss, shape.loss_chunk)
        fast_bloom.use_residual_dtype(model, shape.stream)
    return model


def _config(shape: StepShape) -> Any:
    if not shape.module:
        return shape_config(shape.model_name)
    import_module(shape.module)  # registers its classes
    return AutoConfig.for_model(shape.model_name, **shape.sizes)


def batch(shape: StepShape) -> dict[str, torch.Tensor]:
    """A micro-batch as the collator makes it."""
    ids = torch.zeros(shape.batch_size, shape.max_length, dtype=torch.long, device="meta")
    found = {"input_ids": ids, "labels": torch.zeros_like(ids), "attention_mask": torch.ones_like(ids)}
    if _config(shape).model_type not in ("bloom", "simple-gpt"):
        # transformers looks into a flat mask, which has no numbers here; it would make this one of it.
        square = (shape.batch_size, 1, shape.max_length, shape.max_length)
        found["attention_mask"] = torch.ones(square, dtype=torch.bool, device="meta")
    if shape.packing:
        found["document_ids"] = torch.zeros_like(ids)
    if shape.labelled:
        found["target_positions"] = torch.zeros(shape.labelled, dtype=torch.long, device="meta")
    return found


def simulate(shape: StepShape) -> dict[str, Any]:
    """Parts of one micro-batch's forward and backward pass, parameters' sizes, and operations by class."""
    model = build(shape)
    tracker = Tracker()
    parameters = list(model.parameters())
    for tensor in (*parameters, *model.buffers()):
        tracker.ignore(tensor)
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(_take_gradient(tracker))
    blocks = list(blocks_of(model))
    autocast = _autocast(shape)
    less_bytes = _compiled_keeps_less(shape, model.config.hidden_size) if autocast and shape.compile else 0
    with _marks(tracker, blocks, less_bytes), tracker, answers_of_cuda(autocast, shape.loss):
        tracker.begin("forward", "embedding")
        inputs = batch(shape)
        with _as_on_cuda(shape):
            loss = model(**inputs).loss
        tracker.begin("backward", "head")
        loss.backward()
        del loss, inputs
    tracker.end()
    return {
        "parts": [asdict(part) for part in tracker.parts],
        "parameters": sum(parameter.numel() for parameter in parameters),
        "block_parameters": sum(parameter.numel() for parameter in blocks[0].parameters()),
        "blocks": len(blocks),
        "largest_parameter": max(parameter.numel() for parameter in parameters),
        "operations": tracker.operations,
    }


def _autocast(shape: StepShape) -> torch.dtype | None:
    return HALF.get(shape.precision) if shape.engine == "autocast" else None


@contextmanager
def _as_on_cuda(shape: StepShape) -> Iterator[None]:
    """For a forward pass; with checkpointing the backward pass enters it again for every block."""
    autocast = _autocast(shape)
    with CudaKernels(shape.attention), Autocast(autocast) if autocast else nullcontext():
        yield


def _compiled_keeps_less(shape: StepShape, hidden_size: int) -> int:
    return COMPILED_KEEPS_LESS[shape.stream] * shape.batch_size * shape.max_length * hidden_size


def _take_gradient(tracker: Tracker) -> Callable[[torch.Tensor], None]:
    def take(parameter: torch.Tensor) -> None:
        tracker.gradient_bytes += parameter.grad.numel() * parameter.grad.element_size()
        parameter.grad = None

    return take


@contextmanager
def _marks(tracker: Tracker, blocks: list[torch.nn.Module], less_bytes: int) -> Iterator[None]:
    """Begins a part wherever the computation enters a block, or the gradient leaves one.

    Args: less_bytes: how much less than seen a block keeps between its forward and its backward pass.
    """
    backward = False

    def gradient_at(unit: str) -> Callable[[torch.Tensor], None]:
        def mark(_: torch.Tensor) -> None:
            nonlocal backward
            backward = True
            if unit != "embedding":
                tracker.correct(less_bytes)
            tracker.begin("backward", unit)

        return mark

    def enter(number: int) -> Callable[..., None]:
        def hook(_: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
            if not backward:
                tracker.begin("forward", str(number))
                if number == 0 and arguments[0].requires_grad:
                    arguments[0].register_hook(gradient_at("embedding"))

        return hook

    def leave(number: int) -> Callable[..., None]:
        def hook(_: torch.nn.Module, arguments: Any, result: Any) -> None:
            if not backward:
                out = result if isinstance(result, torch.Tensor) else result[0]
                out.register_hook(gradient_at(str(number)))
                tracker.correct(-less_bytes)
                if number == len(blocks) - 1:
                    tracker.begin("forward", "head")

        return hook

    handles = [block.register_forward_pre_hook(enter(n)) for n, block in enumerate(blocks)]
    handles += [block.register_forward_hook(leave(n)) for n, block in enumerate(blocks)]
    yield
    for handle in handles:
        handle.remove()


def main() -> None:
    """A StepShape as JSON on each line of standard input, what it needs on each line of standard output."""
    for line in sys.stdin:
        try:
            print(json.dumps(simulate(StepShape(**json.loads(line)))), flush=True)
        except WorkshopError as error:
            sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
