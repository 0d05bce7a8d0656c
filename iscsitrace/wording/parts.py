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
    letter: str
    """On a terminal; lower case for time in which nothing waits."""
    color: str
    """Of Okabe and Ito's palette, which people with any kind of colour vision can tell apart."""
    hatch: str = ""
    """A pattern beside the colour, as matplotlib has it."""
    is_dark: bool = False
    """Whether text on this colour is white."""


PARTS: Final = (
    Part("transfer", "transfer", "data on the line", "T", "#0072B2", is_dark=True),
    Part("propagation", "network RTT", "the delay of the network, both ways", "P", "#56B4E9"),
    Part("target_service", "target service", "the target processes commands", "S", "#E69F00"),
    Part("initiator_think", "initiator idle", "no commands in flight", "i", "#e9e9e9", ".."),
    Part("initiator_service", "initiator service", "R2T received, data not sent yet", "I", "#F0E442"),
    Part("ack_wait", "ACK wait", "held back until an ACK arrives", "A", "#CC79A7"),
    Part("receive_window", "receive window", "the receive window is full", "R", "#009E73", is_dark=True),
    Part("congestion_window", "congestion window", "the congestion window is full", "C", "#8fd6c0", "//"),
    Part("loss_recovery", "loss recovery", "waiting for retransmissions", "L", "#D55E00", "xx", is_dark=True),
    Part("unknown", "unknown", "cause unknown", "?", "#7a7a7a", is_dark=True),
)
BY_NAME: Final = {part.name: part for part in PARTS}
