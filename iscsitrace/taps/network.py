"""The network between two taps: the clocks at both ends, one-way delays, losses, and what each capture lacks.

The packets of two taps are joined by the bytes that they carry. A proxy that terminates TCP carries other bytes on each
side: then nothing joins, and only commands are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iscsitrace.tables import tap_join
from iscsitrace.tables.table import Array, Table
from iscsitrace.tables.trace import Source, TraceTables
from iscsitrace.taps.clock import Clock, fit
from iscsitrace.taps.commands import ConnectionPair, Matched
from iscsitrace.taps.envelope import Samples, joined

Captured = tuple[TraceTables, Sequence[Source]]
"""A tap: its trace, and its captures."""


@dataclass(frozen=True)
class Packets:
    """What the join shows; A is the tap nearer to the initiator."""

    transits: Samples
    """Of ranges of bytes and empty packets, evenly decimated, in order of time at A."""
    limits: Samples
    """The least and greatest transit times of many intervals: what limits the clock."""
    paths: Table
    losses: Table
    doubts: Table
    losses_not_listed: int = 0

    def alone(self, *, is_at_a: bool) -> Table:
        """What the tap of the sender alone saw, and the network did not lose for sure: rows of ``path_losses``."""
        is_of_sender = (self.losses.raw("is_seen_at_a") == is_at_a) & (self.losses.raw("to_target") == is_at_a)
        return self.losses.select(is_of_sender & (self.losses["verdict"] != "lost_in_network"))

    def doubtful(self, *, is_at_a: bool) -> tuple[Array, Array]:
        """Connections and times of packets of this tap's sender whose bytes one that neither tap saw may have had."""
        rows = self.doubts.select(self.doubts.raw("to_target") == is_at_a)
        return self.connections(rows, is_at_a=is_at_a), rows.raw("time_ns").astype(np.int64)

    def connections(self, losses: Table, *, is_at_a: bool) -> Array:
        """The connection of each row of ``path_losses`` or ``path_doubts``, as one of the taps numbers them, int64."""
        by_pair = np.zeros(int(self.paths.raw("pair").max(initial=0)) + 1, dtype=np.int64)
        by_pair[self.paths.raw("pair")] = self.paths.raw("connection_a" if is_at_a else "connection_b")
        return np.asarray(by_pair[losses.raw("pair")])

    def count(self, name: str, *, to_target: bool | None = None) -> int:
        """Sum of a column of ``paths``, of one direction or of both."""
        values = self.paths.raw(name)
        return int(values.sum() if to_target is None else values[self.paths.raw("to_target") == to_target].sum())


def join(near: Captured, far: Captured, matched: Matched, clock: Clock) -> Packets | None:
    """Joins two taps; None if they have no packet in common."""
    pairs = _pairs(near, far, matched.connections)
    tables = tap_join.join(near[1], far[1], pairs, clock.offset_ns)
    paths = tables["paths"]
    terminated = set(paths.raw("pair")[paths.raw("is_terminated")].tolist())
    if terminated:
        pairs = [pair for number, pair in enumerate(pairs) if number not in terminated]
        tables = tap_join.join(near[1], far[1], pairs, clock.offset_ns)
    transits, limits = _transits(tables["transits"]), _limits(tables["envelope"])
    if not transits.has_both_directions:
        return None
    counters = tables["counters"]
    not_listed = int(counters.raw("count")[counters["name"] == "join_losses_not_listed"].sum())
    return Packets(transits, limits, tables["paths"], tables["path_losses"], tables["path_doubts"], not_listed)


def _transits(table: Table) -> Samples:
    rows = Samples(table.raw("time_a_ns"), table.raw("transit_ns"), table.raw("to_target").astype(bool))
    return joined([rows], rows.time_ns)


def _limits(envelope: Table) -> Samples:
    to_target = envelope.raw("to_target").astype(bool)
    parts = [
        Samples(envelope.raw(time)[which], envelope.raw(value)[which], to_target[which])
        for which, time, value in (
            (to_target, "least_time_a_ns", "least_ns"),
            (~to_target, "greatest_time_a_ns", "greatest_ns"),
        )
    ]
    return joined(parts, np.concatenate([part.time_ns for part in parts]))


