"""The headings of the tables that the program prints, as its source has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "iscsitrace"
_TABLES = ("table", "show_table")


def of_tables() -> list[str]:
    """Every heading that is written out in a call that makes a table, or in a name that such a call is given."""
    return sorted({each for path in PACKAGE.rglob("*.py") for each in _of_file(path) if each not in ("", "%")})


def _of_file(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                named.setdefault(target.id, []).append(node.value)

    def texts(part: ast.expr) -> Iterator[str]:
        match part:
            case ast.Constant(value=str()):
                yield str(part.value)
            case ast.Tuple() | ast.List():
                for each in part.elts:
                    yield from texts(each)
            case ast.Starred():
                yield from texts(part.value)
            case ast.IfExp():
                yield from (*texts(part.body), *texts(part.orelse))
            case ast.Name():
                for value in named.get(part.id, ()):
                    yield from texts(value)

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in _TABLES:
                yield from texts(node.args[0])
