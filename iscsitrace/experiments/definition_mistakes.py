"""A mistake in a definition as one line: the key, by its place in the file, and what is expected there."""

from __future__ import annotations

import re
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct

from iscsitrace.experiments.definition_settings import Mistake

_AT: Final = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_NAMED: Final = re.compile(r"Object (?P<how>contains unknown|missing required) field `(?P<key>.*)`")
_WORDS: Final = {
    "`str`": "text",
    "`int | float`": "a number",
    "`int`": "a whole number",
    "`float`": "a number",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "a table",
}
"""TOML's types in words, for Python's."""


def line(error: msgspec.ValidationError, found: Any, kind: type[Struct]) -> str:
    """The mistake for which ``found`` could not be decoded as ``kind``. Entries of lists are counted from 1."""
    match = _AT.fullmatch(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    steps = [int(number) if number else name for number, name in _STEP.findall(path)]
    place = "".join(f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in steps)
    if isinstance(error.__cause__, Mistake):
        return f"{place}.{what}".removeprefix(".")
    for step in steps:
        found = found[step]
    if named := _NAMED.fullmatch(what):
        place = f"{place}.{named['key']}"
        keys = ", ".join(_keys(kind, found, steps))
        what = "it is missing" if named["how"] == "missing required" else f"there is no such key; there are {keys}"
    elif steps[-1] == "kind":
        tags = [str(each.__struct_config__.tag) for each in _structs(kind, steps[:-1])]
        what = f"{found!r} is none of {', '.join(tags)}"
    else:
        expected = what.partition(", got ")[0].replace("Expected", "expected")
        for name, words in _WORDS.items():
            expected = expected.replace(name, words)
        what = f"{expected}, got {found!r}"
    return f"{place}: {what}".removeprefix(".")


def _keys(kind: type[Struct], table: Any, steps: list[str | int]) -> list[str]:
    """The keys of the table at a place."""
    structs = _structs(kind, steps)
    tagged = [each for each in structs if each.__struct_config__.tag == table.get("kind")]
    return [field.encode_name for field in msgspec.structs.fields((tagged or structs)[0])]


def _structs(kind: type[Struct], steps: list[str | int]) -> list[type[Struct]]:
    """The structs that the table at a place may be: one, or several with tags."""
    structs = [kind]
    for step in steps:
        if isinstance(step, str):
            (field,) = [each for each in msgspec.structs.fields(structs[0]) if each.encode_name == step]
            structs = list(_within(field.type))
    return structs


def _within(annotation: Any) -> list[type[Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return [annotation]
    return [each for inner in get_args(annotation) for each in _within(inner)]
