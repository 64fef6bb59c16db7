"""DeepSpeed's Ulysses: each rank holds a part of every row; attention exchanges positions for heads.

On a cluster:         sbatch --gpus-per-node=4 further/dimensions/dimensions.slurm ulysses.py
On a laptop, no GPU:  (source tiny.env && GPUS_PER_NODE=2 bash further/dimensions/dimensions.slurm ulysses.py)

SP_SIZE ranks share a row. All but the attention and the order of the positions is cp.py's, its loop included.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import cp
import deepspeed
import torch
import torch.distributed as dist
from common import end_rank, own_device
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from workshop.kernels.fast_models.packing import next_targets
from workshop.kernels.operators import prepare_operators


def main() -> None:
    cp.main("ulysses", "sp", heads_for_positions, shard_of)


def heads_for_positions(model: PreTrainedModel, group: dist.ProcessGroup, length: int) -> Callable[..., torch.Tensor]:
    """The attention of a part of each row: all-to-alls of queries, keys and values give a rank whole rows of its heads.

    It attends as one process would, and an all-to-all of the result gives all heads of its positions back.
    """
    prepare_operators({"comm": "gloo"})  # only without a GPU: DeepSpeed would compile collectives of its own
    deepspeed.init_distributed()
    positions = torch.arange(length, device=own_device()).chunk(group.size())[group.rank()]

    @cache
    def exchange(rows: int, heads: int, head_size: int, key_heads: int) -> UlyssesSPAttentionHF:
        sizes = (rows, heads, head_size, key_heads, model.config.num_hidden_layers)
        return UlyssesSPAttentionHF(attention, *sizes, group, seq_length_is_variable=True)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None) -> torch.Tensor:
        own = {"position_ids": positions[None], "scaling": scaling}
        rows, heads, _, head_size = query.shape
        result, _ = exchange(rows, heads, head_size, key.shape[1])(model, query, key, value, None, **own)
        return result.unflatten(-1, (heads, head_size)).transpose(1, 2)

    return attend


def attention(_: Any, query: Any, key: Any, value: Any, *__: Any, scaling: float | None, **___: Any) -> Any:
    """What the library's attentions return: [batch, positions, heads, size of a head], and no weights."""
    found = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
    return found.transpose(1, 2), None


def shard_of(batch: dict[str, torch.Tensor], group: dist.ProcessGroup, device: torch.device) -> dict[str, torch.Tensor]:
    """Our part of each row: the exchange puts the parts together in the order of the ranks."""
    whole = {"input_ids": batch["input_ids"], "targets": next_targets(batch["labels"])}
    whole["position_ids"] = torch.arange(batch["labels"].shape[1]).expand_as(batch["labels"])
    return {name: tensor.to(device).chunk(group.size(), dim=1)[group.rank()] for name, tensor in whole.items()}


if __name__ == "__main__":
    main()
    end_rank()
