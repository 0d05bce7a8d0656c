"""How the data of one I/O is sent: its bursts with their headers, the line time of a byte, and the windows of the
connection.

```text
  0        immediate     unsolicited        R2T          R2T     block
  |----------------|-----------------|-------------|-------------|       the bursts of a write (RFC 7143, section 13)
                      up to FirstBurstLength   each up to MaxBurstLength

  sent  |====      ====      ==        a window, then nothing until the ACK of its first bytes is back
        |<- round ->|
  sent  |=         ==        ====      slow start: each round twice the one before, until one fills the round
```
"""

from __future__ import annotations

from math import ceil, inf

from iscsitrace.model.pipeline import Block, Pipeline, Way
from iscsitrace.model.setting import Setting


def first_burst_bytes(setting: Setting) -> int:
    """Bytes sent with the command: immediate data (section 13.11) and, with InitialR2T=No, the rest of the first burst
    (section 13.10).
    """
    keys = setting.solicitation
    limit = min(setting.block_bytes, keys.first_burst_bytes)
    if not keys.is_initial_r2t:
        return limit
    return min(limit, keys.max_recv_data_segment_bytes) if keys.is_immediate_data else 0


def solicited_bytes(setting: Setting) -> tuple[int, ...]:
    """Bytes that each R2T requests, in order: MaxBurstLength (section 13.13), and the remainder in the last."""
    left, most = setting.block_bytes - first_burst_bytes(setting), setting.solicitation.max_burst_bytes
    whole, rest = divmod(left, most)
    return (most,) * whole + ((rest,) if rest else ())


BASIC_HEADER_BYTES = 48
FRAME_HEADERS_BYTES = 66
"""Headers of a segment as captured: Ethernet, IPv4, and TCP with timestamps."""
_SEGMENTS_PER_ACK = 2
"""RFC 9293, section 3.8.6.3."""


def rate_of_line(rate_bps: float, segment_bytes: int) -> float:
    """Bytes of the stream that a line carries per second, in full segments with their headers."""
    return rate_bps / 8 * segment_bytes / (segment_bytes + FRAME_HEADERS_BYTES)


def stream_bytes(payload_bytes: float, data_pdu_bytes: int | None) -> float:
    """Bytes of a burst, with the headers of its data PDUs if these are counted."""
    return payload_bytes + (BASIC_HEADER_BYTES * ceil(payload_bytes / data_pdu_bytes) if data_pdu_bytes else 0)


def byte_ns(setting: Setting) -> float:
    """Line time of a byte of the stream."""
    return 1e9 / setting.c_bytes_per_s if setting.c_bytes_per_s else 0.0


def block_of(setting: Setting) -> Block:
    """The data of one command: all of a read; of a write the unsolicited data and a burst for each R2T."""
    if setting.operation == "read":
        return Block(stream_bytes(setting.block_bytes, setting.data_pdu_bytes))
    first, *solicited = (
        stream_bytes(size, setting.data_pdu_bytes) for size in (first_burst_bytes(setting), *solicited_bytes(setting))
    )
    return Block(first, solicited, setting.solicitation.max_outstanding_r2t)


def usable_bytes(window_bytes: float, segment_bytes: int) -> float:
    """Bytes of a window that are sent in every RTT: full segments, because a sender avoids shorter ones (RFC 9293,
    section 3.8.6.2.1), and an even number, because an odd last one is acknowledged with the next.
    """
    if window_bytes == inf:
        return inf
    segments = max(1, int(window_bytes // segment_bytes))
    return (segments - segments % _SEGMENTS_PER_ACK if segments > _SEGMENTS_PER_ACK else segments) * segment_bytes


def way_of(setting: Setting, average_bytes: float = inf, k_factor: float = 1.0) -> Way:
    """The path with the setting's window, or with a smaller one that varies about an average, which need not be full
    segments; sending continues with the ACK of the second segment.
    """
    round_trip_ns = 2 * setting.delay_ns
    return Way(
        round_trip_ns=round_trip_ns * k_factor,
        acknowledged_ns=round_trip_ns + _SEGMENTS_PER_ACK * setting.segment_bytes * byte_ns(setting),
        window_bytes=min(usable_bytes(setting.window_bytes or inf, setting.segment_bytes), average_bytes),
        start_bytes=setting.start_window_bytes or inf,
    )


def open_way(setting: Setting, k_factor: float = 1.0) -> Way:
    """The path without window limits."""
    return Way(2 * setting.delay_ns * k_factor)


def alone_ns(setting: Setting, *ways: Way) -> float:
    """Time of one I/O with nothing else in flight; over several ways, until all of them have it."""
    block = block_of(setting)
    if len(ways) == 1 and not block.solicited_bytes and ways[0].holds(block.first_bytes):
        # nothing waits for anything: no need to follow it
        return block.first_bytes * byte_ns(setting) + ways[0].round_trip_ns
    return Pipeline(block, ways, [range(len(ways))], byte_ns(setting)).run(1)[0]


def line_ns(setting: Setting) -> float:
    """Line time of one I/O."""
    block = block_of(setting)
    return (block.first_bytes + sum(block.solicited_bytes)) * byte_ns(setting)
