"""Context parallelism: each rank holds a part of every row; keys and values travel around a ring.

On a cluster:         sbatch --gpus-per-node=4 further/dimensions/dimensions.slurm cp.py
On a laptop, no GPU:  (source tiny.env && GPUS_PER_NODE=2 bash further/dimensions/dimensions.slurm cp.py)

CP_SIZE ranks share a row. The weights are sharded over all ranks, as in fsdp.py.
Compare with FSDP: diff further/by-hand/fsdp.py further/dimensions/cp.py
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from math import ceil
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from common import build_model, end_rank, own_device
from ddp import batches_of_steps
from dimension_settings import DimensionSettings
from fused_attention import fused_attention, fused_backward, use_attention
from shared import check_model, clip_grad_norm, next_tokens, optimizer_of, save_weights, use_loss_head
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from transformers import PreTrainedModel

from workshop.data.encoding import IGNORE, load_tokenizer
from workshop.data.load import load_data
from workshop.measure.by_hand_recorder import StepEvidence, open_records
from workshop.private_names import flattened
from workshop.training.models import blocks_of


def main(dimension: str = "cp", method: str = "cp", attention: Any = None, split: Any = None) -> None:
    settings = DimensionSettings.of(dimension)
    open_records(settings)
    # 1. The ranks meet. Neighbours share their rows: they are a ring.
    device = own_device()
    dist.init_process_group()
    mesh = init_device_mesh(device.type, settings.layout(dist.get_world_size()), mesh_dim_names=("dp", "cp"))
    ring, dp_size = mesh.get_group("cp"), mesh["dp"].size()
    check_model(settings, partial(loss_in_order, settings, split or shard_of))

    # 2. The data. The ranks of a ring read the same rows.
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    sampler = DistributedSampler(data.train, dp_size, mesh.get_local_rank("dp"), seed=settings.seed)
    loader = DataLoader(data.train, settings.batch_size, sampler=sampler, collate_fn=data.collator)

    # 3. The model. Only its attention has to know that a row goes on elsewhere. Each rank has a gradient of every
    #    weight, from its own positions; so the weights are sharded over all ranks, as in fsdp.py.
    model = build_model(settings, tokenizer)
    attend = attention and attention(model, ring, settings.max_length)  # of ulysses.py
    use_attention(model, attend or (lambda *given: RingAttention.apply(*given, ring)))
    head = use_loss_head(model, settings)
    evidence = StepEvidence(settings, model, data, method=method, dp_size=dp_size)
    shards = flattened(mesh["dp", "cp"], "shards")
    types = MixedPrecisionPolicy(torch.bfloat16 if settings.bf16 else None)
    for unit in (*blocks_of(model), model):
        fully_shard(unit, mesh=shards, mp_policy=types)

    steps = settings.max_steps or settings.num_epochs * ceil(len(loader) / settings.grad_acc)
    optimizer, scheduler = optimizer_of(model, settings, steps)

    for micro_batches in islice(batches_of_steps(loader, settings), steps):
        with evidence.step(micro_batches):
            own = [(split or shard_of)(batch, ring, device) for batch in micro_batches]
            targets = sum((shard["targets"] != IGNORE).sum() for shard in own)
            dist.all_reduce(targets)
            loss = torch.zeros((), device=device)
            for number, shard in enumerate(own, start=1):
                model.set_requires_gradient_sync(number == len(own))
                head.targets = shard.pop("targets")
                share = model(**shard).logits / targets
                (share * dist.get_world_size()).backward()  # FSDP averages over all ranks, but this is a sum
                loss += share.detach()
            clip_grad_norm(model)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            dist.all_reduce(loss)
        evidence.record(loss.item())
    save_weights(dict(model.named_parameters()), settings)
    evidence.close()


def loss_in_order(settings: DimensionSettings, split: Any, model: PreTrainedModel, batch: dict[str, Any]) -> Any:
    """The loss of whole rows in the order of two ranks' parts, as those compute it: only attention may know another."""
    ranks = [SimpleNamespace(rank=lambda rank=rank: rank, size=lambda: 2) for rank in (1, 0)]
    parts = [split(batch, ring, model.device) for ring in ranks]
    given = {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}
    order, alone = given["position_ids"][0], SimpleNamespace(rank=lambda: 0, size=lambda: 1)

    def attend(query: Any, key: Any, value: Any, scaling: float | None) -> torch.Tensor:
        whole = [tensor[:, :, order.argsort()] for tensor in (query, key, value)]
        return RingAttention.apply(*whole, scaling, alone)[:, :, order]

    use_attention(model, attend)
    head = use_loss_head(model, settings)
    head.targets = given.pop("targets")
    with torch.no_grad():
        model.train()(**given)  # to see whether its attention has dropout
    return model.eval()(**given).logits


