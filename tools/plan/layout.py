"""A layout: how ranks share rows, and matrices, positions or layers (TP, CP or PP), and what that costs a rank.

Under every layout a rank computes as many operations as under data parallelism. So a rank's step is the simulated step
of its part of a row (`on_rank`), with other traffic. Neighbouring ranks share matrices, the next positions, then rows,
then layers: what sends most stays inside a node. A micro-batch is one row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from tools.logs.communication import messages_of, ring, shards_of_weights, stages, sums

LOSS_CHUNK = 4096
# A launch's time beside a plain one, through DTensor and in a ring, from runs with rows of 8,192 tokens, whose host
# decides (logs/reference/h200x2-2026-11-25a-dimensions).
_LAUNCH_COST = {"tp": 6.8, "cp": 2.8}


@dataclass(frozen=True)
class Layout:
    """How many ranks share what (dp, tp, cp, pp); then what is shared."""

    dp: int  # ranks that share the rows of a step
    tp: int  # the matrices, and the positions between them
    cp: int  # the positions of a row
    pp: int  # the layers, by the schedule 1F1B
    length: int  # tokens of a row
    micro_batches: int  # of each of the dp groups in a step
    hidden: int  # numbers per token in the hidden states
    keys: int  # in the keys; as many values
    checkpointing: bool  # a block's forward pass runs again in the backward pass, with its messages
    tied: bool = False  # the embedding is also the head

    sizes = property(lambda self: {"dp": self.dp, "tp": self.tp, "cp": self.cp, "pp": self.pp})
    row_parts = property(lambda self: self.tp * self.cp)
    # Whether each of the dp groups holds all states, as in pp.py; else FSDP shares them among dp x cp ranks.
    copies = property(lambda self: self.dimension == "pp")
    # The share of a step in which a stage waits.
    bubble = property(lambda self: (self.pp - 1) / (self.micro_batches + self.pp - 1))
    _width = property(lambda self: 4 if self.copies else 2)
    # Of a micro-batch, on the tensor parallel ranks together.
    _hidden_bytes = property(lambda self: self._width * self.hidden * self.length / self.cp)

    @property
    def name(self) -> str:
        return " x ".join(f"{name} {size}" for name, size in self.sizes.items() if size > 1) or "dp 1"

    @property
    def dimension(self) -> str:
        """The script of further/dimensions/ that runs it: each shares one thing beside the rows."""
        return next((name for name in ("tp", "pp") if self.sizes[name] > 1), "cp")

    @property
    def shape(self) -> dict[str, Any]:
        """A rank's part of a micro-batch, as workshop.simulate.step_on_meta takes it: no mask, never all logits."""
        return {
            **{"batch_size": 1, "max_length": self.length // self.row_parts, "precision": "bf16"},
            **{"engine": "autocast" if self.copies else "half", "gradient_checkpointing": self.checkpointing},
            # The tensor parallel ranks share the vocabulary.
            **{"loss": "recomputed", "loss_chunk": LOSS_CHUNK // self.tp},
        }

    def on_rank(self, step: dict[str, Any]) -> dict[str, Any]:
        """The step of the fullest and slowest rank, from the simulated one of `shape`.

        Operations count p times: the rank's micro-batches are p times as many as the workload's, with a p-th of the
        layers. The first stage also has the embedding, the last one the head: the largest parameters.
        """
        layers, own = step["blocks"], ceil(step["blocks"] / self.pp)
        ends = step["parameters"] - layers * step["block_parameters"] if self.pp == 1 else step["largest_parameter"]
        parameters = (own * step["block_parameters"] + ends) / self.tp
        operations: dict[str, dict[str, dict[str, float]]] = {}
        for place, classes in step["operations"].items():
            times = own * self.pp / layers if place == "blocks" else self.pp
            operations[place] = {name: {what: n * times for what, n in one.items()} for name, one in classes.items()}
        for one in operations["blocks"].values():
            one["launches"] *= max(cost if self.sizes[name] > 1 else 1 for name, cost in _LAUNCH_COST.items())
        # A rank's queries see the whole row; the simulated ones saw their own part of it.
        if self.row_parts > 1:
            operations["blocks"]["attention"]["flops"] *= self.row_parts
        found = {"block_parameters": step["block_parameters"] / self.tp, "blocks": own, "parameters": parameters}
        found |= {"parameter_tensors": step["parameter_tensors"] / self.pp, "operations": operations}
        found["largest_parameter"] = step["largest_parameter"] / self.tp
        return step | found | {"trained": found, "parts": self._parts(step, own, parameters)}

    def _parts(self, step: dict[str, Any], own: int, parameters: float) -> list[dict[str, float]]:
        """Memory at each point of a micro-batch; for a pipeline at the peaks of its first and its last stage."""
        parts, layers = step["parts"], step["blocks"]
        # Tensor parallel: the cross-entropy over parts of the vocabulary keeps one more fp32 copy of a chunk's logits.
        logits = 4 * min(LOSS_CHUNK, self.length // self.cp) * step["largest_parameter"] / self.hidden / self.tp
        # The positions of all its ranks: gathered before the matrices, and not yet summed up after them.
        passing = 2 * self._hidden_bytes * (1 - 1 / self.tp) * (1 if self.checkpointing else own)
        if self.pp == 1:
            found = [part | {"gradient_bytes": part["gradient_bytes"] / self.tp} for part in parts]
            for number, part in enumerate(found):  # the head is behind the layers, forward and backward
                part["peak_bytes"] += passing + (logits if self.tp > 1 and number - layers in (1, 2) else 0)
            return found
        peaks = [part["peak_bytes"] for part in parts]
        # Autocast's copies of weights live during the forward pass: of a stage's layers, and in the simulation of all.
        copy = 2 * step["block_parameters"] if self.copies else 0
        fewer = copy * (layers - own)
        kept = (peaks[layers] - peaks[1]) / (layers - 1) - copy  # of a block, from its forward to its backward pass
        first = max(peaks[layers] - fewer, *peaks[layers + 3 :])
        last = max(peaks[layers + 1] - fewer, peaks[layers + 2])
        moments = []
        for stage, peak in ((0, first), (self.pp - 1, last)):
            # Micro-batches whose activations it holds then: PyTorch's pipelining/schedules.py, warm-up.
            in_flight = min(self.pp - stage, self.micro_batches)
            peak += passing + kept * (own * in_flight - layers)
            gradients = {"peak_with_gradients_bytes": peak + 4 * parameters, "gradient_bytes": 2 * parameters}
            moments.append({"peak_bytes": peak} | gradients)
        return moments

    def traffic(self, step: dict[str, Any], per_node: int) -> tuple[float, float]:
        """Bytes per step: what a rank sends in groups on one node, what a node sends for groups on several.

        Args: step: of the rank; per_node: ranks on a node.
        """
        m, layers, width, positions = self.micro_batches, step["blocks"], self._width, self.length / self.cp
        how = {"recomputed": self.checkpointing, "by_position": True, "chunked": positions > LOSS_CHUNK}
        matrices = m * sums(self.tp, layers, positions, self._hidden_bytes, **how)
        keys_and_values = m * ring(self.cp, layers, 4 * self.keys / self.tp * positions, self.checkpointing)
        held, in_blocks = width * step["parameters"], width * layers * step["block_parameters"]
        shards = self.dp * (1 if self.copies else self.cp)
        if self.copies:
            states = sum(messages_of({"method": "ddp"}, shards, m)) * held
        else:  # tp.py gathers all weights twice, cp.py those of the blocks
            states = shards_of_weights(shards, m, held + (held if self.tp > 1 else in_blocks), held)
        tied = self.tied * width * step["largest_parameter"] / (1 if self.copies else shards)
        hidden = stages(self.pp, 1, m * self._hidden_bytes / self.tp, tied)
        # What is sent, by how many ranks, and how far apart these are.
        groups = [(matrices, self.tp, 1), (keys_and_values, self.cp, self.tp), (states, shards, self.tp)]
        groups.append((hidden, self.pp, self.dp * self.row_parts))
        in_node = between_nodes = 0.0
        for sent_bytes, ranks, distance in groups:
            on_node = min(ranks, max(1, per_node // distance))
            if on_node == ranks:
                in_node += sent_bytes
            else:  # a ring leaves the node by one rank; the node's other groups send beside it
                between_nodes += sent_bytes * per_node / on_node
        return in_node, between_nodes


def splits(gpus: int) -> Iterator[tuple[int, int, int, int]]:
    """All (dp, tp, cp, pp) of that many GPUs of which at most one is shared beside the rows."""
    yield gpus, 1, 1, 1
    for size in (size for size in range(2, gpus + 1) if gpus % size == 0):
        for shared in ((size, 1, 1), (1, size, 1), (1, 1, size)):
            yield gpus // size, *shared
