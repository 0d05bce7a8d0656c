"""Dataclasses from the JSON that `dataclasses.asdict` made of them, by the types of their fields."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_Class = TypeVar("_Class")


def rebuilt(kind: type[_Class], found: Mapping[str, Any]) -> _Class:
    """An instance of a dataclass. TypeError for a field too many or too few."""
    hints = get_type_hints(kind)
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if unknown := set(found) - names:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return kind(**{name: _value(hints[name], value) for name, value in found.items()})


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, inner = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        return _value(next(each for each in inner if each is not type(None)), value)
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[1:] == (...,) else list(inner)
        return tuple(_value(each, one) for each, one in zip(kinds, value, strict=True))
    if is_dataclass(kind) and isinstance(kind, type):
        return rebuilt(kind, value)
    return value
