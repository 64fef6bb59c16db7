"""Pipeline parallelism: each rank holds some of the layers; activations go on, gradients come back.

On a cluster:         GRAD_ACC=8 sbatch --gpus-per-node=4 further/dimensions/dimensions.slurm pp.py
Without SLURM:        GRAD_ACC=8 GPUS_PER_NODE=2 bash further/dimensions/dimensions.slurm pp.py
On a laptop, no GPU:  the same in brackets: (source tiny.env && ...)

GRAD_ACC micro-batches follow each other through the stages, in the order that SCHEDULE says: gpipe, 1f1b, interleaved.
"""

import re
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import islice

import torch
import torch.distributed as dist
from common import build_model, end_rank, own_device
from ddp import batches_of_steps
from dimension_settings import DimensionSettings
from shared import check_model, optimizer_of, save_weights, use_loss_head
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.utils.data import DataLoader, DistributedSampler
from transformers import PreTrainedModel

from workshop.data.encoding import IGNORE, load_tokenizer
from workshop.data.load import load_data
from workshop.kernels.fast_models.packing import next_targets
from workshop.measure.by_hand_recorder import StepEvidence, open_records
from workshop.record.errors import InputError
from workshop.record.printable import counted
from workshop.training.models import blocks_of, model_size

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}
# Modules of the custom model, and of Llama and its relatives, that the first and the last stage have.
FIRST = ("token_embedding", "position_embedding", "embed_tokens")
LAST = ("final_norm", "head", "norm", "lm_head")


def main() -> None:
    settings = DimensionSettings.of("pp")
    open_records(settings)
    # 1. The ranks meet. `pipeline` are those that share a model, `copies` those that hold the same layers of it.
    device = own_device()
    dist.init_process_group()
    mesh = init_device_mesh(device.type, settings.layout(dist.get_world_size()), mesh_dim_names=("dp", "pp"))
    pipeline, copies = mesh.get_group("pp"), mesh.get_group("dp")
    rank, ranks = pipeline.rank(), pipeline.size()
    check_model(settings, partial(loss_of_stages, settings))

    # 2. The data. All ranks of a pipeline read the same rows: its first needs the tokens, its last the targets.
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    sampler = DistributedSampler(data.train, copies.size(), copies.rank(), seed=settings.seed)
    rows = settings.batch_size * settings.grad_acc
    loader = DataLoader(data.train, rows, sampler=sampler, collate_fn=data.collator, drop_last=True)
    if not len(loader):  # no step, in any epoch
        found = f"TRAIN_SIZE={settings.train_size}: found {counted(len(data.train), 'row')}, a step takes {rows}"
        copies_of = f"(BATCH_SIZE x GRAD_ACC) in each of {counted(copies.size(), 'copy', 'copies')} of the model"
        raise InputError(f"{found} {copies_of}; expected {rows * copies.size()} or more")

    # 3. The model, cut into stages. Interleaved, each rank has two: of four, rank 0 has 0 and 2, rank 1 has 1 and 3.
    interleaved = settings.schedule == "interleaved"
    count = ranks * (2 if interleaved else 1)
    stages = []
    for number in range(rank, count, ranks):
        model = build_model(settings, tokenizer)
        if not stages:
            record = prediction(model, settings, ranks, count)
            evidence = StepEvidence(settings, model, data, method="pp", dp_size=copies.size(), **record)
        stages.append(Stage(model, number, count, settings).to(device))  # cut before it is moved
    parts = [PipelineStage(stage, stage.number, count, device, group=pipeline) for stage in stages]
    # A micro-batch's loss is a sum over its targets, divided by those of the whole step: gradients add up. By default
    # PyTorch divides them by the number of micro-batches (scale_grads), which is right where the losses are means.
    total = torch.zeros((), dtype=torch.int64, device=device)
    schedule = SCHEDULES[settings.schedule](
        parts if interleaved else parts[0], settings.grad_acc, lambda loss, _: loss / total, scale_grads=False
    )
    # A tied head is the first stage's embedding: both ends hold it, and the first counts it in the norm.
    ends = dist.new_subgroups_by_enumeration(mesh.mesh[:, [0, -1]].tolist())[0] if ranks > 1 else None
    tied = [stage.tied for stage in stages if stage.tied is not None]
    own = {name: weight for stage in stages for name, weight in stage.own.items()}

    # 4. The optimizer, as in the other scripts.
    steps = settings.max_steps or settings.num_epochs * len(loader)
    model = torch.nn.ModuleList(stages)
    optimizer, scheduler = optimizer_of(model, settings, steps)

    for [batch] in islice(batches_of_steps(loader, replace(settings, grad_acc=1)), steps):
        with evidence.step([batch]):
            targets = next_targets(batch["labels"]).to(device)
            total.copy_((targets != IGNORE).sum())
            dist.all_reduce(total, group=copies)
            # 5. The schedule cuts the rows into micro-batches; each goes through all stages, forward and backward.
            losses: list[torch.Tensor] = []
            given = [batch["input_ids"].to(device)] if rank == 0 else []
            wanted = {"targets": targets, "target": targets} if rank + 1 == ranks else {}
            schedule.step(*given, **wanted, losses=losses, return_outputs=False)
            loss = sum(losses, start=torch.zeros((), device=device)).detach()
            # 6. What the schedule leaves to us: a tied head's gradients, those from other rows, the norm of all stages.
            for weight in tied:
                dist.all_reduce(weight.grad, group=ends)
            trained = [weight for weight in model.parameters() if weight.grad is not None]  # a router's bias has none
            for weight in trained if copies.size() > 1 else ():
                dist.all_reduce(weight.grad, group=copies)
            square = get_total_norm([weight.grad for weight in own.values() if weight.grad is not None]) ** 2
            dist.all_reduce(square, group=pipeline)
            clip_grads_with_norm_(model.parameters(), 1.0, square.sqrt())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            dist.all_reduce(loss)
        evidence.record(loss.item())
    save_weights(own, settings)
    evidence.close()


