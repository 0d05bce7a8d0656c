"""The packets of two taps, joined by the bytes that they carry: transit times, losses, and what the captures lack.

A proxy that terminates TCP carries other bytes on each side: then nothing joins, and only commands are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iscsitrace.analysis.taps.clock import Clock
from iscsitrace.analysis.taps.commands import ConnectionPair, Matched
from iscsitrace.analysis.taps.samples import Samples, joined
from iscsitrace.tables import tap_join
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import Source, Trace

Captured = tuple[Trace, Sequence[Source]]
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

    def count(self, name: str, *, to_target: bool | None = None) -> int:
        """Sum of a column of ``paths``, of one direction or of both."""
        values = self.paths.raw(name)
        return int(values.sum() if to_target is None else values[self.paths.raw("to_target") == to_target].sum())


def join(near: Captured, far: Captured, matched: Matched, clock: Clock) -> Packets | None:
    """Joins two taps; None if they have no packet in common."""
    pairs = _pairs(near, far, matched.connections)
    tables = tap_join.join(near[1], far[1], pairs, clock.offset_ns)
    transits, limits = _transits(tables["transits"]), _limits(tables["envelope"])
    if not transits.has_both_directions:
        return None
    return Packets(transits, limits, tables["paths"], tables["path_losses"])


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


def _is_client_target(trace: Trace, sources: Sequence[Source], connections: Sequence[int]) -> Mapping[int, bool]:
    """By connection, whether the join takes the target for its client: where no SYN was captured."""
    rows = trace.connections.select(np.isin(trace.connections.raw("connection"), connections))
    targets = {row["connection"]: (row["target_address"], row["target_port"]) for row in rows.rows()}
    if rows.raw("has_syn").all():
        return dict.fromkeys(targets, False)
    seen = tap_join.connections_seen(sources)["connections_seen"]
    clients = {row["connection"]: (row["client_address"], row["client_port"]) for row in seen.rows()}
    return {connection: clients.get(connection) == target for connection, target in targets.items()}
