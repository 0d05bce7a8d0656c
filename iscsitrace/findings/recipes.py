"""Options of `iscsitrace simulate` that captures of several findings share."""

from __future__ import annotations

from typing import Final

WAN: Final = "--one-way-delay 4ms --rate 320Mbit --set target-host-delay=20us --set initiator-host-delay=20us"
"""An RTT of 8 ms and 320 Mbit/s, between hosts that take a moment for each packet."""
LAN: Final = "--one-way-delay 1ms --rate 20Mbit --block-size 16K"
"""Small reads over a short, slow path."""
R2T_ONLY: Final = "--key InitialR2T=Yes --key ImmediateData=No --key FirstBurstLength=65536"
"""Writes wait for an R2T before they send data."""
WRITES: Final = f"write --block-size 256K --bytes 4M {R2T_ONLY} {WAN}"
"""Writes of four bursts."""
