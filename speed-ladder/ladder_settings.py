"""The settings of the workshop and what the speed ladder adds to them; what cannot work is an error at the start."""

import os
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evidence.settings import boolean, choice, count, positive, setting
from workshop.deepspeed import deepspeed_config, read_json
from workshop.errors import WorkshopError
from workshop.fsdp import fsdp_config
from workshop.models import model_config
from workshop.settings import Settings
from workshop.without_gpu import find_gpu

RUNGS = Path(__file__).parent / "rungs"  # each sources the one below, so all are checked


@dataclass(frozen=True, kw_only=True)
class LadderSettings(Settings):
    """The defaults are the library's own way."""

    rung: str = setting()  # the file in rungs/ that env_vars.sh has read the others from
    packing: bool = setting(boolean, False)  # several examples in a row of MAX_LENGTH tokens, blind to each other
    attention: str = setting(choice("eager", "sdpa", "flex"), "eager")
    loss: str = setting(choice("full", "chunked", "liger"), "full")
    loss_chunk: int = setting(positive, 4096)  # positions whose logits exist at once, with LOSS=chunked or liger
    logits: str = setting(choice("all", "labelled"), "all")  # labelled: of the positions that have a target only
    stream: str = setting(choice("fp32", "bf16"), "fp32")  # the residual between the blocks, with BF16=true
    compile: bool = setting(boolean, False)  # torch.compile, block by block
    data_workers: int = setting(count, 0)  # processes that make the next batches meanwhile; 0: the training's own

    @classmethod
    def check_env_file(cls, env_file: Path) -> dict[str, int]:
        """As in every exercise, and the rungs' files with it."""
        for rung_file in sorted(RUNGS.glob("*.env")):
            super().check_env_file(rung_file)
        return super().check_env_file(env_file)

    def check(self) -> None:
        super().check()
        if self.fp16 and self.loss != "full":
            raise WorkshopError(
                f"FP16=true and LOSS={self.loss}: the loss computes its gradients before fp16's scale is known and "
                "they would underflow; expected BF16=true FP16=false, or LOSS=full"
            )
        for name in ("packing", "compile"):
            if getattr(self, name) and self.padding == "dynamic":
                why = "packed rows are full" if name == "packing" else "every new length would be compiled anew"
                raise WorkshopError(f"{name.upper()}=true and PADDING=dynamic: {why}; expected PADDING=max_length")

    @property
    def switches(self) -> str:
        """Those that are on and change the model: "ATTENTION=flex PACKING=true"; "" for none."""
        usual = {item.name: item.default for item in fields(self)}
        names = ("attention", "packing", "loss", "logits", "stream", "compile")
        on = [name for name in names if getattr(self, name) != usual[name]]
        return " ".join(f"{name.upper()}={str(getattr(self, name)).lower()}" for name in on)


def sharding_arguments(settings: LadderSettings, gpu: bool) -> dict[str, Any]:
    """The Trainer's arguments for the launcher's: none on one GPU, a ZeRO configuration, an FSDP or DDP one.

    Raises WorkshopError where the rung cannot work with it.
    """
    if not settings.config:
        return {}
    path = Path(settings.config)
    if "zero_optimization" in read_json(path):  # DeepSpeed's, wherever it lies
        config = deepspeed_config(settings)
        if settings.compile and config.get("zero_optimization", {}).get("stage") == 3:
            raise WorkshopError(
                f"COMPILE=true: {path} is ZeRO-3, which gathers the parameters of every layer in hooks between them, "
                "where a compiled block has no between; expected COMPILE=false, or stage 0, 1 or 2"
            )
        return {"deepspeed": config}
    config, mesh = fsdp_config(settings)
    if config is None:
        return {"ddp_find_unused_parameters": False}  # DDP: the model uses all of them, no search in every step
    if settings.switches and config.get("version") == 1:
        raise WorkshopError(
            f"{settings.switches}: {path} is FSDP1, which rebuilds the modules that these change; "
            "expected version 2, or none"
        )
    backend = {"ddp_backend": "cpu:gloo,cuda:nccl"} if gpu else {}
    return {"fsdp": True, "fsdp_config": config, "parallelism_config": mesh, **backend}


def check_rung(settings: LadderSettings) -> bool:
    """Whether there is a GPU; says what the rung turns on, and where a run without a GPU goes another way.

    Raises WorkshopError for what this machine or this kind of model cannot do.
    """
    gpu, config = find_gpu(settings), model_config(settings)
    lines = [f"rung {settings.rung}, repeat {settings.repeat}: {settings.switches or 'the library as it is'}"]
    if settings.attention == "flex" and not gpu:
        lines += ["warning: ATTENTION=flex needs a GPU to train and there is none; using sdpa, which computes the same"]
    if settings.stream == "bf16" and not settings.bf16:
        lines += ["warning: STREAM=bf16 needs BF16=true; what blocks hand on stays in the type they compute in"]
    if os.environ.get("RANK", "0") == "0":
        print("\n".join(lines))
    if settings.loss == "liger" and not (gpu and find_spec("liger_kernel")):
        missing = "the package liger-kernel (requirements-gpu.txt)" if gpu else "a GPU (it is written in Triton)"
        raise WorkshopError(f"LOSS=liger needs {missing}; expected LOSS=chunked, which does the same in PyTorch")
    if settings.switches and config.model_type != "bloom":
        raise WorkshopError(
            f"{settings.switches}: written for BLOOM, but MODEL_NAME='{settings.model_name}' is a {config.model_type}; "
            "expected a BLOOM, or these switches left out"
        )
    if settings.attention != "eager" and config.attention_dropout:
        raise WorkshopError(
            f"ATTENTION={settings.attention}: the model has attention_dropout={config.attention_dropout}, which fused "
            "attention leaves out; expected 0, as BLOOM has it, or ATTENTION=eager"
        )
    return gpu
