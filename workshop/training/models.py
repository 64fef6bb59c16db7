"""Models by name: pretrained from the hub, or a known shape with random weights that needs no download."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from workshop.private_names import TorchDispatchMode, changes_its_input
from workshop.record.errors import InputError
from workshop.record.schema import Model
from workshop.settings.model_file import decoder_type, shape_path, weight_files
from workshop.settings.settings import Settings


def find_gpu(settings: Settings) -> bool:
    """Return whether there is a GPU; warn of what a run without a GPU does differently."""
    gpu = torch.cuda.is_available()
    if settings.fp16 and not gpu:
        settings.note("warning: FP16=true needs a GPU and there is none; training in fp32")
    return gpu


@contextmanager
def _loading(model_name: str) -> Iterator[None]:
    """Raises InputError for what Transformers cannot read or build."""
    try:
        yield
    except Exception as error:
        damaged = _damaged_file(Path(model_name))
        if not damaged and isinstance(error, RuntimeError | MemoryError):  # no memory, or a GPU's error
            raise
        from workshop.data.hub import hub_error

        raise hub_error(f"MODEL_NAME='{model_name}'", model_name, damaged or error) from error


def _damaged_file(folder: Path) -> ValueError | None:
    """Return an error that names the folder's first file of weights that cannot be read."""
    for file in weight_files(folder):
        try:
            if file.suffix == ".bin":
                torch.load(file, "meta", weights_only=True).keys()
            elif file.suffix == ".safetensors":
                safe_open(file, "pt")
        except Exception as error:
            why = type(error).__name__ if file.suffix == ".bin" else error  # PyTorch would advise to unpickle it
            return ValueError(f"{file.name} of {file.stat().st_size:,} bytes cannot be read: {why}")
    return None


def shape_config(model_name: str) -> Any:
    """The text decoder's configuration: of a known shape or a config.json. Raises InputError listing the shapes."""
    path = shape_path(model_name)
    with _loading(model_name):
        config = AutoConfig.from_pretrained(path).get_text_config(decoder=True)
        kind = decoder_type(config.model_type)
        return config if kind == config.model_type else AutoConfig.for_model(**config.to_dict() | {"model_type": kind})


def model_config(settings: Settings) -> Any:
    """Return the configuration of the settings' model, without weights."""
    if settings.model_init == "random":
        return shape_config(settings.model_name)
    with _loading(settings.model_name):
        return AutoConfig.from_pretrained(settings.model_name)


def load_model(
    settings: Settings,
    tokenizer: PreTrainedTokenizerBase,
    arguments: TrainingArguments | None = None,
    dtype: torch.dtype = torch.float32,
    on_each_rank: bool = False,
    sharded: bool = False,
) -> PreTrainedModel:
    """Return a causal language model. Its fp32 weights are the master weights: mixed precision casts per operation.
    With WEIGHTS=bf16 there are none: the optimizer updates bf16 weights, by bf16 gradients and moments.

    Args:
        arguments: the Trainer's. With ZeRO-3 in them the library builds every layer sharded. With FSDP2 and
            `cpu_ram_efficient_loading` rank 0 alone has the weights, until the Trainer sends every rank its part.
        dtype: weights that are not trained need no fp32: further/lora/ asks for another one.
        on_each_rank: read the weights on every rank, also where rank 0 would send them.
        sharded: the caller shards the model part by part; under the Trainer's FSDP it is sharded so in any case.

    Raises InputError for a shape or a hub name that does not exist, an encoder, an adapter, and missing weights.
    """
    torch.manual_seed(settings.seed)
    dtype = torch.bfloat16 if settings.weights == "bf16" else dtype
    fsdp = arguments.fsdp_config if arguments and arguments.fsdp and not on_each_rank else {}
    sharded |= bool(fsdp)
    # accelerate gives each rank its part of rank 0's weights, whatever the rank has loaded.
    if not (dist.is_initialized() and fsdp.get("version") == 2 and fsdp.get("cpu_ram_efficient_loading")):
        model = _load(settings, dtype, sharded)
    else:  # the others wait
        sent = [None]
        if dist.get_rank() == 0:
            model = _load(settings, dtype, sharded)
            if model.state_dict().keys() <= dict(model.named_parameters(remove_duplicate=False)).keys():
                sent = [with_empty_weights(model, "meta")]
        dist.broadcast_object_list(sent)
        if dist.get_rank() > 0:
            model = _load(settings, dtype, sharded) if sent[0] is None else with_empty_weights(sent[0], "cpu")
        if sent[0] is None:  # accelerate sends parameters only, no buffers
            arguments.fsdp_plugin_args["cpu_ram_efficient_loading"] = False
    if (kind := model.config.model_type) in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise InputError(f"MODEL_NAME='{settings.model_name}': {kind} sees the tokens to predict; expected a decoder")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError(f"MODEL_NAME='{settings.model_name}': found frozen weights, as an adapter's; expected a model")
    fit_to_tokenizer(model, tokenizer, settings)
    return model


