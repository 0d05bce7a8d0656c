"""NOPs whose answer is too late: the one rule for findings and events."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table

NOP_TIMEOUT_NS: Final = 5_000_000_000
"""Longest time to the answer of a NOP: open-iscsi's default of node.conn[0].timeo.noop_out_timeout."""


def awaited_until(nops: Table, last_packet_ns: NDArray[Any], closed_ns: NDArray[Any]) -> NDArray[np.int64]:
    """Until when the answer of each NOP was awaited: the last packet, or before it the FIN or RST of the NOP's sender.

    ``closed_ns`` is the time of that FIN or RST, the largest int64 where there is none.
    """
    is_after = known(nops, "request_ns") & (closed_ns >= nops.raw("request_ns"))
    return np.where(is_after, np.minimum(last_packet_ns, closed_ns), last_packet_ns)


def is_late(nops: Table, last_packet_ns: NDArray[Any]) -> NDArray[np.bool_]:
    """Which NOPs that request an answer had none for this time.

    ``last_packet_ns`` is, for each NOP, the last packet of its connection, or the end of :func:`awaited_until`; 0 where
    packets are missing from the capture: the answer can be among them.
    """
    is_ping = nops.raw("is_ping") & known(nops, "request_ns")
    until = np.where(known(nops, "response_ns"), nops.raw("response_ns"), last_packet_ns)
    # a null is the smallest int64: the difference to it would overflow
    requests = np.where(is_ping, nops.raw("request_ns"), 0)
    return np.asarray(is_ping & (until - requests >= NOP_TIMEOUT_NS))