def _pairs(near: Captured, far: Captured, connections: Sequence[ConnectionPair]) -> list[tap_join.Pair]:
    """The connections as the join numbers them, with the side that it takes for the client."""
    at_near = _is_client_target(*near, [pair.at_a for pair in connections])
    at_far = _is_client_target(*far, [pair.at_b for pair in connections])
    return [tap_join.Pair(pair.at_a, pair.at_b, at_near[pair.at_a], at_far[pair.at_b]) for pair in connections]


def _is_client_target(trace: TraceTables, sources: Sequence[Source], connections: Sequence[int]) -> Mapping[int, bool]:
    """By connection, whether the join takes the target for its client: where no SYN was captured."""
    rows = trace.connections.select(np.isin(trace.connections.raw("connection"), connections))
    targets = {row["connection"]: (row["target_address"], row["target_port"]) for row in rows.rows()}
    if rows.raw("has_syn").all():
        return dict.fromkeys(targets, False)
    seen = tap_join.connections_seen(sources)["connections_seen"]
    clients = {row["connection"]: (row["client_address"], row["client_port"]) for row in seen.rows()}
    return {connection: clients.get(connection) == target for connection, target in targets.items()}


@dataclass(frozen=True)
class Delays:
    """One-way delays of one direction."""

    time_ns: Array
    """When it passed the first of the two taps, on the clock of A, int64."""
    delay_ns: Array
    """Until it passed the second, int64."""

    def quantile_ns(self, share: float) -> int | None:
        """A delay of the sample that this share of all does not exceed; None without samples."""
        return int(np.quantile(self.delay_ns, share, method="inverted_cdf")) if len(self.delay_ns) else None


@dataclass(frozen=True)
class Network:
    """What lies between tap A and tap B, of which A is nearer to the initiator."""

    command_count: int
    """Commands that both have."""
    clock: Clock
    """B less A."""
    to_target: Delays
    to_initiator: Delays
    packets: Packets | None = None
    """Its packets; None where only commands were compared."""

    def count(self, name: str, *, to_target: bool | None = None) -> int | None:
        """Sum of a column of ``paths``, of one direction or of both; None where only commands were compared."""
        return self.packets.count(name, to_target=to_target) if self.packets else None

    def as_dict(self) -> dict[str, Any]:
        """The columns of the table ``taps``."""
        clock = self.clock
        return {
            "commands": self.command_count,
            "clock_offset_ns": clock.offset_ns,
            "clock_offset_low_ns": clock.low_ns,
            "clock_offset_high_ns": clock.high_ns,
            "clock_time_ns": clock.reference_ns,
            "clock_steps": len(clock.steps_ns),
            "drift_ppm": clock.drift_ppm,
            "delay_a_to_b_p50_ns": self.to_target.quantile_ns(0.5),
            "delay_b_to_a_p50_ns": self.to_initiator.quantile_ns(0.5),
            "lost_a_to_b_packets": self.count("lost", to_target=True),
            "lost_b_to_a_packets": self.count("lost", to_target=False),
            "missing_at_a_packets": self.count("missing_at_a"),
            "missing_at_b_packets": self.count("missing_at_b"),
        }


def between(commands: Samples, clock: Clock, command_count: int, packets: Packets | None) -> Network:
    """The network between two taps, of which A is nearer to the initiator.

    ``clock`` is that of the ``commands``; the packets show it better.
    """
    if packets and not clock.is_assumed:
        clock = _refined(clock, commands, packets)
    samples = packets.transits if packets else commands
    transits = samples.less(clock.offset_at(samples.time_ns))
    out, back = transits.select(transits.is_a_first), transits.select(~transits.is_a_first)
    return Network(
        command_count,
        clock,
        Delays(out.time_ns, out.raw_ns),
        Delays(back.time_ns + back.raw_ns, -back.raw_ns),
        packets,
    )


def _refined(clock: Clock, commands: Samples, packets: Packets) -> Clock:
    """The clock that commands and packets show together; that of the commands where the packets contradict it."""
    if (np.diff(commands.time_ns) < 0).any():
        # A's clock was set back: packets are known by their time alone, and it occurs twice
        return clock
    both = joined([commands, packets.limits], np.concatenate([commands.time_ns, packets.limits.time_ns]))
    return fit(both, len(clock.steps_ns)) or clock
