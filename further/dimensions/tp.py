"""The other dimensions: tensor parallelism. The ranks share every matrix, and each sees every token.

On a cluster:         sbatch further/dimensions/dimensions.slurm tp.py
Without SLURM:        GPUS_PER_NODE=2 bash further/dimensions/dimensions.slurm tp.py
On a laptop, no GPU:  the same in brackets: (source tiny.env && ...)

Compare with FSDP: diff further/by-hand/fsdp.py further/dimensions/tp.py
"""

from functools import partial
from itertools import islice
from math import ceil

import torch
import torch.distributed as dist
from common import build_model, end_rank, own_device
from ddp import batches_of_steps
from dimension_settings import DimensionSettings
from shared import check_model, clip_grad_norm, loss_of_head, optimizer_of, save_weights, use_loss_head
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, DistributedSampler
from transformers import PreTrainedModel

from custom_model.settings import MODEL_NAME
from workshop.data.encoding import IGNORE, load_tokenizer
from workshop.data.load import load_data
from workshop.kernels.fast_models.packing import next_targets
from workshop.measure.by_hand_recorder import StepEvidence, open_records
from workshop.measure.run_facts import local_numel
from workshop.training.models import blocks_of


def main() -> None:
    settings = DimensionSettings.of("tp")
    open_records(settings)
    # 1. The ranks meet in a mesh of dp_size x tp_size. Neighbours, on one node, share the matrices: they talk most.
    device = own_device()
    dist.init_process_group()  # NCCL for tensors on GPUs, gloo for those in CPU memory
    dp_size, tp_size = settings.layout(dist.get_world_size())
    mesh = init_device_mesh(device.type, (dp_size, tp_size), mesh_dim_names=("dp", "tp"))
    check_model(settings, partial(loss_of_head, settings))

    # 2. The data. The ranks that share the matrices have the same rows: the sampler counts groups, not ranks.
    tokenizer = load_tokenizer(settings.tokenizer_name or settings.model_name)
    data = load_data(settings, tokenizer)
    sampler = DistributedSampler(data.train, dp_size, mesh.get_local_rank("dp"), seed=settings.seed)
    loader = DataLoader(data.train, settings.batch_size, sampler=sampler, collate_fn=data.collator)

    # 3. The model, cut along "tp". Every rank has all weights in CPU memory and moves its part of each to the GPU
    #    (src_data_rank=None).
    model = build_model(settings, tokenizer)
    head = use_loss_head(model, settings)
    between = Shard(1) if settings.sequence_parallel else Replicate()
    parallelize_module(model, mesh["tp"], plan(model, between), src_data_rank=None)
    model.tie_weights()  # embedding and head have become two parameters; each rank has the same rows of both
    held = local_numel(model.parameters())
    evidence = StepEvidence(settings, model, data, method="tp", dp_size=dp_size, rank_parameters=held)
    #    And sharded along "dp", as in fsdp.py: what is gathered and reduced is a rank's part.
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if settings.bf16 else None)
    options = {"mesh": mesh["dp"], "mp_policy": policy, "reshard_after_forward": True}
    for block in blocks_of(model):
        fully_shard(block, **options)
    fully_shard(model, **options)

    # 4. The optimizer, as in fsdp.py.
    steps = settings.max_steps or settings.num_epochs * ceil(len(loader) / settings.grad_acc)
    optimizer, scheduler = optimizer_of(model, settings, steps)

    for micro_batches in islice(batches_of_steps(loader, settings), steps):
        with evidence.step(micro_batches):
            # 5. Targets and loss are summed along "dp" only: along "tp" they are the same.
            targets = sum((batch["labels"][:, 1:] != IGNORE).sum() for batch in micro_batches).to(device)
            dist.all_reduce(targets, group=mesh.get_group("dp"))
            loss = torch.zeros((), device=device)
            for number, batch in enumerate(micro_batches, start=1):
                ids, head.targets = batch["input_ids"].to(device), next_targets(batch["labels"]).to(device)
                # With sequence parallelism a block has a part of the positions: it cannot count them by itself.
                positions = torch.arange(ids.shape[1], device=device)[None]
                model.set_requires_gradient_sync(number == len(micro_batches))
                with loss_parallel():  # each rank has the logits of a part of the vocabulary, and never all of them
                    # Rows are padded on the right, where causal attention looks from no real token: no mask.
                    share = model(input_ids=ids, position_ids=positions).logits.to_local() / targets
                    (share * dp_size).backward()  # FSDP averages over dp_size
                loss += share.detach()
            # 6. The norm over all parts; a part that several ranks have counts once.
            clip_grad_norm(model)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            dist.all_reduce(loss, group=mesh.get_group("dp"))
        evidence.record(loss.item())
    save_weights(dict(model.named_parameters()), settings)
    evidence.close()


def plan(model: PreTrainedModel, between: Placement) -> dict[str, ParallelStyle]:
    """How each part is cut; `between` is how the ranks hold what passes between two parts: all of it, or by positions.

    Of two matrices in a row the first is cut by columns (its outputs), the second by rows (its inputs). So the ranks
    add up twice only: the second's outputs in the forward pass, the gradient of the first's input in the backward pass.
    Each sum is an all-reduce, or by positions a reduce-scatter, and an all-gather where all of it is needed again.
    """
    columns, rows = ColwiseParallel(input_layouts=between), RowwiseParallel(output_layouts=between)
    embedding = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)  # by rows: its vocabulary
    # By columns, the same cut: a tied head is the same part. Its output is the loss, which all ranks have.
    head = ColwiseParallel(input_layouts=between, output_layouts=Replicate(), use_local_output=False)
    if model.config.model_type == MODEL_NAME:
        parts = {
            "token_embedding": embedding,
            "blocks.*.attention.qkv_proj": columns,
            "blocks.*.attention.out_proj": rows,
            "blocks.*.up_proj": columns,
            "blocks.*.down_proj": rows,
            "head": head,
        }
        norms = ("blocks.*.*_norm", "final_norm")
        parts["position_embedding"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=between)
    else:
        # Several matrices have the same input: made a DTensor once, its gradients are added up before the ranks do.
        parts = {
            "model.embed_tokens": embedding,
            "model.layers.*.self_attn": PrepareModuleInput(
                input_kwarg_layouts={"hidden_states": between},
                desired_input_kwarg_layouts={"hidden_states": Replicate()},
            ),
            "model.layers.*.mlp": PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate()),
            "model.layers.*.self_attn.[qkv]_proj": ColwiseParallel(),
            "model.layers.*.self_attn.o_proj": rows,
            "model.layers.*.mlp.gate_proj": ColwiseParallel(),
            "model.layers.*.mlp.up_proj": ColwiseParallel(),
            "model.layers.*.mlp.down_proj": rows,
            "lm_head": head,
        }
        norms = ("model.layers.*.*_layernorm", "model.norm")
    by_position = {name: SequenceParallel(use_local_output=True) for name in norms}  # each rank norms its positions
    return parts | (by_position if between.is_shard() else {})


if __name__ == "__main__":
    main()
    end_rank()  # not Python's own end, which can abort while gloo's threads still let go of tensors
