"""Memory of a worker: freed memory is used again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = """
import resource, sys
from contextlib import nullcontext
import numpy as np
from iscsitrace.fleet import task

with task.freed_kept() if sys.argv[1] == "kept" else nullcontext():
    np.ones(300_000, np.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(1000):
        np.ones(300_000, np.uint8)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


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
