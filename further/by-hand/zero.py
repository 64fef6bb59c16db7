"""The step without a Trainer: DeepSpeed ZeRO. What each rank holds is said by the stage in the JSON.

On a cluster:         sbatch further/by-hand/by_hand.slurm zero.py ds_configs/zero2.json
Without SLURM:        GPUS_PER_NODE=2 bash further/by-hand/by_hand.slurm zero.py ds_configs/zero2.json
On a laptop, no GPU:  the same in brackets: (source tiny.env && ...)

Compare with DDP: diff further/by-hand/ddp.py further/by-hand/zero.py
"""

from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from math import ceil

import deepspeed
import torch
import torch.distributed as dist
from by_hand_settings import ByHandSettings
from common import build_model, end_rank, own_device, zero_config
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

from workshop.data.encoding import IGNORE, load_tokenizer
from workshop.data.load import load_data
from workshop.kernels.operators import prepare_operators
from workshop.measure.by_hand_recorder import StepEvidence, open_records


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

    # 3. The model. Below it is moved to the GPU in the type it computes in, and split over the ranks, together with the
    #    optimizer: optimizer states from stage 1 on, gradients from 2 on, weights in 3.
    model = build_model(settings, tokenizer)
    config = zero_config(settings)
    prepare_operators(config)  # only without a GPU: DeepSpeed would compile collectives of its own
    evidence = StepEvidence(settings, model, data, method=f"zero{config['zero_optimization']['stage']}")

    # 4. The optimizer. Biases and norms (one dimension) do not decay; the learning rate falls to 0 in a straight line.
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    fused = settings.optimizer == "adamw_torch_fused"  # one kernel for many parameters
    # DeepSpeed makes its own Muon (zero_config), for all matrices but the embedding; it needs whole ones.
    muon = settings.optimizer == "muon"
    optimizer = None if muon else torch.optim.AdamW(groups, lr=settings.learning_rate, fused=fused)
    steps = settings.max_steps or settings.num_epochs * ceil(len(loader) / settings.grad_acc)

    def scheduler(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
        shares = partial(share_of_learning_rate, warmup=settings.lr_warmup_steps, steps=steps)
        return torch.optim.lr_scheduler.LambdaLR(optimizer, shares)

    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, model_parameters=groups, lr_scheduler=scheduler, config=config
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
                # 6. Accumulation: gradients add up on each rank; stages 2 and 3 send them each time all the same.
                engine.set_gradient_accumulation_boundary(number == len(micro_batches))
                logits = engine(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
                share = loss_sum(logits, batch["labels"]) / targets
                # Gradients are averaged over the ranks, but this is a sum: so times their number.
                engine.backward(share * world_size, scale_wrt_gas=False)  # not divided by the micro-batches once more
                loss += share.detach()
            # 7. The norm over all parts, clipping, optimizer, scheduler, zero_grad: all of it is one call.
            engine.step()
            dist.all_reduce(loss)
        evidence.record(loss.item())
    evidence.close(engine.optimizer.optimizer)


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
