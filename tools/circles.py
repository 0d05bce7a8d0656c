"""Finds import circles: files that import each other, in the crates of core/ and in the package iscsitrace. Also finds
class names that the package defines more than once: a reader would have to look which class is meant.

An arrow goes from a file to the file that defines a name it uses. A circle is a set of files that can all reach each
other along arrows; the check lists each circle with the imported names, and fails when there is one.

Rust (core/*/src):

- Paths from ``crate``, ``self`` and ``super``, paths from a module that the file declares, and paths from a module or
  a name that it imports; in ``use`` declarations and anywhere else in the code.
- ``mod x;`` is no arrow. ``pub use x::Name;`` in a ``mod.rs`` is an arrow to ``x``. A file that uses ``Name`` through
  that ``mod.rs`` has an arrow to the file that defines it, not to the ``mod.rs``.
- Code under ``#[cfg(test)]`` does not count: tests may use everything. Nor do names without a path, such as methods.

Python (iscsitrace/**/*.py):

- Imports at the top of a module and inside functions alike: one inside a function usually hides a circle.
- Imports under ``if TYPE_CHECKING:`` do not count: they never run. An import of ``a.b`` is an arrow to ``a/b.py``
  alone, although Python runs ``a/__init__.py`` before it. An import of a compiled module is none.
- A string that is the name of a module is an arrow to it: somebody may import it by name. A docstring is none.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.rust_imports import Arrows, Names, rust_arrows

ROOT = Path(__file__).resolve().parents[1]


def _is_type_checking(node: ast.If) -> bool:
    test = node.test
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _imports(nodes: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that may run, at any depth."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and _is_type_checking(node):
            yield from _imports(node.orelse)
        else:
            yield from _imports(ast.iter_child_nodes(node))


def _texts(tree: ast.Module) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def python_arrows(package: Path) -> Arrows:
    """Arrows between the files of a package."""
    files: dict[Names, Path] = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        files[parts[:-1] if parts[-1] == "__init__" else parts] = file
    stubs = (file.relative_to(package.parent).with_suffix("").parts for file in package.rglob("*.pyi"))
    compiled = {parts for parts in stubs if parts[-1] != "__init__"}
    arrows: Arrows = {}
    for module, file in files.items():
        own = arrows.setdefault(file, {})
        inside = module if file.name == "__init__.py" else module[:-1]
        tree = ast.parse(file.read_text())
        named = [(tuple(text.split(".")), text) for text in _texts(tree) if "." in text]
        for node in _imports(tree.body):
            if isinstance(node, ast.Import):
                found = [(tuple(alias.name.split(".")), alias.name) for alias in node.names]
            else:
                base = inside[: len(inside) - node.level + 1] if node.level else ()
                base += tuple(node.module.split(".")) if node.module else ()
                found = [
                    ((*base, alias.name) if (*base, alias.name) in files else base, alias.name)
                    for alias in node.names
                    if (*base, alias.name) not in compiled
                ]
            named += found
        for path, name in named:
            target = files.get(path)
            if target is not None and target != file:
                own.setdefault(target, set()).add(name)
    return arrows


def shared_names(package: Path) -> dict[str, list[Path]]:
    """The names of several classes at the top of a package's modules, with the files of each."""
    files: dict[str, list[Path]] = {}
    for file in sorted(package.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, []).append(file)
    return {name: found for name, found in sorted(files.items()) if len(found) > 1}


def circles(arrows: Arrows) -> list[list[Path]]:
    """Sets of files that can all reach each other, of two or more (Tarjan's algorithm)."""
    index: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    found: list[list[Path]] = []

    def visit(file: Path) -> None:
        index[file] = low[file] = len(index)
        stack.append(file)
        for target in sorted(arrows.get(file, {})):
            if target not in index:
                visit(target)
                low[file] = min(low[file], low[target])
            elif target in stack:
                low[file] = min(low[file], index[target])
        if low[file] == index[file]:
            at = stack.index(file)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for file in sorted(arrows):
        if file not in index:
            visit(file)
    return sorted(circle for circle in found if len(circle) > 1)


def describe(circle: list[Path], arrows: Arrows, root: Path) -> str:
    """A circle as text: its files, and the names that each imports from the others."""
    name = {file: str(file.relative_to(root)) for file in circle}
    lines = [f"import circle of {len(circle)} files:"]
    for file in circle:
        for target in sorted(set(arrows[file]) & set(circle)):
            lines.append(f"  {name[file]} -> {name[target]}: {', '.join(sorted(arrows[file][target]))}")
    return "\n".join(lines)


def main(root: Path = ROOT) -> int:
    """Prints every circle and every shared name; returns 1 if there is one."""
    count = 0
    for arrows in (rust_arrows(root / "core"), python_arrows(root / "iscsitrace")):
        for circle in circles(arrows):
            print(describe(circle, arrows, root))
            count += 1
    for name, files in shared_names(root / "iscsitrace").items():
        print(f"classes with the name {name}: {', '.join(str(file.relative_to(root)) for file in files)}")
        count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
