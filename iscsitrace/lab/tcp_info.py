"""The kernel's state of a TCP connection: `struct tcp_info` (linux/tcp.h), as far as this kernel fills it.

Names are the kernel's without prefix and with the unit; times are nanoseconds. Fields that an older kernel does not
have, or that have no value yet, are left out; fields that a newer kernel appends are ignored.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

STATES = (
    *("", "established", "syn_sent", "syn_received", "fin_wait_1", "fin_wait_2", "time_wait", "closed", "close_wait"),
    *("last_ack", "listen", "closing", "new_syn_received"),
)
"""RFC 9293, section 3.3.2; a code of the kernel (net/tcp_states.h) is the place in the tuple."""

_NONE_YET = {"B": -1, "I": (1 << 32) - 1, "Q": (1 << 64) - 1}
"""Values that mean none: min_rtt before the first sample, max_pacing_rate without a limit."""

_MICROSECONDS = 1_000
_MILLISECONDS = 1_000_000
_LENGTH_MAX = 1024

# name, format, and factor, in the order of the struct with C's alignment
_FIELDS: tuple[tuple[str, str, int], ...] = (
    ("state", "B", 1),
    ("ca_state", "B", 1),
    ("retransmits", "B", 1),
    ("probes", "B", 1),
    ("backoff", "B", 1),
    ("options", "B", 1),
    ("window_scales", "B", 1),
    ("flags", "B", 1),
    ("rto_ns", "I", _MICROSECONDS),
    ("ato_ns", "I", _MICROSECONDS),
    ("snd_mss_bytes", "I", 1),
    ("rcv_mss_bytes", "I", 1),
    ("unacked_segments", "I", 1),
    ("sacked_segments", "I", 1),
    ("lost_segments", "I", 1),
    ("retrans_segments", "I", 1),
    ("fackets_segments", "I", 1),
    ("last_data_sent_ns", "I", _MILLISECONDS),
    ("last_ack_sent_ns", "I", _MILLISECONDS),
    ("last_data_recv_ns", "I", _MILLISECONDS),
    ("last_ack_recv_ns", "I", _MILLISECONDS),
    ("pmtu_bytes", "I", 1),
    ("rcv_ssthresh_bytes", "I", 1),
    ("rtt_ns", "I", _MICROSECONDS),
    ("rttvar_ns", "I", _MICROSECONDS),
    ("snd_ssthresh_segments", "I", 1),
    ("snd_cwnd_segments", "I", 1),
    ("advmss_bytes", "I", 1),
    ("reordering_segments", "I", 1),
    ("rcv_rtt_ns", "I", _MICROSECONDS),
    ("rcv_space_bytes", "I", 1),
    ("total_retrans_segments", "I", 1),
    ("pacing_rate_bytes_per_s", "Q", 1),
    ("max_pacing_rate_bytes_per_s", "Q", 1),
    ("bytes_acked", "Q", 1),
    ("bytes_received", "Q", 1),
    ("segs_out", "I", 1),
    ("segs_in", "I", 1),
    ("notsent_bytes", "I", 1),
    ("min_rtt_ns", "I", _MICROSECONDS),
    ("data_segs_in", "I", 1),
    ("data_segs_out", "I", 1),
    ("delivery_rate_bytes_per_s", "Q", 1),
    ("busy_time_ns", "Q", _MICROSECONDS),
    ("rwnd_limited_ns", "Q", _MICROSECONDS),
    ("sndbuf_limited_ns", "Q", _MICROSECONDS),
    ("delivered_segments", "I", 1),
    ("delivered_ce_segments", "I", 1),
    ("bytes_sent", "Q", 1),
    ("bytes_retrans", "Q", 1),
    ("dsack_dups", "I", 1),
    ("reord_seen", "I", 1),
    ("rcv_ooopack_segments", "I", 1),
    ("snd_wnd_bytes", "I", 1),
    ("rcv_wnd_bytes", "I", 1),
)
_ENDS = tuple(struct.calcsize("".join(code for _, code, _ in _FIELDS[: place + 1])) for place in range(len(_FIELDS)))


def unpack(data: bytes) -> dict[str, int | str | bool]:
    """The complete fields in ``data``, in the struct's order; ``state`` as a word."""
    known = [place for place, end in enumerate(_ENDS) if end <= len(data)]
    layout = "".join(_FIELDS[place][1] for place in known)
    values: dict[str, int | str | bool] = {}
    for place, value in zip(known, struct.unpack_from(layout, data), strict=True):
        name, code, factor = _FIELDS[place]
        if name == "state":
            values[name] = STATES[value] if value < len(STATES) else str(value)
        elif name == "window_scales":
            values["snd_wscale"], values["rcv_wscale"] = _bits(value)
        elif name == "flags":
            is_low_first = sys.byteorder == "little"
            values["is_delivery_rate_app_limited"] = bool(value & (1 if is_low_first else 0x80))
        elif value != _NONE_YET[code]:
            values[name] = value * factor
    return values


def of_descriptor(descriptor: int) -> dict[str, int | str | bool]:
    """TCP_INFO of an open TCP socket, which stays open; OSError for any other descriptor."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        return unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH_MAX))


def _bits(octet: int) -> tuple[int, int]:
    """Two bit fields of four bits, in the order of their declaration."""
    low, high = octet & 0xF, octet >> 4
    return (low, high) if sys.byteorder == "little" else (high, low)
