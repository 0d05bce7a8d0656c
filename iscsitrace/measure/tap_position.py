"""Position of the tap: near the initiator, near the target, or between, from the RTTs to both sides."""

from __future__ import annotations

NEAR_SHARE = 0.2
"""A tap is near a side whose RTT is less than this share of the RTT of the whole path."""


def initiator_share(rtt_to_initiator_ns: int | None, rtt_to_target_ns: int | None) -> float | None:
    """Share of the path on the initiator's side of the tap, 0 to 1; None where an RTT is unknown."""
    if rtt_to_initiator_ns is None or rtt_to_target_ns is None:
        return None
    whole = rtt_to_initiator_ns + rtt_to_target_ns
    return rtt_to_initiator_ns / whole if whole > 0 else None


def position(rtt_to_initiator_ns: int | None, rtt_to_target_ns: int | None) -> str | None:
    """``initiator``, ``target`` or ``between``; None where an RTT is unknown."""
    share = initiator_share(rtt_to_initiator_ns, rtt_to_target_ns)
    if share is None:
        return None
    if share < NEAR_SHARE:
        return "initiator"
    return "target" if share > 1 - NEAR_SHARE else "between"
