"""An FSDP configuration: the Trainer's own `fsdp_config`, and two keys more:

    fsdp               false: plain DDP, for comparison; beside it DDP's options, of which the Trainer knows half
    dp_replicate_size  HYBRID_SHARD: number of groups of ranks that each hold one whole, sharded copy of the model

The Trainer ignores a key it does not know, so older material that wrote `offload_to_cpu` or `mixed_precision` there got
neither (erratum K3). Here a key that nothing reads, or not in the chosen version, is an error.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workshop.record.errors import InputError
from workshop.record.printable import counted
from workshop.settings.json_file import checked, read_kinds, words
from workshop.settings.model_file import block_classes, model_file

_TABLE = read_kinds(Path(__file__).with_name("fsdp_keys.toml"))
COMMON, DDP, BY_HAND, _NEW_NAMES = (_TABLE[name] for name in ("common", "ddp", "by_hand", "new_names"))
BY_VERSION = {version: _TABLE[f"fsdp{version}"] for version in (1, 2)}
_OTHER = {
    **{"mixed_precision": "FP16 or BF16 in env_vars.sh", "fsdp_config": "its keys one level higher, without it"},
    **dict.fromkeys(DDP, '"fsdp": false beside it, because it is DDP\'s'),
}


def checked_fsdp(path: Path, content: dict[str, Any], settings: Mapping[str, Any], world_size: int) -> dict[str, Any]:
    """Return the configuration with its version. Raises InputError for keys that are ignored or cannot work."""
    check_keys(path, content)
    if not content.get("fsdp", True):
        return content
    content = {"version": 2} | content
    fused = "fused" in settings.get("optimizer", "")
    if content["version"] == 1 and content.get("cpu_offload") and settings.get("fp16") and fused:
        # Found on the GPU: the scaler's overflow flag has another shape than the CPU's fused step takes (torch 2.13).
        raise InputError(
            f"OPTIMIZER={settings['optimizer']}: {path} is FSDP1 with cpu_offload, where fp16 gradient scaling cannot "
            "drive a fused optimizer on the CPU; expected OPTIMIZER=adamw_torch, BF16=true, or version 2"
        )
    if settings.get("gradient_checkpointing"):
        raise InputError(
            f'GRADIENT_CHECKPOINTING=true: under FSDP set "activation_checkpointing": true in {path}; the '
            "Trainer's own would gather every block once more in the backward pass"
        )
    check_copies(path, "dp_replicate_size", content.get("dp_replicate_size", 1), world_size)
    return content


def check_copies(path: Path, key: str, copies: int, world_size: int) -> None:
    """Raises InputError unless the ranks can be split into so many groups of equal size, at least two."""
    if copies > 1 and (world_size % copies or world_size // copies < 2):
        raise InputError(
            f"{path}: {key} is {copies}, which cannot split {counted(world_size, 'GPU')} into groups of "
            f"equally many, at least two; expected GPUs in a multiple of {copies}, {2 * copies} or more"
        )


def check_blocks(path: str, content: Mapping[str, Any], model_name: str) -> None:
    """Raises InputError for a unit that is no block: embedding and head, which may be tied, are sharded in any case."""
    kind = str(model_file(model_name).get("model_type"))
    blocks, given = block_classes(kind), content.get("transformer_layer_cls_to_wrap", ())
    if blocks and (others := ", ".join(name for name in given if name not in blocks)):
        expected = f"expected {' or '.join(sorted(blocks))}, blocks of a {kind}"
        raise InputError(f"{path}: transformer_layer_cls_to_wrap is {others}; {expected}")


def check_keys(path: Path, content: dict[str, Any]) -> None:
    """Raises InputError for a key that nothing reads or a value that does not fit."""
    checked(path, {name: content[name] for name in ("fsdp", "version") if name in content}, COMMON)
    version = content.get("version", 2)
    kinds, where = COMMON | BY_VERSION[version], f" in FSDP{version}"
    if not content.get("fsdp", True):
        kinds, where = {"fsdp": "flag"} | DDP, ' where "fsdp" is false'
    other = {}
    for name in content:
        bare = name.removeprefix("fsdp_")
        new = _NEW_NAMES.get(bare, bare)
        if new != name and new in kinds:
            other[name] = f"{new}: {words(kinds[new])}"
        elif new in BY_VERSION[1]:
            other[name] = f'{new}, and "version": 1'
    checked(path, content, kinds, other=_OTHER | other, where=where)
