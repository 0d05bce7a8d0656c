"""Tables of captures of the same traffic at several taps, computed from the tables of all of them."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Table, column

_HELD = "time in which its TCP was sending, or waited for ACKs, windows or retransmissions"

LEGS: Final = Table(
    "legs",
    "one command at the initiator's tap, with the time that each host and each direction of the network took",
    (
        column("cycle", "uint32", "row of the command in cycles"),
        column("initiator_ns", "int64", "in the initiator's host, up to its tap: from the command, and from each R2T that counts, to the last byte sent for it; the four legs add up to latency_ns; null where the command is not complete at both taps", "ns", null=True, source="method 14"),
        column("to_target_ns", "int64", "on the network to the target, recovery of losses included", "ns", null=True, source="method 14"),
        column("target_ns", "int64", "in the target, behind its tap: from the last byte that it waited for to R2T or status", "ns", null=True, source="method 14"),
        column("to_initiator_ns", "int64", "on the network to the initiator", "ns", null=True, source="method 14"),
        column("initiator_held_ns", "int64", f"of initiator_ns, {_HELD}", "ns", null=True, source="method 14"),
        column("target_held_ns", "int64", f"of target_ns, {_HELD}", "ns", null=True, source="method 14"),
    ),
)  # fmt: skip

TAPS: Final = Table(
    "taps",
    "two taps, next to each other on the way from the initiator to the target",
    (
        column("tap_a", "str", "name of the tap nearer to the initiator"),
        column("tap_b", "str", "name of the tap nearer to the target"),
        column("commands", "uint32", "commands that both captures have", "commands"),
        column("clock_offset_ns", "int64", "clock of b less clock of a, where it is known best", "ns", source="method 14"),
        column("clock_offset_low_ns", "int64", "least offset that the captures allow at that time", "ns", source="method 14"),
        column("clock_offset_high_ns", "int64", "greatest offset that they allow", "ns", source="method 14"),
        column("clock_time_ns", "int64", "that time, on the clock of a", "ns"),
        column("clock_steps", "uint32", "times that one of the clocks was set during the captures", source="method 14"),
        column("drift_ppm", "float64", "drift of the clock of b against that of a at that time", "ppm", source="method 14"),
        column("delay_a_to_b_p50_ns", "int64", "median one-way delay", "ns", null=True, source="method 14"),
        column("delay_b_to_a_p50_ns", "int64", "the same to the initiator", "ns", null=True, source="method 14"),
        column("lost_a_to_b_packets", "uint64", "packets lost between the taps, to the target", "packets", null=True, source="method 14"),
        column("lost_b_to_a_packets", "uint64", "the same to the initiator", "packets", null=True, source="method 14"),
        column("missing_at_a_packets", "uint64", "packets that a's capture lacks, though they passed a", "packets", null=True, source="method 14"),
        column("missing_at_b_packets", "uint64", "the same of b", "packets", null=True, source="method 14"),
    ),
)  # fmt: skip
