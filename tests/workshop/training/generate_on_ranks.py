"""Run by test_generation.py on ranks: answers of two ranks, plain and sharded, beside those of one process."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel
from transformers.models.bloom.modeling_bloom import BloomBlock

from tests.workshop.training.test_generation import EARLY_STOP, EXAMPLES, tiny_bloom
from workshop.data.encoding import load_tokenizer
from workshop.job.exit_process import end_process
from workshop.training.generation import answer_questions


def fsdp2(model: torch.nn.Module) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp1(model: torch.nn.Module) -> torch.nn.Module:
    wrapped = FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({BloomBlock}), device_id=torch.device("cpu"), use_orig_params=True
    )
    wrapped(input_ids=torch.tensor([[5, 6]]))  # the first forward pass sets the units up, as training has before
    return wrapped


def main(out: Path) -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    tokenizer = load_tokenizer("sample")
    tokenizer.eos_token = EARLY_STOP
    settings = {"max_length": 300, "max_new_tokens": 12, "batch_size": 2, "device": torch.device("cpu")}
    on_ranks = {"rank": rank, "world_size": world_size}

    answers = {"one process": answer_questions(tiny_bloom(), tokenizer, EXAMPLES, **settings)}
    wrappers = {"ddp": DistributedDataParallel, "fsdp2": fsdp2, "fsdp1": fsdp1}
    for name, wrap in wrappers.items():
        synced = name != "ddp"
        answers[name] = answer_questions(wrap(tiny_bloom()), tokenizer, EXAMPLES, synced=synced, **settings, **on_ranks)
    (out / f"rank{rank}.json").write_text(json.dumps(answers))
    dist.barrier()
    end_process()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
