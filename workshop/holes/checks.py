"""The holes of by-hand/holes: their inputs, and what a right function makes of them.

Gradients and norms are compared, not losses: a factor in a gradient hardly changes a loss.
"""

from collections.abc import Callable
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Ranks = list[list[Tensor]]  # for each rank its tensors
Sent = list[tuple[str, int, int]]  # kind of collective, bytes of a message, number of messages


class Hole:
    """A file with one function of the same name. Each has two methods more: `draw` gives the inputs of each rank,
    `call` on a rank what the function returns or changes.

    Attributes: name: of both; what: the name of the compared tensors; ranks: how many run it.
    """

    name: str
    what = "a gradient"
    ranks = 2

    def alone(self, inputs: Ranks) -> Ranks:
        """What `call` gives if nothing is communicated."""
        return inputs

    def right(self, inputs: Ranks) -> Ranks:
        """What `call` gives if the function is right."""
        return [[sum(tensors) for tensors in zip(*self.alone(inputs), strict=True)]] * self.ranks

    def judge_sent(self, inputs: list[Tensor], sent: Sent) -> str:
        """What is wrong with how a rank communicates, "" for nothing."""
        return ""

    def judge(self, inputs: Ranks, answers: list[dict[str, Any]]) -> str:
        """What is wrong with the ranks' answers, "" for nothing."""
        everything = zip(inputs, answers, self.right(inputs), self.alone(inputs), strict=True)
        for rank, (own, answer, right, alone) in enumerate(everything):
            if wrong := self.judge_sent(own, answer["sent"]):
                return f"rank {rank} {wrong}"
            for found, expected, without in zip(answer["found"], right, alone, strict=True):
                if wrong := self.difference(torch.tensor(found), expected, without):
                    return f"{self.what} on rank {rank} {wrong}"
        return ""

    def difference(self, found: Tensor, expected: Tensor, without: Tensor) -> str:
        """How `found` differs from `expected`, "" if not; `without`: what it is without communication."""
        if found.shape != expected.shape:
            return f"has the shape {list(found.shape)}, expected {list(expected.shape)}"
        if _close(found, expected):
            return ""
        if _close(found, without):
            return "is that of this rank alone: nothing was added from the others"
        factor = ((found * expected).sum() / expected.square().sum()).item()
        if _close(found, factor * expected):
            return f"is {factor:.3g} times the right one (there are {self.ranks} ranks)"
        return f"differs by up to {(found - expected).abs().max():.2g} from the right one"


def _close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def _layer(weights: Tensor) -> nn.Module:
    layer = nn.Linear(4, 3)
    vector_to_parameters(weights.clone(), layer.parameters())
    return layer


def _loss_sum(layer: nn.Module, batch: list[Tensor]) -> Tensor:
    return layer(batch[0]).square().sum()


def _gradient(layer: nn.Module) -> Tensor:
    return parameters_to_vector([parameter.grad for parameter in layer.parameters()])


def _gradient_for(weights: Tensor, examples: Tensor) -> Tensor:
    layer = _layer(weights)
    _loss_sum(layer, [examples]).backward()
    return _gradient(layer)


class GradientSum(Hole):
    name = "gradient_sum"

    def draw(self) -> Ranks:
        return [[torch.randn(3, 4), torch.randn(5)] for _ in range(self.ranks)]

    def call(self, function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
        parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in inputs]
        for parameter, gradient in zip(parameters, inputs, strict=True):
            parameter.grad = gradient
        function(parameters)
        return [parameter.grad for parameter in parameters]


class Accumulation(Hole):
    name = "accumulation"

    def draw(self) -> Ranks:
        weights = torch.randn(15)
        return [[weights, *(torch.randn(examples, 4) for examples in (2, 3, 4))] for _ in range(self.ranks)]

    def call(self, function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
        layer = _layer(inputs[0])
        function(layer, [[examples] for examples in inputs[1:]], _loss_sum)
        return [_gradient(layer)]

    def alone(self, inputs: Ranks) -> Ranks:
        return [[_gradient_for(weights, torch.cat(micro_batches))] for weights, *micro_batches in inputs]

    def judge_sent(self, inputs: list[Tensor], sent: Sent) -> str:
        numbers, most = sum(size * calls // 4 for _, size, calls in sent), inputs[0].numel()
        return f"sends {numbers} numbers, expected {most}: each gradient once" if numbers > most else ""


class ShardedBlock(Hole):
    name, what = "sharded_block", "the shard's gradient"

    def draw(self) -> Ranks:
        padded = torch.cat([torch.randn(15), torch.zeros(1)])
        return [[shard, torch.randn(6, 4)] for shard in padded.chunk(self.ranks)]

    def call(self, function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
        return [function(_layer(torch.zeros(15)), *inputs)]

    def alone(self, inputs: Ranks) -> Ranks:
        return [[shards[rank]] for rank, shards in enumerate(self.gradients(inputs))]

    def right(self, inputs: Ranks) -> Ranks:
        return [[sum(shards)] for shards in zip(*self.gradients(inputs), strict=True)]

    def gradients(self, inputs: Ranks) -> Ranks:
        """For each rank the gradient for its own examples, cut into the shards of all ranks."""
        weights = torch.cat([shard for shard, _ in inputs])
        whole = [torch.cat([_gradient_for(weights, examples), torch.zeros(1)]) for _, examples in inputs]
        return [list(gradient.chunk(self.ranks)) for gradient in whole]


class ClipShards(Hole):
    name, what = "clip_shards", "the norm or a clipped gradient"

    def draw(self) -> Ranks:
        return [[torch.randn(4), torch.randn(3, 2)], [torch.randn(5)]]

    def call(self, function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
        small = [gradient / 1000 for gradient in inputs]
        return [function(inputs, 1.0), *inputs, function(small, 1.0), *small]

    def alone(self, inputs: Ranks) -> Ranks:
        return [self.clipped(gradients, gradients) for gradients in inputs]

    def right(self, inputs: Ranks) -> Ranks:
        return [self.clipped(gradients, [one for rank in inputs for one in rank]) for gradients in inputs]

    @staticmethod
    def clipped(gradients: list[Tensor], together: list[Tensor]) -> list[Tensor]:
        norm = torch.cat([gradient.flatten() for gradient in together]).norm()
        large = [gradient / norm.clamp(min=1) for gradient in gradients]
        return [norm, *large, norm / 1000, *(gradient / 1000 for gradient in gradients)]


class RingAllReduce(Hole):
    name, what = "ring_all_reduce", "the tensor"
    ranks = 3  # of two, the next rank is also the one before

    def draw(self) -> Ranks:
        return [[torch.randn(10)] for _ in range(self.ranks)]

    def call(self, function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
        function(*inputs)
        return inputs

    def judge_sent(self, inputs: list[Tensor], sent: Sent) -> str:
        if others := sorted({kind for kind, _, _ in sent} - {"send", "receive"}):
            return f"calls {', '.join(others)}; expected send and receive alone"
        part, longest = ceil(inputs[0].numel() / self.ranks), max((size // 4 for _, size, _ in sent), default=0)
        return f"sends {longest} numbers at a time, expected parts of at most {part}" if longest > part else ""


HOLES = (GradientSum(), Accumulation(), ShardedBlock(), ClipShards(), RingAllReduce())
