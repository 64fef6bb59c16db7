"""The settings of the workshop and of the speed ladder; combinations that cannot work are errors at the start."""

from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workshop.record.errors import InputError
from workshop.settings.attention import GPU_KERNELS, HEAD_SIZES, fastest_kernel
from workshop.settings.configuration import Configuration
from workshop.settings.settings import Settings, boolean, choice, count, positive, setting

RUNGS = Path(__file__).parent / "rungs"  # each sources the one below, so all are checked
UNREAD_BY_PEERS = ("fp16", "gradient_checkpointing", "resume_from", "save")


@dataclass(frozen=True, kw_only=True)
class LadderSettings(Settings):
    """The defaults are the library's behaviour."""

    rung: str = setting()  # the file in rungs/ that env_vars.sh has read the others from
    packing: bool = setting(boolean, False)  # several examples in a row of MAX_LENGTH tokens, with document masking
    attention: str = setting(choice("eager", "sdpa", *GPU_KERNELS, "auto"), "eager")  # auto: by the rows
    loss: str = setting(choice("full", "chunked", "liger"), "full")
    loss_chunk: int = setting(positive, 4096)  # positions whose logits exist at once; not with LOSS=full
    logits: str = setting(choice("all", "labelled"), "all")  # labelled: skip positions without a target
    stream: str = setting(choice("fp32", "bf16"), "fp32")  # residual dtype between the blocks, with BF16=true
    compile: bool = setting(boolean, False)  # torch.compile, block by block
    cuda_graph: bool = setting(boolean, False)  # launch a micro-batch's kernels by one call; one GPU
    float8: str = setting(choice("none", "tensorwise", "rowwise"), "none")  # the blocks' matrix products; not exact
    data_workers: int = setting(count, 0)  # processes that make the next batches; 0: the training's process

    @classmethod
    def check_env_file(cls, env_file: Path) -> dict[str, int]:
        """Check the exercise's file and the rungs' files."""
        for rung_file in sorted(RUNGS.glob("*.env")):
            super().check_env_file(rung_file)
        return super().check_env_file(env_file)

    def check(self) -> None:
        super().check()
        if self.fp16 and self.loss != "full":
            raise InputError(
                f"FP16=true and LOSS={self.loss}: it computes its gradients without fp16's scale, and they would "
                "underflow; expected BF16=true FP16=false, or LOSS=full"
            )
        if self.float8 != "none" and not self.bf16:
            raise InputError(f"FLOAT8={self.float8}: what is not float8 is bf16; expected BF16=true FP16=false")
        if self.cuda_graph and (self.gradient_checkpointing or self.padding == "dynamic"):
            other = "GRADIENT_CHECKPOINTING=true" if self.gradient_checkpointing else "PADDING=dynamic"
            raise InputError(f"CUDA_GRAPH=true and {other}: a graph repeats one step; expected one of them left out")
        for name in ("packing", "compile"):
            if getattr(self, name) and self.padding == "dynamic":
                why = "packed rows are full" if name == "packing" else "every new length would be compiled anew"
                raise InputError(f"{name.upper()}=true and PADDING=dynamic: {why}; expected PADDING=max_length")
        if self.rung.startswith("peer_") and self.switches:
            raise InputError(f"{self.switches}: switches of the ladder's rungs; expected them left out for a peer")
        for name in UNREAD_BY_PEERS:
            if self.rung.startswith("peer_") and (value := getattr(self, name)) not in ("no", "", 0):
                raise InputError(f"{name.upper()}={value}: no peer reads it; expected it left out")

    def check_start(self) -> None:
        if self.rung.startswith("peer_") != (self.start.script == "peers.py"):
            raise InputError(
                f"RUNG={self.rung}: {self.start.launcher} does not train it; expected peers.slurm or "
                "peers_torchrun.slurm for a peer, another launcher for the other rungs"
            )

    def check_with(self, configuration: Configuration) -> None:
        super().check_with(configuration)
        config = configuration.values
        if self.cuda_graph:
            why = "its collectives and hooks are not part of a graph"
            raise InputError(f"CUDA_GRAPH=true: {self.config} shards or copies the model, and {why}; expected one GPU")
        zero, deepcompile = config.get("zero_optimization"), config.get("compile", {}).get("deepcompile")
        if zero and self.float8 != "none":
            raise InputError(f"FLOAT8={self.float8}: {self.config} is DeepSpeed's; expected FSDP2, DDP or one GPU")
        if zero and zero["stage"] == 3 and self.compile and not deepcompile:
            raise InputError(
                f"COMPILE=true: {self.config} is ZeRO-3, whose hooks gather parameters inside the blocks that we "
                "compile; expected COMPILE=false, stage 0, 1 or 2, or ds_configs/tuning/zero3_deepcompile.json"
            )
        if self.switches and config.get("version") == 1:
            raise InputError(
                f"{self.switches}: {self.config} is FSDP1, which rebuilds the modules that these change; expected "
                "version 2"
            )

    @property
    def switches(self) -> str:
        """Settings that change the model, as in "ATTENTION=flex PACKING=true"; "" for none."""
        usual = {item.name: item.default for item in fields(self)}
        names = ("attention", "packing", "loss", "logits", "stream", "float8", "compile", "cuda_graph")
        on = [name for name in names if getattr(self, name) != usual[name]]
        return " ".join(f"{name.upper()}={str(getattr(self, name)).lower()}" for name in on)


