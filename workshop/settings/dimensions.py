"""Which models the scripts of further/dimensions/ can train, as far as a config.json says it, without torch.

Each script replaces a part of a decoder: all but ep.py the step from its head to the loss, cp.py and ulysses.py its
attention, pp.py the way from block to block, tp.py all matrices. This is read before anything is queued; when a script
starts, a small model also shows that the result is the library's function (further/dimensions/shared.py).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workshop.record.errors import read_json
from workshop.record.printable import counted

# Types whose head, blocks and attention are Llama's, as small models show (tests/further/dimensions/), with the window
# (tokens) that the library takes where a config.json names none; 0: none. Of the others only head and blocks are.
LIKE_LLAMA, OWN_ATTENTION = read_json(Path(__file__).with_name("decoder_types.json")).values()
TYPES = {"tp": ["llama"], "ep": ["olmoe"], "cp": LIKE_LLAMA, "ulysses": LIKE_LLAMA, "pp": [*LIKE_LLAMA, *OWN_ATTENTION]}


def why_not(script: str, model: Mapping[str, Any], max_length: int, parts: int = 1) -> str:
    """Return why the script does not train a model, or not on so many ranks; "" if it does.

    Args: script: ddp, fsdp, zero, tp, cp, ulysses, pp or ep; model: the content of its config.json; max_length: tokens
        of a row; parts: ranks that share a row, a matrix or the experts, or stages.
    """
    kind = str(model.get("model_type"))
    if kind not in (known := TYPES.get(script, [kind])):
        expected = known[0] if len(known) == 1 else "a type of workshop/settings/decoder_types.json"
        return f"{script}.py is not shown to train a {kind} as the library does; expected {expected}"
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
        return f"{script}.py would train another model than this {kind}: it leaves out its router's loss"
    if script not in ("cp", "ulysses", "pp"):
        return ""
    for name in ("logits_scaling", "final_logit_softcapping", "attn_logit_softcapping"):
        if model.get(name) not in (None, 1):
            return f"{script}.py has no {name}; found {model[name]}, expected none"
    if script == "pp":  # its attention is the library's
        return ""
    window, layers = model.get("sliding_window", LIKE_LLAMA[kind]), model.get("layer_types") or ["sliding_attention"]
    is_on = "sliding_attention" in layers and model.get("use_sliding_window") is not False
    if is_on and window and window < max_length:
        return f"{script}.py has no window; found one of {window} tokens, below MAX_LENGTH={max_length}"
    if dropout := model.get("attention_dropout"):
        return f"{script}.py has no attention dropout; found {dropout}, expected 0"
    return ""
