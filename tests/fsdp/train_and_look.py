"""Run by test_fsdp_training.py on ranks: exercise 5's train.py; RUN_DIR/rankN.json says what lay where in a step."""

import gc
import json
import runpy
from typing import Any

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback
from transformers.models.bloom.modeling_bloom import BloomBlock

from workshop.data.load import Data
from workshop.measure import evidence_calls
from workshop.settings import Settings
from workshop.training.sharding import shard_units


class Look(TrainerCallback):
    """What this rank holds when a step has ended."""

    def __init__(self, settings: Settings, model: torch.nn.Module) -> None:
        self.settings, self.model = settings, model
        self.full_bytes = sum(parameter.nbytes for parameter in model.parameters())
        self.forward_calls = 0
        model.transformer.h[0].self_attention.query_key_value.register_forward_hook(self.count)

    def count(self, *_: object) -> None:
        self.forward_calls += torch.is_grad_enabled()

    def on_step_end(self, args: Any, *_: object, **__: object) -> None:
        parameters = list(self.model.parameters())
        seen = {
            "forward_calls": self.forward_calls,
            "full_bytes": self.full_bytes,
            "blocks": sum(isinstance(module, BloomBlock) for module in self.model.modules()),
            "units": shard_units(self.model.transformer.h),
            "sharded": all(isinstance(parameter, DTensor) for parameter in parameters),
            "local_bytes": sum(parameter.to_local().nbytes for parameter in parameters),
            "devices": sorted({parameter.to_local().device.type for parameter in parameters}),
            # What FSDP does with a shard between its uses; without a GPU the device alone would prove nothing.
            "offloaded": [held.offload_to_cpu for held in gc.get_objects() if type(held) is FSDPParam],
        }
        (self.settings.run_dir / f"rank{args.process_index}.json").write_text(json.dumps(seen))


def measurements(settings: Settings, data: Data, model: torch.nn.Module) -> list[TrainerCallback]:
    return [*of_the_exercise(settings, data, model), Look(settings, model)]


if __name__ == "__main__":
    of_the_exercise, evidence_calls.measurements = evidence_calls.measurements, measurements
    runpy.run_path("train.py", run_name="__main__")
