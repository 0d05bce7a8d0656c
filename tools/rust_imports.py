"""Finds the files that each file of a Rust crate imports names from: the arrows of `tools.circles`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Names = tuple[str, ...]
"""A path such as ``crate::tcp::half``, as its names."""
Arrows = dict[Path, dict[Path, set[str]]]
"""File -> file that defines names which it uses -> these names."""

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*)
    |(?P<block>/\*)
    |(?P<raw>b?r(?P<hashes>\#*)".*?"(?P=hashes))
    |(?P<text>b?"(?:\\.|[^"\\])*")
    |(?P<char>b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\])')
    |(?P<lifetime>'\w+)
    |(?P<word>(?:r\#)?[^\W\d]\w*)
    |(?P<number>\d\w*)
    |(?P<sign>::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_ITEMS = {"fn", "struct", "enum", "union", "trait", "type", "const", "static"}
_OPEN, _CLOSE = "([{", ")]}"


def rust_tokens(text: str) -> list[str]:
    """Words and signs of Rust code, without comments and literals."""
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:  # pragma: no cover - the last alternative takes any sign
            break
        at = match.end()
        if match["block"]:
            depth = 1
            while depth and (edge := _BLOCK_EDGE.search(text, at)):
                depth += 1 if edge.group() == "/*" else -1
                at = edge.end()
        elif match["word"] or match["sign"]:
            tokens.append(match.group())
    return tokens


@dataclass
class Module:
    """A Rust module: a file, or a block ``mod x { }`` within one."""

    path: Names
    file: Path
    children: set[str] = field(default_factory=set)
    """Modules declared in it."""
    tests: set[str] = field(default_factory=set)
    """Those of them that are declared under ``#[cfg(test)]``."""
    defined: set[str] = field(default_factory=set)
    """Names of its items."""
    imports: dict[str, Names] = field(default_factory=dict)
    """Names imported by ``use``, with the path as written."""
    globs: list[Names] = field(default_factory=list)
    """Paths before ``::*``."""
    used: list[Names] = field(default_factory=list)
    """Paths in its code, as written."""


@dataclass(frozen=True)
class Item:
    """Target of a path: an item of a module, or the module itself."""

    module: Names
    name: str | None


def _is_name(text: str) -> bool:
    return text[:1].isalpha() or text[:1] == "_"


def _is_test(attribute: list[str]) -> bool:
    return attribute[:1] == ["cfg"] and "test" in attribute and "not" not in attribute


