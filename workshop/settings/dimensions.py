"""Which models the scripts of further/dimensions/ can train, as far as a config.json says it, without torch.

Each script replaces a part of a decoder: all but ep.py the step from its head to the loss, cp.py and ulysses.py its
attention, pp.py the way from block to block, tp.py all matrices. Whether the result is still the library's function a
small model shows when the script starts (check_model in further/dimensions/shared.py).
"""

from collections.abc import Mapping
from typing import Any

from workshop.record.printable import counted

# Types whose head, blocks and attention are Llama's, as small models show (tests/further/dimensions/).
LIKE_LLAMA = ("llama", "mistral", "olmoe", "phi3", "qwen2", "qwen3", "qwen3_moe", "smollm3")


def is_like_llama(model: Mapping[str, Any], max_length: int) -> bool:
    """Return whether cp.py, ulysses.py and pp.py are known to train this model: no window is shorter than a row."""
    window = model.get("use_sliding_window", True) and model.get("sliding_window")
    plain = (window or max_length) >= max_length and not model.get("attention_dropout")
    return plain and model.get("model_type") in LIKE_LLAMA


def why_not(script: str, model: Mapping[str, Any], parts: int = 1) -> str:
    """Return why the script does not train a model, or not on so many ranks; "" if nothing in its config.json says so.

    Args: script: tp, cp, ulysses, pp or ep; model: the content of its config.json; parts: ranks that share a row, a
        matrix or the experts, or stages.
    """
    kind = str(model.get("model_type"))
    known = {"tp": "llama", "ep": "olmoe"}.get(script)
    if known and kind != known:
        return f"{script}.py trains no {kind}; expected a model of type {known}"
    heads, layers = model.get("num_attention_heads", parts), model.get("num_hidden_layers", parts)
    keys = model.get("num_key_value_heads") or heads
    if script == "tp" and keys % parts:
        return f"found {counted(keys, 'key head')} for {parts} ranks; expected a multiple: a rank has whole heads"
    if script == "ulysses" and (heads % parts or (keys % parts and parts % keys)):
        return f"found {counted(heads, 'head')}, {keys} of keys, for {parts} ranks; expected multiples"
    if script == "ep" and (experts := model.get("num_experts", parts)) % parts:
        return f"found {counted(experts, 'expert')} for {parts} ranks; expected a multiple"
    if script == "pp" and layers < parts:
        return f"found {counted(layers, 'layer')} for {parts} stages; expected at least one for each"
    if model.get("output_router_logits") and script != "ep":
        return f"{script}.py would train another model than this {kind}: it leaves out the router's own loss"
    return ""
