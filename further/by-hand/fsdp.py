"""The step without a Trainer: FSDP. Every rank holds a part of each block and gathers it to compute.

On a cluster:         sbatch further/by-hand/by_hand.slurm fsdp.py fsdp_configs/full_shard.json
Without SLURM:        GPUS_PER_NODE=2 bash further/by-hand/by_hand.slurm fsdp.py fsdp_configs/full_shard.json
On a laptop, no GPU:  the same in brackets: (source tiny.env && ...)

Compare with DDP: diff further/by-hand/ddp.py further/by-hand/fsdp.py
"""

from collections.abc import Iterator
from itertools import count, islice
from math import ceil

import torch
import torch.distributed as dist
from by_hand_settings import ByHandSettings
from common import build_model, end_rank, fsdp_config, own_device
from muon import MuonAndAdamW
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, DistributedSampler

from workshop.data.encoding import IGNORE, load_tokenizer
from workshop.data.load import load_data
from workshop.measure.by_hand_recorder import StepEvidence, open_records
from workshop.training.models import blocks_of


def main() -> None:
    settings = ByHandSettings.from_environment()
    open_records(settings)
    # 1. The ranks meet. torchrun has told each its RANK, its LOCAL_RANK and where rank 0 listens.
    device = own_device()
    dist.init_process_group()  # NCCL for tensors on GPUs, gloo for those in CPU memory
    world_size = dist.get_world_size()

    # 2. The data. All ranks draw the same permutation from seed and epoch; each takes every world_size-th example.
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    sampler = DistributedSampler(data.train, seed=settings.seed)
    loader = DataLoader(data.train, settings.batch_size, sampler=sampler, collate_fn=data.collator)

    # 3. The model, split over the ranks. Each block is a unit, gathered before it computes; what is left (embedding,
    #    norm, head) is one more: unit by unit they move to the GPU, which need not hold the whole model. Of a 2-D mesh
    #    the second dimension shards, the first holds copies (HYBRID_SHARD).
    model = build_model(settings, tokenizer)
    config = fsdp_config(settings)
    evidence = StepEvidence(settings, model, data, method="fsdp2", **config)
    copies, shape, names = config["replicas"], (world_size,), ("shard",)
    if copies > 1:
        shape, names = (copies, world_size // copies), ("replicate", "shard")
    offload = CPUOffloadPolicy(pin_memory=device.type == "cuda") if config["cpu_offload"] else OffloadPolicy()
    options = {
        "mesh": init_device_mesh(device.type, shape, mesh_dim_names=names),
        "reshard_after_forward": config["reshard_after_forward"],  # false: kept for the backward (SHARD_GRAD_OP)
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16 if settings.bf16 else None),
        "offload_policy": offload,
    }
    for block in blocks_of(model):
        fully_shard(block, **options)
    fully_shard(model, **options)

    # 4. The optimizer. Biases and norms (one dimension) do not decay; the learning rate falls to 0 in a straight line.
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    fused = settings.optimizer != "adamw_torch"  # one kernel for many parameters
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, fused=fused)
    if settings.optimizer == "muon":  # of the blocks' matrices
        optimizer = MuonAndAdamW(optimizer, blocks_of(model))
    steps = settings.max_steps or settings.num_epochs * ceil(len(loader) / settings.grad_acc)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: share_of_learning_rate(step, settings.lr_warmup_steps, steps)
    )

    for micro_batches in islice(batches_of_steps(loader, settings), steps):
        with evidence.step(micro_batches):
            # 5. What the loss is divided by: the targets in all micro-batches of all ranks. A mean of means would
            #    weigh a target more where a micro-batch has few.
            targets = sum((batch["labels"][:, 1:] != IGNORE).sum() for batch in micro_batches).to(device)
            dist.all_reduce(targets)
            loss = torch.zeros((), device=device)
            for number, batch in enumerate(micro_batches, start=1):
                batch = {name: tensor.to(device) for name, tensor in batch.items()}
                # 6. Accumulation: gradients add up on each rank; only the last backward pass sends them.
                model.set_requires_gradient_sync(number == len(micro_batches))
                logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
                share = loss_sum(logits, batch["labels"]) / targets
                # Gradients are averaged over the ranks, but this is a sum: so times their number.
                (share * world_size).backward()
                loss += share.detach()
            # 7. Each rank has its part of the gradients and updates its part of the weights; the norm needs all parts.
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            dist.all_reduce(loss)
        evidence.record(loss.item())
    evidence.close(optimizer)


def batches_of_steps(loader: DataLoader, settings: ByHandSettings) -> Iterator[list[dict[str, torch.Tensor]]]:
    """The micro-batches of one optimizer step after the other; an epoch's last step may have fewer. Without end."""
    for epoch in count():
        loader.sampler.set_epoch(epoch)  # another permutation
        batches = iter(loader)
        while micro_batches := list(islice(batches, settings.grad_acc)):
            yield micro_batches


def loss_sum(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy summed over the targets: position i predicts token i + 1; the loss is computed in fp32."""
    predictions, targets = logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten()
    return cross_entropy(predictions, targets, ignore_index=IGNORE, reduction="sum")


def share_of_learning_rate(step: int, warmup: int, steps: int) -> float:
    """Up from 0 over the warm-up, then down to 0, in straight lines."""
    return step / warmup if step < warmup else (steps - step) / max(1, steps - warmup)


if __name__ == "__main__":
    main()
    end_rank()  # not Python's own end, which can abort while gloo's threads still let go of tensors
