"""Whether scripts without a Trainer train a decoder as the library does, from its code, without torch.

Each script replaces a part of a decoder: all but ep.py the loss, those of further/dimensions/ also the step from its
head to the loss, cp.py and ulysses.py its attention, pp.py the way from block to block, tp.py all matrices. Where the
library's code does more there than Llama's, the script is refused, except for a scale, a cap or a window that the
configuration leaves without effect.
"""

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

from workshop.record.printable import counted
from workshop.settings.model_file import decoders, modeling_source

_MASKS = ("create_causal_mask", "create_sliding_window_causal_mask", "create_chunked_causal_mask")
# What the replaced attention uses, or what changes nothing: a window is looked at by its key.
_USED = ("scaling", "sliding_window", "position_ids", "output_attentions", "use_cache", "past_key_values")
# What blocks may be told beside the hidden states: all the same, or what follows from the positions.
_TOLD = {"attention_mask", "position_embeddings", "position_ids", "past_key_values", "use_cache", "cache_position"}
_HEAD = r"self\.lm_head\(\w+(?:\[[^]]*\])?\)"
# A cache that is read; its size alone is no tokens.
_CACHE = (
    r"\b(?:past_key_values?|cache_params|cache)\.(?!get_seq_length|get_max_cache_shape|is_comp|self_attention_cache)"
)
# What changes nothing.
_NOTHING = r"(?:None|False|[01](?:\.0)?)"
_NEUTRAL = re.compile(
    rf"{_NOTHING}(?: if .+ else {_NOTHING})?|(?:\w+|{_HEAD}) [*/] 1(?:\.0)?"
    r"|nn\.functional\.dropout\(\w+, p=0\.0, training=self\.training\)"
)
# Where hidden states come from outside of the blocks.
_WAY = re.compile(
    rf"self\.embed_tokens\(input_ids\)|inputs_embeds|self\.norm\(hidden_states\)|outputs\.last_hidden_state|outputs\[0\]"
    rf"|slice_logits_to_keep\(hidden_states, logits_to_keep\)|{_NEUTRAL.pattern}"
)
# Conditions that are never true.
_NEVER = re.compile(r"None|False|0(?:\.0)?|None is not None|encoder_hidden_states is not None")


def why_not(script: str, model: Mapping[str, Any], max_length: int, parts: int = 1) -> str:
    """Return why the script does not train a model, or not on so many ranks; "" if it does.

    Args: script: ddp, fsdp, zero, tp, cp, ulysses, pp or ep; model: the content of its config.json; max_length: tokens
        of a row; parts: ranks that share a row, a matrix or the experts, or stages.
    """
    kind = str(model.get("model_type"))
    known = {"tp": "llama", "ep": "olmoe"}.get(script)
    if known and kind != known:
        return f"{script}.py trains no {kind}; expected a model of type {known}"
    defaults, names = _configuration(kind)
    values = defaults | {names.get(name, name): value for name, value in model.items()}
    heads, layers = values.get("num_attention_heads", parts), values.get("num_hidden_layers", parts)
    keys = values.get("num_key_value_heads") or heads
    if script == "tp" and keys % parts:
        return f"found {counted(keys, 'key head')} for {parts} ranks; expected a multiple: a rank has whole heads"
    if script == "ulysses" and (heads % parts or (keys % parts and parts % keys)):
        return f"found {counted(heads, 'head')}, {keys} of keys, for {parts} ranks; expected multiples"
    if script == "ep" and (experts := values.get("num_local_experts", parts)) % parts:
        return f"found {counted(experts, 'expert')} for {parts} ranks; expected a multiple"
    if script == "pp" and layers < parts:
        return f"found {counted(layers, 'layer')} for {parts} stages; expected at least one for each"
    if values.get("output_router_logits") and script != "ep":
        return f"{script}.py would train another model than this {kind}: it leaves out its router's loss"
    if script not in ("cp", "ulysses", "pp"):
        return ""
    neutral = {name: value for name, value in values.items() if value in (None, 0, 1) and value is not True}
    code = _code(kind, frozenset(neutral.items()))
    found = _of_head(code) or (_between_blocks(code) if script == "pp" else _of_attention(code, values, max_length))
    return f"{script}.py would train another model than this {kind}: {found}" if found else ""


def _of_head(code: list[str]) -> str:
    """What is done to the logits."""
    if not code:
        return "its code is not found in Transformers"
    found = [value for left, value in _assigned(code[0]) if re.search(r"(?<![.\w])logits\b", left)]
    if not found:
        return "no logits are found in its code"
    other = [value for value in found if not re.fullmatch(rf"{_HEAD}|{_NEUTRAL.pattern}", value)]
    return f"logits = {other[0]}" if other else ""