def _load(settings: Settings, dtype: torch.dtype, sharded: bool) -> PreTrainedModel:
    name, options = settings.model_name, {"ignore_mismatched_sizes": True, "output_loading_info": True}
    if settings.model_init == "random":
        config = shape_config(name)
        with _loading(name), random_weights(sharded):
            return AutoModelForCausalLM.from_config(config, dtype=dtype)
    with _loading(name):
        # Without dtype the weights would keep the checkpoint's fp16, which the gradient scaler cannot train.
        model, report = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, **options)
    if lacking := sorted(report["missing_keys"] | {key for key, *_ in report["mismatched_keys"]}):  # drawn at random
        what = f"{len(lacking)} weights of its config.json's model missing or of another size, such as {lacking[0]}"
        raise InputError(f"MODEL_NAME='{name}': found {what}; expected all of them, or MODEL_INIT=random")
    return model


def random_weights(sharded: bool) -> AbstractContextManager:
    """Draw the weights of a model that is made inside on the GPU, if there is one: on the CPU 7 billion take minutes.

    Args: sharded: keep them in CPU memory, because the whole model may not fit on the GPU.
    """
    if not torch.cuda.is_available():
        return nullcontext()
    gpu = torch.device("cuda", torch.cuda.current_device())
    return DrawnElsewhere(gpu) if sharded else gpu


class DrawnElsewhere(TorchDispatchMode):
    """Random numbers for tensors in CPU memory are drawn on a device, one tensor after the other.

    They are those of a model that is made on the device: its generator is asked for the same tensors in the same order.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func: Any, _: Any, args: Sequence[Any] = (), kwargs: Mapping | None = None) -> Any:
        options = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **options)
        if changes_its_input(func):  # as normal_, whatever the tensor holds
            return args[0].copy_(func(torch.empty_like(args[0], device=self.device), *args[1:], **options))
        moved = [arg.to(self.device) if isinstance(arg, torch.Tensor) else arg for arg in args]
        return func(*moved, **options | {"device": self.device} if "device" in options else options).cpu()


def with_empty_weights(model: PreTrainedModel, device: str) -> PreTrainedModel:
    """Return a copy with uninitialised parameters on the device, tied as the model's, and its buffers on the CPU.

    On the CPU each parameter has an address of its own, by which accelerate finds it in the optimizer, but no memory:
    the system gives a page to an address when it is first written.
    """
    replaced = {
        **{id(buffer): buffer.cpu() for buffer in model.buffers()},
        **{
            id(weight): torch.nn.Parameter(torch.empty_like(weight, device=device), weight.requires_grad)
            for weight in model.parameters()
        },
    }
    return copy.deepcopy(model, replaced)


def fit_to_tokenizer(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: Settings) -> None:
    """Give the model the tokenizer's special tokens. Raises InputError if its vocabulary is too small."""
    for config in (model.config, model.generation_config):
        config.pad_token_id = tokenizer.pad_token_id
        config.bos_token_id = tokenizer.bos_token_id
        config.eos_token_id = tokenizer.eos_token_id
    if len(tokenizer) > model.config.vocab_size:
        raise InputError(
            f"TOKENIZER_NAME='{settings.tokenizer_name}' has {len(tokenizer)} entries, the model's vocabulary only "
            f"{model.config.vocab_size}: expected a tokenizer that fits {settings.model_name}"
        )


def blocks_of(model: torch.nn.Module) -> torch.nn.ModuleList:
    """Return the transformer blocks."""
    return next(module for module in model.modules() if isinstance(module, torch.nn.ModuleList))


def without_one_result(model: torch.nn.Module) -> list[str]:
    """Return the names of linear layers that return several tensors, as Llama 4's router: adapters cannot add to them.

    Only a layer of a model's own class may do so; it is called without memory, so ZeRO-3 may have sharded it.
    """
    names = []
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and type(layer).__module__.startswith("transformers.models."):
            with torch.device("meta"):
                weights = {"weight": torch.empty(layer.out_features, layer.in_features)}
                weights |= {} if layer.bias is None else {"bias": torch.empty(layer.out_features)}
                result = torch.func.functional_call(layer, weights, torch.empty(1, layer.in_features))
            names += [] if isinstance(result, torch.Tensor) else [name]
    return names


def model_size(model: torch.nn.Module) -> Model:
    """Return the numbers of parameters, each counted once (a tied head is the embedding), also of ZeRO-3 shards and
    4-bit weights. An untied embedding is in no matrix product: the head is as large again.
    """
    layers = [module for module in model.modules() if getattr(module, "quant_state", None)]
    four_bits = {layer.weight: layer.quant_state.shape.numel() for layer in layers}

    def count(parameters: Iterable[torch.nn.Parameter]) -> int:
        return sum(four_bits.get(parameter) or stored_numel(parameter) for parameter in parameters)

    return Model(
        parameters=count(model.parameters()),
        trained_parameters=count(parameter for parameter in model.parameters() if parameter.requires_grad),
        block_parameters=count(blocks_of(model).parameters()),
        embedding_parameters=count(model.get_input_embeddings().parameters()),
        untied_embedding=getattr(model.config, "tie_word_embeddings", True) is False,
    )


def stored_numel(parameter: torch.nn.Parameter) -> int:
    """Return the elements of the whole tensor, also where ZeRO-3 has left a shard of it."""
    return getattr(parameter, "ds_numel", parameter.numel())
