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

from tests.workshop.training.test_generation import EARLY_STOP, generate, tiny_bloom
from workshop.data.encoding import load_tokenizer
from workshop.job.exit_process import end_process


def fsdp2(model: torch.nn.Module) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp1(model: torch.nn.Module) -> torch.nn.Module:
    return FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({BloomBlock}), device_id=torch.device("cpu"), use_orig_params=True
    )


def main(out: Path) -> None:
    tokenizer = load_tokenizer("sample")
    tokenizer.eos_token = EARLY_STOP
    answers = {"one process": generate(tiny_bloom(), tokenizer, batch_size=2)}
    dist.init_process_group("gloo")
    for name, wrap in {"ddp": DistributedDataParallel, "fsdp2": fsdp2, "fsdp1": fsdp1}.items():
        model = wrap(tiny_bloom())
        with torch.no_grad():  # as an evaluation, which sets FSDP1's units up and leaves FSDP2's embedding gathered
            model(input_ids=torch.tensor([[5, 6]]))
        answers[name] = generate(model, tokenizer, batch_size=2)
    (out / f"rank{dist.get_rank()}.json").write_text(json.dumps(answers))
    dist.barrier()
    end_process()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
