"""What tshark shows of a capture: its PDUs, and the frames that it had a reason not to dissect as usual."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """A frame that tshark had a reason not to dissect as usual."""

    frame: int
    is_cut: bool
    is_malformed: bool
    is_irregular: bool


@dataclass(frozen=True)
class ShownPdu:
    """A PDU as tshark shows it: the frame that completes it, and the values of our columns that it gives."""

    frame: int
    values: dict[str, int]
    place_frame: int | None
    """The frame that brought its first byte, when tshark's output tells it."""
    place_bytes: int | None
    """Its first byte, counted from the start of that frame's payload."""
    place_tail_bytes: int | None
    """Or counted from the payload's end."""


@dataclass(frozen=True)
class Dissection:
    """All that tshark shows of a capture."""

    version: str
    pdus: list[ShownPdu]
    """With out-of-order reassembly, which is right unless bytes are missing."""
    pdus_in_order_of_arrival: list[ShownPdu]
    """Without it: fewer where segments come late, more after a hole. Consulted for PDUs that the first lack."""
    frames: dict[int, Frame]
