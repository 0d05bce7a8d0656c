"""What comes again at the same step: every 20th command, every 2 s."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MOST: Final = 0.75
"""Least share of the steps, or of what a pattern is looked for in, that is alike."""
_SAME: Final = 0.1
"""Two periods are the same if they differ by this share."""


def step_of(steps: Array, share: float = _SAME) -> int:
    """The step that most of these are, to this share of it; 0 where there is none."""
    if len(steps) < 2:
        return 0
    typical = float(np.median(steps))
    return round(typical) if (np.abs(steps - typical) <= share * typical).mean() >= MOST else 0
