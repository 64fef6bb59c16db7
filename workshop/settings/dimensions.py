"""Whether the scripts of further/dimensions/ train a decoder as the library does, from its code, without torch.

Each script replaces a part of a decoder: all but ep.py the step from its head to the loss, cp.py and ulysses.py its
attention, pp.py the way from block to block, tp.py all matrices. Where the library's code does more there than Llama's,
the script is refused, except for a scale, a cap or a window that the configuration leaves without effect.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from workshop.record.plural import counted
from workshop.settings.model_file import decoders, modeling_source

_MASKS = ("create_causal_mask", "create_sliding_window_causal_mask", "create_chunked_causal_mask")
_WINDOWS = ("sliding_window", "attention_chunk_size")
# What the replaced attention uses, or what changes nothing: a window is looked at by its key.
_USED = ("scaling", "sliding_window", "position_ids", "output_attentions", "use_cache", "past_key_values")
# What blocks may be told beside the hidden states: all the same, or what follows from the positions.
_TOLD = ("attention_mask", "position_embeddings", "position_ids", "past_key_values", "use_cache", "cache_position")
# Where hidden states come from outside of the blocks.
_WAY = ("self.embed_tokens(input_ids)", "inputs_embeds", "self.norm(hidden_states)")
_WAY += ("outputs.last_hidden_state", "outputs[0]", "slice_logits_to_keep(hidden_states, logits_to_keep)")
_OF_CACHE = ("get_seq_length", "get_max_cache_shape", "is_compileable", "self_attention_cache")
_CACHE = re.compile("past_key_values?|cache_params|cache")


def why_not(script: str, model: Mapping[str, Any], max_length: int, parts: int = 1) -> str:
    """Return why the script does not train a model, or not on so many ranks; "" if it does.

    Args: script: tp, cp, ulysses, pp or ep; model: the content of its config.json; max_length: tokens of a row;
        parts: ranks that share a row or a matrix, or stages.
    """
    kind = str(model.get("model_type"))
    known = {"tp": "llama", "ep": "olmoe"}.get(script)
    if known and kind != known:
        return f"{script}.py trains no {kind}; expected a model of type {known}"
    code = _Code(kind, model, max_length)
    heads, layers = code.values.get("num_attention_heads", 1), code.values.get("num_hidden_layers", parts)
    keys = code.values.get("num_key_value_heads") or heads
    if script == "tp" and keys % parts:
        return f"found {counted(keys, 'key head')} for {parts} ranks; expected a multiple: a rank has whole heads"
    if script == "ulysses" and (heads % parts or (keys % parts and parts % keys)):
        return f"found {counted(heads, 'head')}, {keys} of keys, for {parts} ranks; expected multiples"
    if script == "pp" and layers < parts:
        return f"found {counted(layers, 'layer')} for {parts} stages; expected at least one for each"
    if known:
        return ""
    found = code.of_head() or (code.between_blocks() if script == "pp" else code.of_attention())
    return f"{script}.py would train another model than this {kind}: {found}" if found else ""


class _Code:
    """A decoder's classes in Transformers' source, without the branches that its configuration switches off."""

    def __init__(self, kind: str, model: Mapping[str, Any], max_length: int) -> None:
        defaults, names = _configuration(kind)
        self.values = defaults | {names.get(name, name): value for name, value in model.items()}
        self.max_length = max_length
        classes = _classes(kind)
        self.parts = [classes[decoders()[kind]]] if decoders().get(kind) in classes else []
        for one in self.parts:  # the decoder, the classes that it makes, those that these make
            made = dict.fromkeys(ast.unparse(node.func) for node in self._live(one) if isinstance(node, ast.Call))
            self.parts += [classes[name] for name in made if name in classes and classes[name] not in self.parts]

    def of_head(self) -> str:
        """What is done to the logits."""
        if not self.parts:
            return "its code is not found in Transformers"
        values = [value for names, value in self._assigned(self.parts[0]) if "logits" in names]
        if not values:
            return "no logits are found in its code"
        for value in values:
            if not re.fullmatch(r"self\.lm_head\(\w+(\[[^]]*\])?\)", text := ast.unparse(value)) and self._acts(
                value, self.parts[0]
            ):
                return f"logits = {text}"
        return ""

    def between_blocks(self) -> str:
        """What is done to the hidden states outside of embedding, blocks and norm, and what else blocks are told."""
        decoder = next((one for one in self.parts if "embed_tokens" in _attributes(one)), None)
        if decoder is None:
            return "no embed_tokens is found in its code"
        ends = [(part, found) for part in (self.parts[0], decoder) for found in self._assigned(part)]
        for part, (names, value) in ends:
            text = ast.unparse(value)
            if re.match(r"(decoder_)?layer\(", text):
                if other := {given.arg for given in value.keywords if given.arg} - {*_TOLD}:
                    return f"its blocks are told {', '.join(sorted(other))}"
            elif names & {"inputs_embeds", "hidden_states"} and text not in _WAY and self._acts(value, part):
                return f"{', '.join(sorted(names))} = {text}"
        return ""

    def of_attention(self) -> str:
        """What attention does beside a causal softmax of scaled scores, and what else sees several positions."""
        for name in _WINDOWS:
            if (
                0 < (self.values.get(name) or 0) < self.max_length
                and self.values.get("use_sliding_window") is not False
            ):
                return f"{name} {self.values[name]} below MAX_LENGTH={self.max_length}"
        if "v_head_dim" in self.values:
            return "the heads of its values have another size than those of its keys"
        called = {one.name: [node for node in self._live(one) if isinstance(node, ast.Call)] for one in self.parts}
        names = {one: {ast.unparse(call.func) for call in calls} for one, calls in called.items()}
        if not any("attention_interface" in own for own in names.values()):
            return "its attention is not the library's usual one"
        for one in self.parts:
            calls = called[one.name]
            for call in calls:
                name = ast.unparse(call.func)
                if name == "nn.Conv1d" or (re.fullmatch(r"create_\w*mask", name) and name not in _MASKS):
                    return name
                for given in call.keywords if name == "attention_interface" else ():
                    if given.arg and given.arg not in _USED and self._acts(given.value, one):
                        return f"{given.arg} of its attention is {ast.unparse(given.value)}"
            for node in self._live(one) if "attention_interface" not in names[one.name] else ():
                # What sees several positions needs those before when it generates: it reads a cache.
                is_read = isinstance(node, ast.Attribute) and _CACHE.fullmatch(ast.unparse(node.value))
                if is_read and node.attr not in _OF_CACHE:
                    return f"{one.name} sees several positions, too"
        return ""

    def _live(self, node: ast.AST) -> Iterator[ast.AST]:
        """All nodes below, without branches that the configuration's values switch off."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and self._is_off(child.test):
                for other in child.orelse:
                    yield from self._live(other)
            else:
                yield child
                yield from self._live(child)

    def _is_off(self, test: ast.expr) -> bool:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any(map(self._is_off, test.values))
        if ast.unparse(test) == "encoder_hidden_states is not None":
            return True
        found = re.fullmatch(r"(?:self\.)?config\.(\w+)( is not None)?", ast.unparse(test))
        if not found or found[1] not in self.values:
            return False
        value = self.values[found[1]]
        return value is None if found[2] else not value

    def _assigned(self, one: ast.ClassDef) -> Iterator[tuple[set[str], ast.expr]]:
        """Of the class's `forward`: names, and what they are assigned."""
        forward = next((item for item in one.body if getattr(item, "name", "") == "forward"), one)
        for node in self._live(forward):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield (
                    {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)},
                    node.value,
                )

    def _acts(self, value: ast.expr, one: ast.ClassDef) -> bool:
        """Whether an expression changes anything: not if its numbers are known, each None, 0 or 1."""
        if isinstance(value, ast.IfExp):
            return self._acts(value.body, one) or self._acts(value.orelse, one)
        made = _attributes(one)
        text = re.sub(
            r"\bself\.(?!config\b)(\w+)\b(?!\()", lambda found: made.get(found[1], found[0]), ast.unparse(value)
        )
        numbers = [self.values.get(key, key) for key in re.findall(r"\bconfig\.(\w+)", text)]
        if re.fullmatch(r"None|[\d.]+", text):
            numbers = [ast.literal_eval(text)]
        # None in a product is a number that follows from others.
        neutral = (0, 1) if isinstance(value, ast.BinOp) else (None, 0, 1)
        return not numbers or any(number is True or number not in neutral for number in numbers)


@cache
def _classes(kind: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(modeling_source(kind)).body if isinstance(node, ast.ClassDef)}


def _attributes(one: ast.ClassDef) -> dict[str, str]:
    """The text of what is assigned to attributes of `self`."""
    found = {}
    for node in ast.walk(one):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("self."):
            found.setdefault(ast.unparse(node.targets[0])[5:], ast.unparse(node.value))
    return found


@cache
def _configuration(kind: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Defaults of a type's configuration, by the library's usual names, and these names by the type's own."""
    for one in ast.walk(ast.parse(modeling_source(kind, "configuration"))):
        if not isinstance(one, ast.ClassDef):
            continue
        given: dict[str, Any] = {}
        for node in one.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                try:
                    given[ast.unparse(target)] = ast.literal_eval(node.value)
                except ValueError:  # computed from others
                    continue
        if given.get("model_type") == kind:
            names = {own: usual for usual, own in given.pop("attribute_map", {}).items()}
            return {names.get(name, name): value for name, value in given.items()}, names
    return {}, {}
