"""How long a pause has to be to end a run of commands that follow one another."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.busy import THINK_MAX_NS

STEADY_QUARTILES: Final = 10
"""Up to this many upper quartiles of the pauses of a run are part of it: a steady pause ends nothing."""

STEADY_COUNT_MIN: Final = 3
"""Pauses that it takes for steady ones."""


def longest_ns(pauses_ns: NDArray[Any]) -> float:
    """The longest pause within a run, given all pauses: 100 ms, or what is usual among them."""
    steady_ns = float(np.percentile(pauses_ns, 75, method="lower")) if len(pauses_ns) >= STEADY_COUNT_MIN else 0.0
    return max(THINK_MAX_NS, STEADY_QUARTILES * steady_ns)
