"""Whether PDUs of a connection may be missing from the capture: what it does not show may then have happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

TARGET: Final = "target"
INITIATOR: Final = "initiator"
"""Directions, by the receiver."""

_MISSING: Final = ("gap_bytes", "missing_pdu_count")
"""Bytes of holes; PDUs that were counted by the numbers of others, such as those whose headers a snaplen cut."""


def may_lack_pdus(value: Callable[[str], Any], *directions: str) -> Any:
    """Whether PDUs of these directions, or of both, may be missing: a bool, or one for each connection.

    ``value`` returns a column of ``connections``: of one row or of all of them.
    """
    names = (f"{name}_to_{direction}" for direction in directions or (TARGET, INITIATOR) for name in _MISSING)
    return sum(value(name) for name in names) > 0
