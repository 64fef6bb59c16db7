"""Expert parallelism: the ranks hold other experts, and each token travels to the ranks of its own.

On a cluster:         MODEL_NAME=olmoe-4-layers MODEL_INIT=random sbatch further/dimensions/dimensions.slurm ep.py
On a laptop, no GPU:  (source tiny.env && GPUS_PER_NODE=2 bash further/dimensions/dimensions.slurm ep.py)

EP_SIZE ranks share the experts, and each has rows of its own; EP_SIZE=1 is FSDP.
Compare with context parallelism: diff further/dimensions/cp.py further/dimensions/ep.py
"""

from functools import partial
from itertools import islice
from math import ceil
from typing import Any

import torch
import torch.distributed as dist
from common import build_model, end_rank, own_device
from ddp import batches_of_steps
from dimension_settings import DimensionSettings
from shared import clip_grad_norm, next_tokens, optimizer_of, save_weights, use_loss_head
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.functional import grouped_mm, silu
from torch.utils.data import DataLoader, DistributedSampler
from transformers import PreTrainedConfig

from workshop.data.encoding import IGNORE, load_tokenizer
from workshop.data.load import load_data
from workshop.measure.by_hand_recorder import COUNTED_STEP, StepEvidence, open_records
from workshop.private_names import flattened
from workshop.training.models import blocks_of


def main() -> None:
    settings = DimensionSettings.of("ep")
    open_records(settings)
    # 1. The ranks meet. EP_SIZE neighbours hold all experts, each some of them; "dp" are the copies of those.
    device = own_device()
    dist.init_process_group()
    world_size = dist.get_world_size()
    mesh = init_device_mesh(device.type, settings.layout(world_size), mesh_dim_names=("dp", "ep"))

    # 2. The data. Each rank reads rows of its own.
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    sampler = DistributedSampler(data.train, seed=settings.seed)
    loader = DataLoader(data.train, settings.batch_size, sampler=sampler, collate_fn=data.collator)

    # 3. The model. Its experts are cut along "ep" and sharded along "dp"; the rest is sharded over all ranks.
    model = build_model(settings, tokenizer)
    settings.check_model(model.config.to_dict())
    head = use_loss_head(model, settings)
    all_experts = [block.mlp.experts for block in blocks_of(model)]
    sizes = {"experts": model.config.num_experts, "ep_size": mesh["ep"].size()}
    sizes["expert_parameters"] = sum(weights.numel() for one in all_experts for weights in one.parameters())
    for experts in all_experts:
        for name, weights in list(experts.named_parameters()):
            part = distribute_tensor(weights.data, mesh["ep"], [Shard(0)], src_data_rank=None)
            setattr(experts, name, torch.nn.Parameter(part))
        experts.forward = partial(through_experts, experts, mesh.get_group("ep"))
    evidence = StepEvidence(settings, model, data, method="ep", dp_size=world_size, **sizes)
    shards = flattened(mesh["dp", "ep"], "shards")
    types = MixedPrecisionPolicy(torch.bfloat16 if settings.bf16 else None)
    for experts in all_experts:
        fully_shard(experts, mesh=mesh["dp"], mp_policy=types)
    for unit in (*blocks_of(model), model):
        fully_shard(unit, mesh=shards, mp_policy=types)

    steps = settings.max_steps or settings.num_epochs * ceil(len(loader) / settings.grad_acc)
    optimizer, scheduler = optimizer_of(model, settings, steps)

    for step, micro_batches in enumerate(islice(batches_of_steps(loader, settings), steps), start=1):
        with evidence.step(micro_batches):
            targets = sum((batch["labels"][:, 1:] != IGNORE).sum() for batch in micro_batches).to(device)
            dist.all_reduce(targets)
            loss, tokens = torch.zeros((), device=device), 0
            for number, batch in enumerate(micro_batches, start=1):
                ids, head.targets = batch["input_ids"].to(device), next_tokens(batch["labels"]).to(device)
                model.set_requires_gradient_sync(number == len(micro_batches))
                result = model(input_ids=ids, output_router_logits=True)
                # 4. The router learns to use all experts by an auxiliary loss, the mean over the micro-batches.
                auxiliary, routed = balance(result.router_logits, batch["attention_mask"].to(device), model.config)
                share = result.logits / targets + model.config.router_aux_loss_coef * auxiliary / len(micro_batches)
                (share * world_size).backward()  # FSDP averages over all ranks, but this is a sum
                loss, tokens = loss + share.detach(), tokens + routed
            clip_grad_norm(model)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            dist.all_reduce(loss)
        evidence.record(loss.item())
        load = load_of_ranks(tokens, mesh)
        if step == COUNTED_STEP:
            evidence.add(**load)
    save_weights(dict(model.named_parameters()), settings)
    evidence.close()