class PassOn(torch.nn.Module):
    """In the place of what another stage has. What is left keeps its name: a checkpoint opens in other layouts."""

    def forward(self, hidden: torch.Tensor, *_: object, **__: object) -> torch.Tensor | int:
        return hidden if hidden.is_floating_point() else 0  # of position_ids: the first stage has added them


class Stage(torch.nn.Module):
    """Some blocks of the model in a row; the first stage embeds the tokens, the last one gives the sum of the loss."""

    def __init__(self, model: PreTrainedModel, number: int, count: int, settings: DimensionSettings) -> None:
        super().__init__()
        self.model, self.number, self.bf16 = model, number, settings.bf16
        use_loss_head(model, settings)
        is_tied = model.config.tie_word_embeddings and count > 1 and number in (0, count - 1)
        self.tied = model.get_input_embeddings().weight if is_tied else None  # the other end has it, too
        blocks = blocks_of(model)
        for index in range(len(blocks)):
            if index * count // len(blocks) != number:
                blocks[index] = PassOn()
        others = (FIRST if number > 0 else ()) + (LAST if number + 1 < count else ())
        for name, _ in list(model.named_modules()):
            if name.rpartition(".")[2] in others and not re.search(r"\.\d+\.", name):  # not inside of a block
                model.set_submodule(name, PassOn())
        # By their names in the model, for the norm and a checkpoint; a tied head is the first stage's.
        self.own = {name: weight for name, weight in model.named_parameters() if not number or weight is not self.tied}

    def forward(self, hidden: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        """Token ids in the first stage, else hidden states [rows, positions, hidden size]; targets in the last one."""
        self.model.get_output_embeddings().targets = targets
        with torch.autocast(hidden.device.type, torch.bfloat16, enabled=self.bf16):
            return self.model(hidden).logits


def loss_of_stages(settings: DimensionSettings, model: PreTrainedModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss of a model in two stages, whose weights are the model's."""
    weights = {id(weight): weight for weight in model.parameters()}
    first, last = (Stage(deepcopy(model, dict(weights)), number, 2, settings) for number in range(2))
    return last(first(batch["input_ids"]), next_targets(batch["labels"]))


def prediction(model: PreTrainedModel, settings: DimensionSettings, ranks: int, count: int) -> dict[str, str | float]:
    """The share of a step in which a rank waits if all are equal, and the work of the largest in that of the mean.

    The work is the weights that each token is multiplied with: those of the blocks, and on the last rank the head.
    """
    size, blocks = model_size(model), len(blocks_of(model))
    work = [0.0] * (ranks - 1) + [float(size.embedding_parameters)]
    for index in range(blocks):
        work[index * count // blocks % ranks] += size.block_parameters / blocks
    bubble, imbalance = (ranks - 1) / (count // ranks * settings.grad_acc + ranks - 1), max(work) * ranks / sum(work)
    if dist.get_rank() == 0:
        print(f"bubble: {bubble:.1%} if the stages are equal; the largest has {imbalance:.2f} times the mean's work")
    return {"schedule": settings.schedule, "stages": count, "bubble": bubble, "imbalance": imbalance}


if __name__ == "__main__":
    main()
    end_rank()
