"""A CUDA graph of a micro-batch: one call launches all kernels of its forward and backward pass.

The GPU ends the kernels of a small model sooner than Python launches them. A graph is a list of them with the addresses
that they read and write. So the batch is copied to fixed addresses, and the gradients keep theirs. A step of one
micro-batch writes them anew. With accumulation the backward pass adds to them, and `zero_grad` zeroes them in place.
"""

from functools import partial

import torch
from transformers import Trainer

from workshop.data.encoding import IGNORE

WARM_UP = 3  # micro-batches before the graph is recorded: they compile, and libraries take their workspaces


def use_graph(trainer: Trainer) -> None:
    """Let the Trainer of one GPU record a micro-batch's graph, and replay it for all batches of its shape."""
    per_row = sorted(sum(label != IGNORE for label in row["labels"]) for row in trainer.train_dataset)
    most_targets = sum(per_row[-trainer.args.per_device_train_batch_size :])
    trainer.training_step = GraphedStep(trainer, most_targets)


class GraphedStep:
    """The Trainer's `training_step`. Batches of another shape, as an epoch's last, run as usual."""

    def __init__(self, trainer: Trainer, most_targets: int) -> None:
        self.trainer, self.usual, self.most_targets = trainer, trainer.training_step, most_targets
        self.batch: dict[str, torch.Tensor] = {}  # at the addresses that the graph reads
        self.items: torch.Tensor | None = None  # targets of all micro-batches of the step
        self.loss: torch.Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.steps = 0

    def __call__(
        self, model: torch.nn.Module, inputs: dict[str, torch.Tensor], num_items_in_batch: torch.Tensor | int
    ) -> torch.Tensor:
        """Return the micro-batch's loss after its backward pass, as the Trainer's own does."""
        if not self.batch:
            self._take_addresses(inputs)
        if not self._fits(inputs):
            if self.graph and self._writes_anew:
                self.trainer.optimizer.zero_grad(set_to_none=False)
            return self.usual(model, inputs, num_items_in_batch)
        self._fill(inputs, num_items_in_batch)
        self.steps += 1
        if self.steps <= WARM_UP:
            return self.usual(model, self.batch, self.items)
        if self.graph is None:
            self._record(model)
        self.graph.replay()
        return self.loss.clone()

    def _take_addresses(self, inputs: dict[str, torch.Tensor]) -> None:
        device = self.trainer.args.device
        self.batch = {name: of_batch.to(device, copy=True) for name, of_batch in inputs.items()}
        if "target_positions" in inputs:
            self.batch["target_positions"] = torch.empty(self.most_targets, dtype=torch.int64, device=device)
        self.items = torch.zeros((), dtype=torch.int64, device=device)

    def _fits(self, inputs: dict[str, torch.Tensor]) -> bool:
        """Whether the batch has the recorded shape; the number of targets is filled up to the data's largest."""
        shapes = {name: of_batch.shape for name, of_batch in inputs.items() if name != "target_positions"}
        return all(self.batch[name].shape == shape for name, shape in shapes.items())

    def _fill(self, inputs: dict[str, torch.Tensor], items: torch.Tensor | int) -> None:
        for name, fixed in self.batch.items():
            if name == "target_positions":
                # A row's last position never has a target, so what is filled up adds nothing to the loss.
                fixed.fill_(inputs["labels"].shape[1] - 1)
                fixed[: len(inputs[name])].copy_(inputs[name], non_blocking=True)
            else:
                fixed.copy_(inputs[name], non_blocking=True)
        self.items.copy_(torch.as_tensor(items))

    @property
    def _writes_anew(self) -> bool:
        """Whether a step is one micro-batch: adding to zeros would read and write all gradients once more."""
        return self.trainer.args.gradient_accumulation_steps == 1

    def _record(self, model: torch.nn.Module) -> None:
        """Record the usual step, which does not run meanwhile."""
        if self._writes_anew:
            self.trainer.optimizer.zero_grad(set_to_none=True)  # the recorded backward pass makes them
            model.zero_grad = lambda: None
        else:
            for parameter in model.parameters():
                if parameter.requires_grad and parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            model.zero_grad = partial(self.trainer.optimizer.zero_grad, set_to_none=False)
        torch.cuda.empty_cache()  # the graph's memory is its own: what the warm-up has used is free for it
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):  # other threads load data meanwhile
            self.loss = self.usual(model, self.batch, self.items)
