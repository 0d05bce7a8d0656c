"""How the parts of the time budget look, wherever they are drawn."""

from __future__ import annotations

from iscsitrace.plots import style

LOOKS = {
    # part: colour, hatch, what it is
    "transfer": (style.BLUE, "", "transfer"),
    "propagation": (style.SKY, "", "propagation: the path's delay"),
    "target_service": (style.ORANGE, "", "target service"),
    "initiator_think": (style.PALE, "..", "initiator: no task outstanding"),
    "initiator_service": (style.YELLOW, "", "initiator service: data granted, not sent"),
    "ack_wait": (style.PURPLE, "", "waiting for an ACK"),
    "receive_window": (style.GREEN, "", "receive window full"),
    "congestion_window": ("#8fd6c0", "//", "congestion window full"),
    "loss_recovery": (style.VERMILLION, "xx", "loss recovery"),
    "unknown": (style.GREY, "", "unknown"),
}