def through_experts(
    experts: Any, group: dist.ProcessGroup, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """In the place of the experts' `forward`: the weighted sum of what a token's experts return, [tokens, hidden size].

    Args: chosen, weights: [tokens, experts per token], numbers of experts and the router's weights.
    """
    ranks, (tokens, top_k) = group.size(), chosen.shape
    # 5. A row for each expert of each token, in the order of the experts, and so in that of the ranks that hold them.
    numbers, order = chosen.flatten().sort(stable=True)
    rows = hidden[order // top_k]
    leaving = numbers.new_zeros(experts.num_experts).scatter_add_(0, numbers, torch.ones_like(numbers))
    arriving = leaving
    if ranks > 1:
        # 6. The ranks tell each other how many rows come for each expert. The CPU waits for the answer: it is a size.
        arriving = torch.empty_like(leaving)
        dist.all_to_all_single(arriving, leaving, group=group)
        sizes = torch.stack((leaving, arriving)).view(2, ranks, -1).sum(-1).tolist()
        rows = AllToAll.apply(rows, *sizes, group)
    # 7. They have come rank by rank, those of a rank expert by expert. Sorted, all rows of an expert are neighbours.
    arriving = arriving.view(ranks, -1)
    numbers = torch.arange(arriving.shape[1], device=rows.device).repeat(ranks)
    by_expert = numbers.repeat_interleave(arriving.flatten(), output_size=len(rows)).argsort(stable=True)
    ends = arriving.sum(0).cumsum(0, dtype=torch.int32)
    up, down = (part.to_local().transpose(-2, -1) for part in (experts.gate_up_proj, experts.down_proj))
    for part in (up, down):  # tokens of `ranks` ranks add to these gradients, and FSDP averages over "dp" only
        part.register_hook(lambda gradient: gradient / ranks)
    gate, up = grouped_mm(rows[by_expert], up, offs=ends).chunk(2, dim=-1)
    rows = grouped_mm(silu(gate) * up, down, offs=ends)[by_expert.argsort()]
    if ranks > 1:
        rows = AllToAll.apply(rows, *reversed(sizes), group)  # 8. Back to the ranks of the tokens.
    return (rows[order.argsort()].view(tokens, top_k, -1) * weights.unsqueeze(-1)).sum(1)


class AllToAll(torch.autograd.Function):
    """Rows [rows, hidden size] to all ranks, so many to each and from each; their gradients travel back."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup) -> Any:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        result = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(result, rows.contiguous(), received, sent, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return AllToAll.apply(gradient, ctx.received, ctx.sent, ctx.group), None, None, None


def balance(router_logits: tuple[torch.Tensor, ...], mask: torch.Tensor, config: PreTrainedConfig) -> Any:
    """Return this rank's share of OLMoE's auxiliary loss, and its tokens for each expert [layers, experts].

    The loss is, as Transformers computes it over all layers and without padding, the number of experts times the sum
    over them of (share of the tokens that chose it) x (its mean probability). Shares need the counts of all ranks.
    """
    probabilities = torch.stack(router_logits).float().softmax(-1)  # [layers, positions, experts]
    chosen = torch.zeros_like(probabilities).scatter_(2, probabilities.topk(config.num_experts_per_tok).indices, 1)
    real = mask.flatten()[:, None]
    counts = torch.cat(((chosen * real).sum((0, 1)), real.sum()[None] * len(router_logits)))
    dist.all_reduce(counts)
    loss = config.num_experts * (counts[:-1] * (probabilities * real).sum((0, 1))).sum() / counts[-1] ** 2
    return loss, chosen.sum(1)


def load_of_ranks(tokens: torch.Tensor, mesh: DeviceMesh) -> dict[str, float]:
    """Return, and print, how unequal a step's load is; `tokens`: this rank's for each expert [layers, experts]."""
    (copies, ranks), of_all = mesh.shape, [torch.empty_like(tokens) for _ in range(mesh.size())]
    dist.all_gather(of_all, tokens)
    sent = torch.stack(of_all).view(copies, ranks, len(tokens), ranks, -1)  # copy, sender, layer, receiver, expert
    between, held, of_experts = sent.sum((2, 4)), sent.sum((1, 4)), sum(of_all)
    elsewhere = between.sum(1) + between.sum(2) - 2 * between.diagonal(dim1=1, dim2=2)
    load = {
        "exchanged_tokens": int(elsewhere.max()),  # of the rank with the most: to other ranks and from them
        "fullest_expert": float((of_experts.amax(1) / of_experts.mean(1)).max()),
        "fullest_rank": float(held.amax((0, 2)).sum() / held.mean((0, 2)).sum()),  # each layer waits for its own
    }
    if dist.get_rank() == 0:
        least, most, mean = (int(figure) for figure in (of_experts.min(), of_experts.max(), of_experts.mean()))
        print(f"tokens per expert: {least} to {most}, mean {mean}; fullest rank: {load['fullest_rank']:.3f} x the mean")
    return load


if __name__ == "__main__":
    main()
    end_rank()
