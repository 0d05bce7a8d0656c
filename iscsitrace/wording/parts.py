"""The parts of the time breakdown, declared once: name, words, letter and colours, wherever a person meets them.

The order is that of docs/method.md, section 4. The schema takes its words from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Part:
    """One part: which time it is, and how it looks."""

    name: str
    """As tables and JSON have it."""
    label: str
    meaning: str
    """What happens in this time, in a few words."""
    limited: str
    """What a session is that is limited by it, in a table."""
    spent: str
    """What this time is, in a sentence."""
    letter: str
    """On a terminal; lower case for time in which nothing waits."""
    color: str
    """Of Okabe and Ito's palette, which people with any kind of colour vision can tell apart."""
    hatch: str = ""
    """A pattern beside the colour, as matplotlib has it."""
    is_dark: bool = False
    """Whether text on this colour is white."""


# fmt: off
PARTS: Final = (
    Part(
        "transfer",
        "transfer",
        "data on the line",
        "line-bound",
        "data transfer",
        "T",
        "#0072B2",
        is_dark=True,
    ),
    Part(
        "propagation",
        "network RTT",
        "network delay in both directions",
        "latency-bound",
        "network round trips",
        "P",
        "#56B4E9",
    ),
    Part(
        "target_service",
        "target service",
        "the target processes commands",
        "target-bound",
        "the target's response time",
        "S",
        "#E69F00",
    ),
    Part(
        "initiator_think",
        "initiator idle",
        "no commands in flight; I/O time has only pauses of up to 100 ms in a steady load",
        "initiator-bound",
        "pauses of the initiator between I/Os",
        "i",
        "#e9e9e9",
        "..",
    ),
    Part(
        "initiator_service",
        "initiator service",
        "R2T received, data not sent yet",
        "initiator-bound",
        "the initiator's answers to R2Ts",
        "I",
        "#F0E442",
    ),
    Part(
        "ack_wait",
        "ACK wait",
        "held back until an ACK arrives",
        "ACK-limited",
        "data that TCP holds back for an ACK",
        "A",
        "#CC79A7",
    ),
    Part(
        "receive_window",
        "receive window",
        "the receive window is full",
        "receive-window-limited",
        "waits for the receive window",
        "R",
        "#009E73",
        is_dark=True,
    ),
    Part(
        "congestion_window",
        "congestion window",
        "the congestion window is full",
        "cwnd-limited",
        "waits for the congestion window",
        "C",
        "#8fd6c0",
        "//",
    ),
    Part(
        "send_buffer",
        "send buffer",
        "the send buffer is full",
        "send-buffer-limited",
        "waits for the send buffer",
        "B",
        "#cfe3a4",
        "\\\\",
    ),
    Part(
        "loss_recovery",
        "loss recovery",
        "waiting for retransmissions",
        "loss-limited",
        "recovery from packet loss",
        "L",
        "#D55E00",
        "xx",
        is_dark=True,
    ),
    Part(
        "outage",
        "outage",
        "nothing completes for 1 s or more",
        "out of service",
        "outages",
        "!",
        "#000000",
        is_dark=True,
    ),
    Part(
        "unknown",
        "unknown",
        "cause unknown",
        "unknown",
        "time that cannot be attributed",
        "?",
        "#7a7a7a",
        is_dark=True,
    ),
)
# fmt: on
BY_NAME: Final = {part.name: part for part in PARTS}
_BY_WORDS: Final = {word: part for part in PARTS for word in (part.name, part.label.lower().replace(" ", "_"))}


def named(words: str) -> Part | None:
    """The part of this name, or of its label, with spaces or underscores; None for others."""
    return _BY_WORDS.get(words.lower().replace(" ", "_"))