class _Reader:
    """Reads the modules of one file from its tokens."""

    def __init__(self, tokens: list[str], module: Module) -> None:
        self.tokens = tokens
        self.modules = [module]
        self._at = 0
        self._depth = 0
        while self._at < len(tokens):
            steps = (self._attribute, self._module, self._use, self._path, self._item)
            if not any(step(module) for step in steps):
                self._depth += (self._word() in _OPEN) - (self._word() in _CLOSE)
                self._at += 1

    def _word(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def _skip_group(self) -> list[str]:
        """Skips to the end of the next pair of brackets; returns the content."""
        start, depth = self._at, 0
        while self._at < len(self.tokens):
            depth += (self._word() in _OPEN) - (self._word() in _CLOSE)
            self._at += 1
            if not depth:
                break
        return self.tokens[start + 1 : self._at - 1]

    def _skip_item(self) -> None:
        """Skips an item, up to its ``;`` or the end of its block."""
        while self._word() not in (";", ""):
            if self._word() == "{":
                self._skip_group()
                return
            if self._word() in _OPEN:
                self._skip_group()
            else:
                self._at += 1
        self._at += 1

    def _attribute(self, module: Module) -> bool:
        """Skips ``#[...]``; with ``cfg(test)`` the item after it, too."""
        if self._word() != "#" or self._word(1) not in ("[", "!"):
            return False
        self._at += 1 + (self._word(1) == "!")
        if _is_test(self._skip_group()):
            while self._word() == "#":
                self._at += 1
                self._skip_group()
            while self._word() == "pub":
                self._at += 1
                if self._word() == "(":
                    self._skip_group()
            if self._word() == "mod":
                module.tests.add(self._word(1))
            self._skip_item()
        return True

    def _module(self, module: Module) -> bool:
        """``mod x;`` and ``mod x { }``."""
        name, edge = self._word(1), self._word(2)
        if self._word() != "mod" or edge not in (";", "{"):
            return False
        module.children.add(name)
        self._at += 2
        if edge == "{":
            self.modules += _Reader(self._skip_group(), Module((*module.path, name), module.file)).modules
        return True

    def _use(self, module: Module) -> bool:
        """``use a::{b, c as d};``; a ``use`` of another crate (``use ::a``) does not count."""
        if self._word() != "use" or not (self._word(1) in ("::", "{") or _is_name(self._word(1))):
            return False
        is_extern = self._word(1) == "::"
        self._at += 1 + is_extern
        for path, name in self._use_tree(()):
            if name == "*" and not is_extern:
                module.globs.append(path)
            elif not is_extern:
                module.imports[name] = path
        return True

    def _use_tree(self, path: Names) -> Iterator[tuple[Names, str]]:
        """Leaves of a ``use`` tree, each with its name in the module; ``*`` for all names."""
        while True:
            word = self._word()
            self._at += 1
            if word == "{":
                while self._word() not in ("}", ""):
                    yield from self._use_tree(path)
                    self._at += self._word() == ","
                self._at += 1
                return
            if word == "*":
                yield path, word
                return
            path = path if word == "self" and path else (*path, word)
            if self._word() != "::":
                break
            self._at += 1
        name = path[-1]
        if self._word() == "as":
            name = self._word(1)
            self._at += 2
        yield path, name

    def _path(self, module: Module) -> bool:
        """``a::b::C`` in the code."""
        if self._word(1) != "::" or not _is_name(self._word()):
            return False
        path = [self._word()]
        while self._word(1) == "::" and _is_name(self._word(2)):
            path.append(self._word(2))
            self._at += 2
        module.used.append(tuple(path))
        # a path after a turbofish continues the path before it
        self._at += 1 + (self._word(1) == "::")
        return True

    def _item(self, module: Module) -> bool:
        """The name of a ``struct``, ``fn`` ... of the module."""
        if self._word() == "macro_rules":
            module.defined.add(self._word(2))
        elif not self._depth and self._word() in _ITEMS and _is_name(self._word(1)):
            if self._word(1) not in _ITEMS | {"mut", "unsafe"}:
                module.defined.add(self._word(1))
            elif self._word(1) == "mut":
                module.defined.add(self._word(2))
        return False


def _file_of(directory: Path, name: str) -> Path | None:
    return next((file for file in (directory / f"{name}.rs", directory / name / "mod.rs") if file.is_file()), None)


@dataclass
class Crate:
    """The modules of one crate by path, without tests; the root is ``()``."""

    modules: dict[Names, Module]

    @classmethod
    def read(cls, root: Path) -> Crate:
        """All modules that can be reached from a crate's first file."""
        modules: dict[Names, Module] = {}
        waiting: list[tuple[Names, Path]] = [((), root)]
        while waiting:
            path, file = waiting.pop()
            for module in _Reader(rust_tokens(file.read_text()), Module(path, file)).modules:
                modules[module.path] = module
                is_own_folder = file.name in ("lib.rs", "main.rs", "mod.rs")
                directory = file.parent if is_own_folder else file.with_suffix("")
                directory = directory.joinpath(*module.path[len(path) :])
                for child in module.children - module.tests:
                    if found := _file_of(directory, child):
                        waiting.append(((*module.path, child), found))
        return cls(modules)

    def _absolute(self, module: Module, path: Names) -> Names | None:
        """A path as written, relative to the root of the crate; None if it leads to another crate."""
        first, rest = path[0], path[1:]
        if first == "crate":
            return rest
        if first == "self":
            return module.path + rest
        if first == "super":
            at = module.path[:-1]
            while rest[:1] == ("super",):
                at, rest = at[:-1], rest[1:]
            return at + rest
        if first in module.children:
            return module.path + path
        return None

    def definition(
        self, module: Module, path: Names, seen: frozenset[tuple[Names, Names]] = frozenset()
    ) -> Item | None:
        """Target of a path, after following ``use``; None if it is in another crate."""
        if (module.path, path) in seen:
            return None
        seen |= {(module.path, path)}
        absolute = self._absolute(module, path)
        if absolute is None:
            imported = module.imports.get(path[0])
            if imported is None or imported[:1] == path[:1]:
                return None
            return self.definition(module, imported + path[1:], seen)
        at: Names = ()
        for place, name in enumerate(absolute):
            if (*at, name) in self.modules:
                at = (*at, name)
            else:
                return self._item(self.modules[at], absolute[place:], seen)
        return Item(at, None)

    def _item(self, module: Module, rest: Names, seen: frozenset[tuple[Names, Names]]) -> Item | None:
        """Target of a name in a module: one of its items, or the target of its ``use``."""
        name = rest[0]
        if name not in module.defined:
            if name in module.imports:
                return self.definition(module, module.imports[name] + rest[1:], seen)
            for glob in module.globs:
                found = self.definition(module, glob, seen)
                if found and found.name is None:
                    source = self.modules[found.module]
                    if name in source.defined or name in source.imports:
                        return self._item(source, rest, seen)
        # a name without an item comes from a macro of the module
        return Item(module.path, name)

    def arrows(self) -> Arrows:
        """Arrows from each file to the files that define names which it uses."""
        arrows: Arrows = {}
        for module in self.modules.values():
            paths = [*module.used, *module.imports.values(), *((*glob, "*") for glob in module.globs)]
            own = arrows.setdefault(module.file, {})
            for path in paths:
                found = self.definition(module, path)
                # importing a module is no arrow by itself: the paths that begin with it are
                if found and found.name and self.modules[found.module].file != module.file:
                    own.setdefault(self.modules[found.module].file, set()).add(found.name)
        return arrows


def rust_arrows(core: Path) -> Arrows:
    """Arrows of every crate of a folder of crates."""
    arrows: Arrows = {}
    for source in sorted(core.glob("*/src")):
        for root in (source / "lib.rs", source / "main.rs"):
            if root.is_file():
                arrows |= Crate.read(root).arrows()
    return arrows
