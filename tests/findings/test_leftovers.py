"""Objects that refer to each other are freed at once."""

from __future__ import annotations

import gc
import weakref

import pytest

from iscsitrace.tables.memory import cycles_freed


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.own = self


@pytest.mark.parametrize("is_enabled", [True, False])
def test_new_objects_that_refer_to_each_other_are_freed_and_old_ones_not_looked_at(is_enabled: bool) -> None:
    old = Node()
    gc.collect()  # it is of the oldest generation now
    old_one = weakref.ref(old)
    del old
    if not is_enabled:
        gc.disable()
    try:
        with cycles_freed():
            assert not gc.isenabled()
            nodes = [Node() for _ in range(100_000)]
            found = [weakref.ref(node) for node in (nodes[0], nodes[-1])]
            del nodes
        assert [each() for each in found] == [None, None]
        assert old_one() is not None
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()
        gc.collect()
    assert old_one() is None
