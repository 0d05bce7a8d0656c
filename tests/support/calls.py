"""How often a method is called: the work of a computation, whatever else the machine does."""

from __future__ import annotations

from typing import Any

import pytest


def calls_of(patch: pytest.MonkeyPatch, owner: type, name: str) -> list[tuple[Any, ...]]:
    """The arguments of every call of a method from now on."""
    called: list[tuple[Any, ...]] = []
    method = getattr(owner, name)

    def counted(*arguments: Any) -> Any:
        called.append(arguments)
        return method(*arguments)

    patch.setattr(owner, name, counted)
    return called


def rows_of(selections: list[tuple[Any, ...]]) -> int:
    """How many rows calls of a method `select` look at, of a table or of columns: a mask looks at each."""
    return sum(
        len(range(*index.indices(len(own)))) if isinstance(index, slice) else len(index) for own, index in selections
    )
