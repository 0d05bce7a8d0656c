"""The score of a run: a row for each sender at each tap, for each tap, and for both taps together.

A number is an error; one definition each, with its unit, in QUANTITIES. Without truth or without a result a cell is
empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

import iscsitrace
from bench.score.known import RunKnown, SenderKnown
from bench.senders import TABLES, errors, estimates, resent_count
from iscsitrace.api import Trace
from iscsitrace.errors import InputInvalid
from iscsitrace.findings import NEEDED
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps.reading import TappedTables, read_taps

BOTH: Final = "both"
Row = dict[str, str]


@dataclass(frozen=True)
class Quantity:
    """A column: what it is, and how much of a difference is noise."""

    meaning: str
    noise: float = 0
    limit: float | None = None
    """An error up to this is good."""
    is_more_better: bool = False
    """Otherwise the value nearer to zero is better."""


QUANTITIES: Final = {
    "cwnd_median": Quantity("median relative error of the congestion window where it is valid, %", 0.5, 5),
    "cwnd_p95": Quantity("95th percentile of the same, %", 1, 15),
    "cwnd_valid": Quantity("busy time with a valid congestion window, %", 1, is_more_better=True),
    "rwnd_limited": Quantity("time held by the receive window, in points of the busy time", 1, 5),
    "cwnd_limited": Quantity("time held by the congestion window, in points of the busy time", 1, 5),
    "sndbuf_limited": Quantity("time held by the send buffer, in points of the busy time", 1, 5),
    "resent_by_initiator": Quantity("retransmissions, by how many off", 0, 0),
    "resent_by_target": Quantity("retransmissions, by how many off", 0, 0),
    "rtt_least": Quantity("least RTT of the path, relative error, %", 1, 5),
    "rtt_load": Quantity("median RTT under load, relative error, %", 1, 5),
    "line_rate": Quantity("rate of the line, relative error, %", 0.5, 5),
    "delay_to_target": Quantity("median one-way delay, by how many ms off", 0.1, 0.5),
    "delay_to_initiator": Quantity("median one-way delay, by how many ms off", 0.1, 0.5),
    "headline_right": Quantity("whether the headline is an expected one", is_more_better=True),
    "limiter_right": Quantity("whether the limiter is a right one", is_more_better=True),
    "headline_agrees": Quantity("whether both taps have the same headline", is_more_better=True),
    "limiter_agrees": Quantity("whether both taps have the same limiter", is_more_better=True),
}
TEXTS: Final = ("headline", "limiter")
KEY: Final = ("source", "run", "tap", "sender")
COLUMNS: Final = (*KEY, *QUANTITIES, *TEXTS)


def of_run(known: RunKnown) -> Iterator[Row]:
    """All rows of a run."""
    joined, traces = _read(known)
    named = {tap: _named(trace) for tap, trace in traces.items()}
    for tap, trace in traces.items():
        right = {
            "headline_right": _is_in(named[tap]["headline"], known.headlines),
            "limiter_right": known.is_limiter_right.get(tap, _is_in(named[tap]["limiter"], known.limiters)),
        }
        resent = {
            f"resent_by_{side}": resent_count(trace, to_target=side == "initiator") - count
            for side, count in known.resent_counts.items()
        }
        yield _row(known, tap, "", named[tap] | right | resent)
        yield from _of_senders(known, tap, trace)
    if joined is not None:
        one, other = named.values()
        agreement = {f"{text}_agrees": one[text] == other[text] for text in TEXTS}
        yield _row(known, BOTH, "", _named(joined) | agreement | _delays(known, joined))


def _read(known: RunKnown) -> tuple[TappedTables | None, dict[str, TraceTables]]:
    """The trace of both taps, if they can be joined, and that of each."""
    wanted = tuple(dict.fromkeys((*NEEDED, *TABLES)))
    with suppress(InputInvalid):
        if len(known.captures) > 1:
            joined = read_taps(known.captures, tables=wanted)
            return joined, {tap.name: tap.trace for tap in joined.tap_list}
    return None, {tap: iscsitrace.read(file, tables=wanted) for tap, file in known.captures.items()}


def _named(trace: TraceTables) -> dict[str, str]:
    """The headline of a diagnosis, and the limiter of the session that was busy longest."""
    document = Trace.of(trace).diagnose().as_dict()
    sessions = [each for each in document["sessions"] if each.get("limiter")]
    busiest = max(sessions, key=lambda each: each["jobs_ns"], default={"limiter": ""})
    return {"headline": document["headline"]["name"] if document["headline"] else "", "limiter": busiest["limiter"]}


def _is_in(name: str, right: frozenset[str]) -> bool | None:
    return name in right if right else None


def _of_senders(known: RunKnown, tap: str, trace: TraceTables) -> Iterator[Row]:
    numbers = {row["initiator_port"]: row["connection"] for row in trace.connections.rows()}
    found = {(row["connection"], row["to_target"]): row for row in trace.senders.rows()}
    for sender in known.senders:
        number, to_target = numbers.get(sender.initiator_port, -1), sender.side == "initiator"
        if (number, to_target) in found:
            row, back = found[number, to_target], found.get((number, not to_target), {})
            cells = _limits(sender, row) | _rtts(sender, row, back) | _window(sender, tap, trace, number)
            cells["line_rate"] = _percent(row["line_wire_bytes_per_s"], sender.rate_bps and sender.rate_bps / 8)
            yield _row(known, tap, f"{sender.side} {sender.initiator_port}", cells)


def _limits(sender: SenderKnown, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        column.removesuffix("_ns"): None if row[column] is None else limited.points(row[column])
        for column, limited in sender.limited.items()
    }


def _rtts(sender: SenderKnown, row: Mapping[str, Any], back: Mapping[str, Any]) -> dict[str, Any]:
    """The RTT of the path is that from the tap to one end, and that to the other."""
    parts_ns = [each["rtt_path_ns"] for each in (row, back) if each.get("rtt_path_ns") is not None]
    found_ns = {"least": sum(parts_ns) if len(parts_ns) > 1 else None, "load": row["rtt_load_median_ns"]}
    return {
        f"rtt_{name}": _percent(None if each is None else each / 1e6, sender.rtt_ms.get(name))
        for name, each in found_ns.items()
    }


def _window(sender: SenderKnown, tap: str, trace: TraceTables, connection: int) -> dict[str, Any]:
    told, truth = estimates(trace, to_target=sender.side == "initiator", connection=connection), sender.windows[tap]
    if truth is None or not told.is_busy:
        return {}
    off = errors(told, truth)
    return {"cwnd_median": 100 * off.median, "cwnd_p95": 100 * off.p95, "cwnd_valid": 100 * off.share_valid}


def _delays(known: RunKnown, joined: TappedTables) -> dict[str, Any]:
    network = joined.between(0, -1)
    medians_ns = {way: getattr(network, way).quantile_ns(0.5) for way in known.delays_ms}
    return {
        f"delay_{way}": medians_ns[way] / 1e6 - true_ms
        for way, true_ms in known.delays_ms.items()
        if medians_ns[way] is not None
    }


def _percent(found: float | None, true: float | None) -> float | None:
    return None if found is None or not true else 100 * (found / true - 1)


def _row(known: RunKnown, tap: str, sender: str, cells: Mapping[str, Any]) -> Row:
    key = dict(zip(KEY, (known.source, known.name, tap, sender), strict=True))
    return key | {name: _cell(cells.get(name)) for name in COLUMNS[len(KEY) :]}


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        # without a negative zero
        return "" if isnan(value) else f"{round(value, 2) + 0:.2f}"
    return "" if value is None else str(value)
