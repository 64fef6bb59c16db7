"""Run by test_fsdp_training.py on ranks: the gradient scaler of fp16 on shards, overflow on one rank only."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from workshop.job.exit_process import end_process


def main(offload: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 8)
    fully_shard(
        layer,
        mesh=init_device_mesh("cpu", (dist.get_world_size(),)),
        mp_policy=MixedPrecisionPolicy(param_dtype=torch.float16),
        offload_policy=CPUOffloadPolicy(pin_memory=False) if offload else OffloadPolicy(),
    )
    optimizer = torch.optim.AdamW(layer.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = layer.weight.full_tensor().clone()

    def step(scale_of_input: float) -> torch.Tensor:
        scaler.scale(layer(torch.full((2, 8), scale_of_input)).float().mean()).backward()
        if dist.get_rank() == 1 and scale_of_input > 1:
            layer.weight.grad.to_local().fill_(float("inf"))
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return layer.weight.full_tensor()

    assert torch.equal(step(2.0), before), "a rank without an overflow made the step"
    assert scaler.get_scale() == 2.0, "the scale did not fall on every rank"
    assert not torch.equal(step(1.0), before), "no step was made after the overflow"


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for offload in (False, True):
        main(offload)
    dist.barrier()
    end_process()
