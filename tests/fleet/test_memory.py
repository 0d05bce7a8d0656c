"""Memory of a worker: freed memory is used again, and objects that refer to each other are freed at once."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from iscsitrace.fleet import memory

FAULTS = """
import resource, sys
from contextlib import nullcontext
import numpy as np
from iscsitrace.fleet import memory

with memory.freed_kept() if sys.argv[1] == "kept" else nullcontext():
    np.ones(300_000, np.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(1000):
        np.ones(300_000, np.uint8)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.own = self


def faults(how: str) -> int:
    """Pages that the system gives to a thousand arrays of 73 pages, one after another, with the setting of Dask."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how],
        env=os.environ | {"MALLOC_TRIM_THRESHOLD_": "65536", "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif("glibc" not in str(os.confstr("CS_GNU_LIBC_VERSION")), reason="another C library")
def test_freed_memory_is_used_again() -> None:
    assert faults("given back") > 50_000
    assert faults("kept") < 5000


@pytest.mark.parametrize("is_enabled", [True, False])
def test_new_objects_that_refer_to_each_other_are_freed_and_old_ones_not_looked_at(is_enabled: bool) -> None:
    old = Node()
    gc.collect()  # it is of the oldest generation now
    old_one = weakref.ref(old)
    del old
    if not is_enabled:
        gc.disable()
    try:
        with memory.cycles_freed():
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
