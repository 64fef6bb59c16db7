"""Check the keys and values of a configuration against a table of kinds; deepspeed_keys.toml says which there are."""

import json
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from workshop.record.errors import InputError

AUTO = "auto"  # a value that a library fills in


def read_kinds(path: Path) -> dict[str, Any]:
    """Return a TOML file's tables of kinds, where each key of a group has the group's kind."""
    tables = tomllib.loads(path.read_text())
    groups = tables.pop("groups")

    def ungrouped(table: dict[str, Any]) -> dict[str, Any]:
        kinds = {}
        for name, value in table.items():
            if name in groups:
                kinds |= dict.fromkeys(value, groups[name])
            else:
                kinds[name] = ungrouped(value) if isinstance(value, dict) else value
        return kinds

    return ungrouped(tables)


def checked(
    path: Path,
    value: Any,
    kind: Any,
    key: str = "",
    *,
    auto: Collection[str] = (),
    other: Mapping[str, str] | None = None,
    where: str = "",
) -> Any:
    """Return the value, with whole numbers as int.

    Args:
        auto: keys, with dots, whose value may be "auto".
        other: what is expected instead of a key that nothing reads.
        where: added to the error about such a key.

    Raises:
        InputError: a key that the table does not have, or a value of another kind.
    """
    if value == AUTO and key in auto:
        return value
    if not _fits(value, kind):
        why = ' ("auto" is filled in elsewhere only)' if value == AUTO else ""
        raise InputError(f"{path}: {key} is {value!r}; expected {words(kind)}{why}")
    if not isinstance(kind, dict):
        return int(value) if type(kind) is int else value
    prefix, others, result = f"{key}." if key else "", other or {}, {}
    # Values before unknown keys: the value that is not trained here may be what makes a library read the keys.
    for name in sorted(value, key=lambda name: (name not in others, name not in kind)):
        if name not in kind:
            expected = others.get(name) or f"keys out of {', '.join(sorted(kind))}"
            raise InputError(f"{path}: nothing reads '{prefix}{name}'{where}; expected {expected}")
        result[name] = checked(path, value[name], kind[name], f"{prefix}{name}", auto=auto, other=other, where=where)
    return result


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, list):
        if type(kind[0]) is float:
            return _is_number(value) and kind[0] <= value <= kind[1]
        return any(type(value) is type(allowed) and value == allowed for allowed in kind)
    if isinstance(kind, int | float):
        return _is_number(value) and value >= kind and (type(kind) is float or value == int(value))
    if kind == "texts":
        return type(value) is list and value != [] and all(type(entry) is str for entry in value)
    return kind == "any" or type(value) is {"flag": bool, "text": str}.get(str(kind), dict)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 2**63  # neither NaN nor infinite


def words(kind: Any) -> str:
    if isinstance(kind, list):
        if type(kind[0]) is float:
            return f"a number from {kind[0]:g} to {kind[1]:g}"
        values = " or ".join(allowed if isinstance(allowed, str) else json.dumps(allowed) for allowed in kind)
        return values if len(kind) > 1 else f"{values}, nothing else is trained here"
    if isinstance(kind, int | float):
        return f"{'a whole number' if type(kind) is int else 'a number'} of at least {kind:g}"
    return {"flag": "true or false", "text": "a text", "texts": "a list of texts"}.get(str(kind), "an object {…}")
