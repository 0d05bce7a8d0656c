"""How long the bytes of a burst take: on the line, and beyond it for windows that wait for their ACKs.

```text
  sent  |====      ====      ==        a window, then nothing until its first ACK is back
        |<- round ->|
  sent  |=         ==        ====      slow start: each round twice the one before, until one fills the round
```
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from iscsitrace.analysis.model.setting import Setting

BASIC_HEADER_BYTES = 48
FRAME_HEADERS_BYTES = 66
"""Of a segment as a capture shows it: Ethernet, IPv4, and TCP with timestamps."""
_SEGMENTS_PER_ACK = 2
"""RFC 9293, section 3.8.6.3: the ACK that lets a window go on is that of its second segment."""


def rate_of_line(rate_bps: float, segment_bytes: int) -> float:
    """Bytes of a stream that a line carries in a second, in full segments with their headers."""
    return rate_bps / 8 * segment_bytes / (segment_bytes + FRAME_HEADERS_BYTES)


def stream_bytes(payload_bytes: float, data_pdu_bytes: int | None) -> float:
    """A burst with the headers of its data PDUs, where they count."""
    return payload_bytes + (BASIC_HEADER_BYTES * ceil(payload_bytes / data_pdu_bytes) if data_pdu_bytes else 0)


@dataclass(frozen=True)
class Sender:
    """The end that sends a block's data, as far as its windows go."""

    byte_ns: float
    """What the line takes for a byte."""
    round_ns: float
    """From the first byte of a window to what its first ACK lets go."""
    limit_bytes: float
    """No window is larger."""
    segment_bytes: int
    data_pdu_bytes: int | None

    @classmethod
    def of(cls, setting: Setting, limit_bytes: float | None = None) -> Sender:
        """The sender of a setting, with its own window or a smaller one."""
        byte_ns = 1e9 / setting.c_bytes_per_s if setting.c_bytes_per_s else 0.0
        limit_bytes = min(setting.window_bytes or inf, limit_bytes or inf)
        return cls(
            byte_ns,
            2 * setting.delay_ns + _SEGMENTS_PER_ACK * setting.segment_bytes * byte_ns,
            limit_bytes,
            setting.segment_bytes,
            setting.data_pdu_bytes,
        )

    def line_ns(self, payload_bytes: float) -> float:
        """What the line takes for a burst."""
        return stream_bytes(payload_bytes, self.data_pdu_bytes) * self.byte_ns

    def stall_ns(self, payload_bytes: float, window_bytes: float = inf) -> tuple[float, float]:
        """How much longer a burst takes that begins with a window; and the window after it."""
        left, window, stall_ns = stream_bytes(payload_bytes, self.data_pdu_bytes), window_bytes, 0.0
        while left > (usable := self.usable_bytes(window)):
            if usable >= self.limit_bytes or usable * self.byte_ns >= self.round_ns:
                # all rounds from here on are alike
                stall_ns += (ceil(left / usable) - 1) * max(0.0, self.round_ns - usable * self.byte_ns)
                return stall_ns, min(self.limit_bytes, window + left)
            stall_ns += max(0.0, self.round_ns - usable * self.byte_ns)
            left -= usable
            window += usable
        return stall_ns, window + max(0.0, left)

    def usable_bytes(self, window_bytes: float) -> float:
        """What of a window goes on with every round trip: full segments, for what it cuts off waits (RFC 9293, section
        3.8.6.2.1), and an even number of them, for an odd last one is acknowledged with the next.
        """
        window = min(window_bytes, self.limit_bytes)
        if window == inf:
            return window
        segments = max(1, window // self.segment_bytes)
        return (segments - (segments % _SEGMENTS_PER_ACK if segments > _SEGMENTS_PER_ACK else 0)) * self.segment_bytes
