"""Runs the cells of docs/notebook.ipynb and writes what they show into it.

``python -m tools.notebook`` writes it, ``python -m tools.notebook --check`` only lists cells that show something else
(exit code 1). Cells are run here, as a kernel would run them: the value of a last expression is shown as text, HTML or
PNG. So neither Jupyter nor a kernel is needed. A notebook is edited in Jupyter, then run by this.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from PIL import Image

from tools.plots import TOLERANCE, difference

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
_WIDTH = {"COLUMNS": "120", "LINES": "40"}


def main() -> None:
    """Writes the outputs, or compares them."""
    before = json.loads(NOTEBOOK.read_text())
    after = executed(before)
    if sys.argv[1:] != ["--check"]:
        NOTEBOOK.write_text(json.dumps(after, indent=1, ensure_ascii=False) + "\n")
        return
    other = differing(before, after)
    for number in other:
        print(f"{NOTEBOOK.relative_to(ROOT)}: cell {number} shows something else: python -m tools.notebook")
    sys.exit(bool(other))


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[int]:
    """The numbers of the cells that differ, counted from 1: pictures by their pixels, as ``tools.plots`` does."""
    pairs = zip(one["cells"], other["cells"], strict=True)
    return [number for number, (first, second) in enumerate(pairs, 1) if not _are_alike(first, second)]


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            difference(*map(_picture, (value, other[name]))) <= TOLERANCE
            if name == "image/png"
            else _are_alike(value, other[name])
            for name, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_alike, one, other))
    return bool(one == other)


def _picture(data: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(data)))


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The same notebook with the outputs of its code cells; an error in a cell propagates."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    with _in_docs():
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                cells.append(cell)
                continue
            count += 1
            outputs = list(_run("".join(cell["source"]), names, count))
            cells.append(cell | {"execution_count": count, "outputs": outputs})
    return notebook | {"cells": cells}


@contextmanager
def _in_docs() -> Iterator[None]:
    """As Jupyter does, in the folder of the notebook."""
    folder, environment = Path.cwd(), dict(os.environ)
    os.chdir(NOTEBOOK.parent)
    os.environ.update(_WIDTH)
    try:
        yield
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)


def _run(source: str, names: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102 -- the cells of our own notebook
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 -- the same
    if printed.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())}
    if value is not None:
        yield {"data": _shown(value), "execution_count": count, "metadata": {}, "output_type": "execute_result"}


def _shown(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = _lines(value._repr_html_())
    if hasattr(value, "_repr_png_"):
        data["image/png"] = base64.b64encode(value._repr_png_()).decode()
    return data | {"text/plain": _lines(repr(value))}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    main()
