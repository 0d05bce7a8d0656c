"""The true coverage of a list of captured packets, by the definitions of method.md, section 1.

A stream begins with its first captured byte, or with its SYN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.transport import SYN, Packet
from tests.support.truth import Seen


@dataclass(frozen=True)
class TrueCoverage:
    """Of all streams together."""

    stream_bytes: int
    passed_bytes: int
    decoded_bytes: int
    """Bytes of PDUs whose header was captured."""
    pdu_count: int
    known_pdu_count: int
    """Those whose header was captured."""

    @property
    def gap_share(self) -> float:
        """Share of the bytes that no packet carried."""
        return 1 - self.passed_bytes / self.stream_bytes

    @property
    def decoded_share(self) -> float:
        """Share of the decoded bytes."""
        return self.decoded_bytes / self.stream_bytes

    @property
    def pdu_share(self) -> float:
        """Share of the PDUs whose header was captured."""
        return self.known_pdu_count / self.pdu_count


def true_coverage(seen: Seen, packets: Sequence[Packet], header_bytes: int) -> TrueCoverage:
    """What was captured of these packets; a header counts if so many bytes of it were captured."""
    bounds = {}
    has_syn = {
        (packet.connection, to_target)
        for packet in packets
        if packet.flags & SYN
        # a SYN-ACK acknowledges the other SYN
        for to_target in ((True, False) if packet.ack_offset is not None else (packet.to_target,))
    }
    for key, stream in seen.streams.items():
        if stream.regions:
            first = 0 if key in has_syn else min(stream.regions, key=lambda region: region.place).start
            bounds[key] = first, stream.regions[-1].end
    decoded = pdus = known = 0
    for pdu in seen.pdus:
        key = pdu.pdu.connection, pdu.pdu.to_target
        start, end = pdu.pdu.stream_offset, pdu.pdu.stream_offset + pdu.pdu.length
        first, last = bounds.get(key, (0, 0))
        if start < last and first < end:
            pdus += 1
            if first <= start and pdu.header_bytes >= header_bytes:
                known += 1
                decoded += min(end, last) - start
    return TrueCoverage(
        stream_bytes=sum(last - first for first, last in bounds.values()),
        passed_bytes=sum(seen.streams[key].passed_bytes(*bound) for key, bound in bounds.items()),
        decoded_bytes=decoded,
        pdu_count=pdus,
        known_pdu_count=known,
    )
