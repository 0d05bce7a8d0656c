"""A join of two captures that holds every packet and compares their bytes: the truth where nothing rewrites packets."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from iscsitrace.tables import tap_join
from iscsitrace.tables.table import Table
from tests.support.capture_file import Record, read_records, write_pcapng

HEADER_BYTES = 128
"""Link, IP and TCP headers with all options fit into these: enough for a join."""


@dataclass(frozen=True)
class TwoTaps:
    """What passed each tap, the initiator's first, and what its capture holds of it. Times are those of the tap."""

    passed: tuple[Sequence[Record], Sequence[Record]]
    captured: tuple[Sequence[Record], Sequence[Record]]

    def transits(self) -> Counter[tuple[int, int]]:
        """(time at a, time at b - time at a) of each packet in both captures, by multiplicity."""
        times: list[dict[bytes, list[int]]] = []
        for records in self.captured:
            found = defaultdict(list)
            for record in records:
                found[record.data].append(record.time_ns)
            times.append(found)
        return Counter(
            (time_a, time_b - time_a)
            for data, times_a in times[0].items()
            for time_a, time_b in zip(times_a, times[1].get(data, []), strict=False)
        )

    def alone(self) -> dict[tuple[bool, int], str]:
        """What happened to each packet that one capture alone holds: (is in a, frame) -> ``lost`` or ``missed``."""
        found = {}
        for tap, is_at_a in ((0, True), (1, False)):
            captured_there = Counter(record.data for record in self.captured[1 - tap])
            passed_there = Counter(record.data for record in self.passed[1 - tap])
            for frame, record in enumerate(self.captured[tap], start=1):
                if not captured_there[record.data]:
                    found[is_at_a, frame] = "missed" if passed_there[record.data] else "lost"
        return found

    def join(self, directory: Path) -> dict[str, Table]:
        """Both captures, joined by the program."""
        a, b = (
            write_pcapng(directory / f"{name}.pcapng", records, 1)
            for name, records in zip("ab", self.captured, strict=True)
        )
        return join_files(a, b)


def simulated(directory: Path, options: str, clock_offset_ns: int) -> TwoTaps:
    """A simulated run, headers alone; the clock of the target's tap is ahead."""
    command = [sys.executable, "-m", "iscsitrace", "simulate", *options.split(), "-o", str(directory), "--quiet"]
    subprocess.run(command, check=True, capture_output=True)
    taps = [read_records(directory / f"{end}.pcapng")[0] for end in ("initiator", "target")]
    a, b = ([replace(each, data=each.data[:HEADER_BYTES]) for each in records] for records in taps)
    b = [replace(each, time_ns=each.time_ns + clock_offset_ns) for each in b]
    return TwoTaps((a, b), (a, b))


def pairs_of(seen_a: Mapping[str, Table], seen_b: Mapping[str, Table]) -> list[tap_join.Pair]:
    """Connections with the same ends and initial sequence number."""

    def by_ends(seen: Mapping[str, Table]) -> dict[tuple[object, ...], int]:
        names = ("client_address", "client_port", "server_address", "server_port", "client_initial_sequence_number")
        return {tuple(row[name] for name in names): row["connection"] for row in seen["connections_seen"].rows()}

    a, b = by_ends(seen_a), by_ends(seen_b)
    return [tap_join.Pair(connection, b[ends]) for ends, connection in a.items() if ends in b]


def join_files(a: Path, b: Path) -> dict[str, Table]:
    """The join of all connections that two files share."""
    seen_a, seen_b = (tap_join.connections_seen([file]) for file in (a, b))
    pairs = pairs_of(seen_a, seen_b)
    hint_ns = clock_offset_hint(seen_a, seen_b, pairs)
    assert hint_ns is not None
    return tap_join.join([a], [b], pairs, hint_ns)


def clock_offset_hint(
    seen_a: Mapping[str, Table], seen_b: Mapping[str, Table], pairs: Sequence[tap_join.Pair]
) -> int | None:
    """Clock of b less clock of a, from what both captures saw of a connection; None if they share nothing.

    ``seen_*``: the tables of :func:`connections_seen`. The middle between the differences of both directions' SYNs and
    landmarks: off by half the difference of the two delays, and by what packets waited.
    """
    to_target: list[int] = []
    to_initiator: list[int] = []
    rows = [_rows_by_connection(seen["connections_seen"]) for seen in (seen_a, seen_b)]
    marks = [_landmark_times(seen["landmarks"]) for seen in (seen_a, seen_b)]
    for pair in pairs:
        a, b = rows[0].get(pair.connection_a), rows[1].get(pair.connection_b)
        if a is None or b is None:
            continue
        for name, found in (("syn_ns", to_target), ("syn_ack_ns", to_initiator)):
            if a[name] is not None and b[name] is not None:
                found.append(b[name] - a[name])
        mine, other = marks[0].get(pair.connection_a, {}), marks[1].get(pair.connection_b, {})
        for (is_from_client, number), time_ns in mine.items():
            is_to_target = is_from_client != pair.is_client_target_a
            far = other.get((is_to_target != pair.is_client_target_b, number))
            if far is not None:
                (to_target if is_to_target else to_initiator).append(far - time_ns)
    bounds = [min(to_target)] if to_target else []
    bounds += [max(to_initiator)] if to_initiator else []
    return round(sum(bounds) / len(bounds)) if bounds else None


def round_trip_ns(joined: Mapping[str, Table]) -> int | None:
    """The least RTT between two joined taps: least transit to the target less greatest transit to the initiator.

    Negative: tap b is the one nearer to the initiator, and the join has to be made the other way round. None without
    transits of both directions. Clocks that drift or step during the capture make it too short.
    """
    paths = joined["paths"]
    to_target, to_initiator = (paths.select(paths["to_target"] == direction) for direction in (True, False))
    least, greatest = (
        np.ma.compressed(rows[name]) for rows, name in ((to_target, "least_ns"), (to_initiator, "greatest_ns"))
    )
    return int(least.min() - greatest.max()) if least.size and greatest.size else None


def _rows_by_connection(table: Table) -> dict[int, dict[str, Any]]:
    return {row["connection"]: row for row in table.rows(["connection", "syn_ns", "syn_ack_ns"])}


def _landmark_times(table: Table) -> dict[int, dict[tuple[bool, int], int]]:
    found: dict[int, dict[tuple[bool, int], int]] = {}
    for row in table.rows():
        found.setdefault(row["connection"], {})[row["is_from_client"], row["sequence_number"]] = row["time_ns"]
    return found
