"""Who sent a RST: the host in whose name it is, or a device between the hosts."""

from __future__ import annotations

from typing import Any


def is_of_a_device(own: Any, others: Any, last_ns: Any, rst_ns: Any) -> Any:
    """Whether a device sent a RST in the name of a host: numbers, or an array of each.

    ``own`` is its TTL and ``others`` that of the host's packets, the last of which was at ``last_ns``: a device is
    nearer or farther, and the host knows nothing of the reset and goes on sending.
    """
    return (own != others) & (last_ns > rst_ns)
