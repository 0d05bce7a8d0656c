"""tshark's dissection of a capture: its PDUs, and the frames that it may not have dissected fully."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """A frame that tshark may not have dissected fully, and why."""

    frame: int
    is_cut: bool
    is_malformed: bool
    is_irregular: bool


@dataclass(frozen=True)
class ShownPdu:
    """A PDU as tshark shows it: the frame that completes it, and values by our column names."""

    frame: int
    values: dict[str, int]
    place_frame: int | None
    """The frame of its first byte, if tshark's output shows it."""
    place_bytes: int | None
    """Offset of its first byte from the start of that frame's payload."""
    place_tail_bytes: int | None
    """Or from the end of the payload."""


@dataclass(frozen=True)
class Dissection:
    """Everything that tshark shows of a capture."""

    version: str
    pdus: list[ShownPdu]
    """With out-of-order reassembly, which is right unless bytes are missing."""
    pdus_in_order_of_arrival: list[ShownPdu]
    """Without it: fewer where segments come late, more after a hole. Used for PDUs that the first list lacks."""
    frames: dict[int, Frame]