def _between_blocks(code: list[str]) -> str:
    """What is done to the hidden states outside of embedding, blocks and norm, and what else blocks are told."""
    decoder = next((source for source in code if "self.embed_tokens = " in source), None)
    if decoder is None:
        return "no embed_tokens is found in its code"
    for left, value in _assigned(code[0]) + _assigned(decoder):
        if re.match(r"(decoder_)?layer\(", value):
            if other := {*re.findall(r"(\w+)=", value)} - _TOLD:
                return f"its blocks are told {', '.join(sorted(other))}"
        elif re.search(r"\b(inputs_embeds|hidden_states)\b", left) and not _WAY.fullmatch(value):
            return f"{left} = {value}"
    return ""


def _of_attention(code: list[str], values: dict[str, Any], max_length: int) -> str:
    """What attention does beside a causal softmax of scaled scores, and what else sees several positions."""
    for name in ("sliding_window", "attention_chunk_size"):
        off = _kinds_of_layers(values) == {"full_attention"} or values.get("use_sliding_window") is False
        if 0 < (values.get(name) or 0) < max_length and not off:
            return f"{name} {values[name]} below MAX_LENGTH={max_length}"
    if "v_head_dim" in values:
        return "the heads of its values have another size than those of its keys"
    given = {source: re.findall(r"attention_interface\((.+)\)", source) for source in code}
    if not any(given.values()):
        return "its attention is not the library's usual one"
    for source in code:
        if other := [name for name in re.findall(r"\b(nn\.Conv1d|create_\w*mask)\(", source) if name not in _MASKS]:
            return other[0]
        for name, value in re.findall(r"(\w+)=(.+?)(?:, |$)", "\n".join(given[source]), re.MULTILINE):
            if name not in _USED and not _NEUTRAL.fullmatch(value):
                return f"{name} of its attention is {value}"
        # What sees several positions needs those before when it generates: it reads a cache.
        if not given[source] and re.search(_CACHE, source):
            return f"{re.search('class ([^(:]+)', source)[1]} sees several positions, too"
    return ""


def _kinds_of_layers(values: dict[str, Any]) -> set[str]:
    """The kinds that the file names, or else the library's configuration; empty where it computes them otherwise."""
    code = ast.unparse(ast.parse(modeling_source(str(values.get("model_type")), "configuration")))
    computed = re.search(r"self\.layer_types = (\[.+)$", code, re.MULTILINE)
    with suppress(Exception):  # it uses what is computed before
        return {*(values.get("layer_types") or eval(computed[1], {"self": SimpleNamespace(**values)}))}
    return set()


@cache
def _code(kind: str, neutral: frozenset[tuple[str, Any]]) -> list[str]:
    """Transformers' source of the decoder's class, of the classes that it makes, and of those that these make.

    Each statement is one line. Args: neutral: the values of the configuration that are None, 0 or 1.
    """
    classes = {node.name: node for node in ast.parse(modeling_source(kind)).body if isinstance(node, ast.ClassDef)}
    names, code = [decoders().get(kind)], []
    for name in names:
        if name in classes:
            code.append(ast.unparse(_Known(dict(neutral)).visit(classes[name])))
            names += [made for made in re.findall(r"\b(\w+)\(", code[-1]) if made not in names]
    return code


class _Known(ast.NodeTransformer):
    """Puts values into a class, and leaves out the branches that they switch off."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.known = {f"{owner}.{name}": value for name, value in values.items() for owner in ("config", "self.config")}

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                target, value = ast.unparse(inner.targets[0]), ast.unparse(inner.value)
                if found := re.fullmatch(r"nn\.Dropout\((.+)\)", value):
                    target, value = f"{target}.p", found[1]
                if value in self.known or value == "0.0":
                    self.known[target] = self.known.get(value, 0.0)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        text = ast.unparse(node)
        return ast.Constant(self.known[text]) if text in self.known else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        both = isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And)
        tests = node.test.values if both else [node.test]
        return node.orelse if any(_NEVER.fullmatch(ast.unparse(test)) for test in tests) else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)  # a docstring


def _assigned(source: str) -> list[tuple[str, str]]:
    """Of the class's `forward`: names, and what they are assigned."""
    forward = source.partition("    def forward(")[2].partition("\n    def ")[0]
    return re.findall(r"^ +([^=\n]+?)(?:: [^=\n]+)? [*+/@-]?= (.+)$", forward, re.MULTILINE)


@cache
def _configuration(kind: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Defaults of a type's configuration, by the library's usual names, and these names by the type's own."""
    for node in ast.parse(modeling_source(kind, "configuration")).body:
        given: dict[str, Any] = {}
        for name, text in re.findall(r"^    (\w+)(?::.*?)? = (.+)$", ast.unparse(node), re.MULTILINE):
            with suppress(ValueError, SyntaxError):  # computed from others
                given[name] = ast.literal_eval(text)
        if given.get("model_type") == kind:
            names = {own: usual for usual, own in given.pop("attribute_map", {}).items()}
            return {names.get(name, name): value for name, value in given.items()}, names
    return {}, {}