def sharding_arguments(settings: LadderSettings, gpu: bool) -> dict[str, Any]:
    """Return the Trainer's arguments for the launcher's ZeRO, FSDP or DDP configuration; {} without one."""
    from workshop.training import fsdp  # torch with it; the launcher reads settings without

    arguments = fsdp.sharding_arguments(settings, gpu)
    if arguments.get("deepspeed", {}).get("compile", {}).get("deepcompile"):
        arguments["torch_compile"] = True  # accelerate has DeepSpeed's engine compile the whole model
    return arguments


def check_rung(settings: LadderSettings) -> tuple[LadderSettings, bool]:
    """Return the settings with this machine's fallbacks, and whether there is a GPU; print the rung's switches and
    every fallback.

    Raises InputError for what this machine or this kind of model does not support.
    """
    from workshop.kernels.fast_models.attention import head_size
    from workshop.training.models import find_gpu, model_config

    gpu, config = find_gpu(settings), model_config(settings)
    if settings.attention == "auto":
        chosen = fastest_kernel(config.model_type, head_size(config), settings.packing, settings.max_length)
        settings = replace(settings, attention=chosen)
    lines = [f"rung {settings.rung}, repeat {settings.repeat}: {settings.switches or 'the library as it is'}"]
    if settings.attention in GPU_KERNELS and not gpu:
        name = f"ATTENTION={settings.attention}"
        lines += [f"warning: {name} needs a GPU to train and there is none; using sdpa, which computes the same"]
    if settings.cuda_graph and not gpu:
        lines += ["warning: CUDA_GRAPH=true needs a GPU and there is none; steps run as usual"]
    if settings.stream == "bf16" and not settings.bf16:
        lines += ["warning: STREAM=bf16 needs BF16=true; the sum through the blocks stays in the type they compute in"]
    settings.note("\n".join(lines))
    _check_machine(settings, gpu)
    _check_model(settings, config)
    return settings, gpu


def _check_machine(settings: LadderSettings, gpu: bool) -> None:
    import torch

    if settings.loss == "liger" and not (gpu and find_spec("liger_kernel")):
        missing = "the package liger-kernel (requirements-gpu.txt)" if gpu else "a GPU (it is written in Triton)"
        raise InputError(f"LOSS=liger needs {missing}; expected LOSS=chunked, which does the same in PyTorch")
    if settings.float8 == "none":
        return
    name = f"FLOAT8={settings.float8}"
    capability = torch.cuda.get_device_capability() if gpu else None
    if not capability or capability < (8, 9):  # of the GPUs whose tensor cores multiply 8-bit floating point
        needed = f"needs a GPU of compute capability 8.9 or above (L4, H100 or newer), found {capability or 'none'}"
        raise InputError(f"{name} {needed}; expected FLOAT8=none")
    if not find_spec("torchao"):
        raise InputError(f"{name} needs torchao; expected: pip install -r requirements-gpu.txt, or FLOAT8=none")


def _check_model(settings: LadderSettings, config: Any) -> None:
    from workshop.kernels.fast_models import FAMILIES, difference, packed_with
    from workshop.kernels.fast_models.attention import head_size

    switches, kind, model = settings.switches, config.model_type, f"MODEL_NAME='{settings.model_name}'"
    window = getattr(config, "sliding_window", None)
    if switches and window and window < settings.max_length:
        seen = f"{model} sees {window} tokens back, which they leave out"
        raise InputError(f"{switches}: {seen}; expected MAX_LENGTH={window} or less, or these left out")
    name = f"ATTENTION={settings.attention}"
    if settings.attention in GPU_KERNELS and kind == "gpt2":
        raise InputError(f"{name}: GPT-2 of the library takes no such mask; expected ATTENTION=sdpa")
    if settings.attention == "documents" and (size := head_size(config)) not in HEAD_SIZES:
        raise InputError(f"{name}: {model} has heads of {size}; expected one of {HEAD_SIZES}, or ATTENTION=flex")
    if settings.attention == "cudnn" and (settings.packing or kind == "bloom"):
        why = "PACKING=true packs several documents into a row" if settings.packing else f"{model} has ALiBi"
        raise InputError(f"{name} is called without a mask, and {why}; expected ATTENTION=documents or flex")
    # The library's sdpa drops out what it should; BLOOM's, which is ours, does not, and flex cannot.
    kernels = ("sdpa", *GPU_KERNELS) if kind == "bloom" else GPU_KERNELS
    if settings.attention in kernels and getattr(config, "attention_dropout", 0):
        raise InputError(
            f"{name}: the model has attention_dropout={config.attention_dropout}, which this "
            f"kernel leaves out; expected 0, or ATTENTION={'eager' if 'sdpa' in kernels else 'sdpa'}"
        )
    if switches and kind not in FAMILIES:
        loss = "full" if settings.loss == "full" else "chunked"  # the others are the same function
        if reason := difference(config, settings.max_length, packed_with(settings.attention, loss)):
            found = f"{model} is a {kind}, which they would not train as it is ({reason})"
            raise InputError(f"{switches}: {found}; expected these left out")