def shard_of(batch: dict[str, torch.Tensor], ring: dist.ProcessGroup, device: torch.device) -> dict[str, torch.Tensor]:
    """Of each row our two chunks: of ring size r the row has 2 r, and we the n-th from the front and from the end.

    A causal row's first chunk sees itself only and its last one sees all: each such pair has as much to compute.
    """
    whole, rank = {"input_ids": batch["input_ids"], "targets": next_tokens(batch["labels"])}, ring.rank()
    whole["position_ids"] = torch.arange(batch["labels"].shape[1]).expand_as(batch["labels"])
    chunks = {name: tensor.to(device).chunk(2 * ring.size(), dim=1) for name, tensor in whole.items()}
    return {name: torch.cat((parts[rank], parts[-1 - rank]), dim=1) for name, parts in chunks.items()}


class RingAttention(torch.autograd.Function):
    """Causal attention: our queries stay; keys and values, [batch, heads, positions, head's size], pass all ranks."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, scaling: float | None, ring: dist.ProcessGroup) -> Any:
        result = torch.zeros_like(query, dtype=torch.float32)
        scale = result.new_full(query.shape[:-1], -torch.inf)  # the log-sum-exp of the scores so far
        for step, rows, columns, passing in around(ring, key, value):
            part, part_scale = fused_attention(query[:, :, rows], *passing[:, :, :, columns], step == 0, scaling)
            weight = torch.sigmoid(part_scale - scale[:, :, rows])  # of the new keys among those seen so far
            result[:, :, rows] = result[:, :, rows].lerp(part.float(), weight.unsqueeze(-1))
            scale[:, :, rows] = torch.logaddexp(scale[:, :, rows], part_scale)
        ctx.ring, ctx.scaling, result = ring, scaling, result.to(query.dtype)
        ctx.save_for_backward(query, key, value, result, scale)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        query, key, value, result, scale = ctx.saved_tensors
        query_gradient, arriving = torch.zeros_like(query, dtype=torch.float32), None
        for step, rows, columns, passing in around(ctx.ring, key, value):
            mine = [tensor[:, :, rows].contiguous() for tensor in (gradient, query, result, scale)]
            # With the log-sum-exp of all keys these are a part's shares of the gradients, which add up.
            part, *parts = fused_backward(*mine, *passing[:, :, :, columns], step == 0, ctx.scaling)
            query_gradient[:, :, rows] += part
            if step == 0:
                own = torch.stack(parts)
                continue
            # The gradients of keys and values follow them around the ring, and end where these came from.
            gradients = arriving() if arriving else torch.zeros_like(own)
            gradients[:, :, :, columns] += torch.stack(parts)
            arriving = pass_on(gradients, ctx.ring)
        own += arriving() if arriving else 0
        return query_gradient.to(query.dtype), *own, None, None


def around(ring: dist.ProcessGroup, key: torch.Tensor, value: torch.Tensor) -> Iterator[Any]:
    """Each rank's keys and values, ours first: steps they have come, which of our positions see which of them, they."""
    passing, everything, half = torch.stack((key, value)), slice(None), key.shape[2] // 2
    for step in range(ring.size()):
        arriving = pass_on(passing, ring) if step + 1 < ring.size() else None  # while the caller computes
        # Our own two chunks are in order: the usual causal attention. A lower rank's first chunk lies before both of
        # ours, its second after both; a higher rank's lie both between ours.
        rows = slice(half, None) if step > ring.rank() else everything
        columns = slice(half) if 0 < step <= ring.rank() else everything
        yield step, rows, columns, passing
        passing = arriving() if arriving else None


def pass_on(sent: torch.Tensor, ring: dist.ProcessGroup) -> Callable[[], torch.Tensor]:
    """Begin to send to the next rank; the result, when it is called, waits for what the previous rank has sent."""
    received, rank, ranks = torch.empty_like(sent), ring.rank(), ring.size()
    to_next = dist.P2POp(dist.isend, sent, group=ring, group_peer=(rank + 1) % ranks)
    from_previous = dist.P2POp(dist.irecv, received, group=ring, group_peer=(rank - 1) % ranks)
    calls = dist.batch_isend_irecv([to_next, from_previous])

    def arrived() -> torch.Tensor:
        for call in calls:
            call.wait()
        return received

    return arrived


if __name__ == "__main__":
    main()
    end_rank()
