"""Which file of a crate uses which other one, by its ``use`` paths, and circles among them.

A folder's ``mod.rs`` is a file like the others: what it only declares with ``mod`` it does not use. Tests are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Module = tuple[str, ...]


def uses(source: Path) -> dict[Module, set[Module]]:
    """Per file of a crate, the files that it uses."""
    files = {_module(source, file): file for file in sorted(source.rglob("*.rs")) if "tests" not in file.parts}
    return {module: _used(module, file.read_text(), set(files)) for module, file in files.items()}


def circle(source: Path) -> list[str]:
    """A circle of files that use each other; empty when there is none."""
    try:
        TopologicalSorter(uses(source)).prepare()
    except CycleError as error:
        return ["::".join(module) for module in error.args[1]]
    return []


def _module(source: Path, file: Path) -> Module:
    parts = file.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def _used(module: Module, text: str, modules: set[Module]) -> set[Module]:
    text = re.sub(r"//.*", "", text)
    text = re.split(r"#\[cfg\(test\)\]\s*(?:pub\(super\) )?mod tests \{", text)[0]
    text = re.sub(r"#\[cfg\(test\)\]\s*(?:use|mod)\s[^;]*;", "", text)
    paths = [path for tree in re.findall(r"\buse\s+([^;]+);", text) for path in _paths(tree)]
    paths += re.findall(r"(?<![\w:])\w+(?:::\w+)+", re.sub(r"\buse\s+[^;]+;", "", text))
    found = {_target(module, path.split("::"), modules) for path in paths}
    return {target for target in found if target is not None and target != module and target in modules}


def _paths(tree: str) -> Iterator[str]:
    """The paths of a ``use`` tree: ``a::{b, c::d}`` are ``a::b`` and ``a::c::d``."""
    prefix, brace, rest = tree.strip().partition("{")
    if not brace:
        yield prefix.split(" as ")[0].strip()
        return
    depth, part = 0, ""
    for letter in rest.rstrip().removesuffix("}") + ",":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if part.strip():
                yield from (prefix + path for path in _paths(part))
            part = ""
        else:
            part += letter


def _target(module: Module, path: list[str], modules: set[Module]) -> Module | None:
    """The file that a path leads to; None for other crates."""
    base: Module
    if path[0] == "crate":
        base, path = (), path[1:]
    elif path[0] in ("super", "self"):
        base = module
        while path and path[0] in ("super", "self"):
            base = base[:-1] if path[0] == "super" else base
            path = path[1:]
    elif (*module, path[0]) in modules:
        base = module
    else:
        return None
    for name in path:
        if (*base, name) not in modules:
            break
        base = (*base, name)
    return base
