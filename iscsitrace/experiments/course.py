"""Curves over the time of a run, and differences between its connections; from the truth alone, without a capture.

For a search for the number of connections: what it found, when, and what it cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.lab.settings.kinds import Value

Array = NDArray[Any]

SHOWN: Final = (1, 40)
"""Connections, counted from 1, whose curves are kept: the first, and one that joins late."""
CONNECTIONS, GOODPUT, LATENCY = "connections", "goodput", "latency"
_SECOND_NS: Final = 1_000_000_000
_MOST_POINTS: Final = 240
_MB: Final = 1e6
_LEAST_SHARE: Final = 0.5
"""Connections that existed for a smaller share of the time are not compared."""


@dataclass(frozen=True)
class Course:
    """A quantity over the time of a run."""

    name: str
    unit: str
    times_s: tuple[float, ...]
    """Since the first command."""
    values: tuple[float, ...]


def of_run(truth: dict[str, Any], values: dict[str, Value], start_ns: int, end_ns: int) -> dict[str, Any]:
    """The fields of a `PointResult` about the time from ``start_ns`` to ``end_ns``."""
    results = truth["results"]
    tuning = results.get("tuning")
    first_ns = int(results["started_ns"])
    converged_s = tuning and tuning["converged_s"]
    tasks = _tasks(truth)
    found: dict[str, Any] = {
        "latency_cv": _latency_cv(tasks, start_ns),
        **_spreads(truth, results, values, tasks, start_ns, end_ns),
        "courses": tuple(_courses(truth, values, tuning, tasks, first_ns, end_ns)),
    }
    if tuning:
        found |= {
            "connections": tuning["settled_connections"],
            "converged_s": converged_s,
            "goodput_lost": _lost(tasks, start_ns, end_ns, converged_s and first_ns + round(converged_s * _SECOND_NS)),
        }
    return found


def _tasks(truth: dict[str, Any]) -> Array:
    """A row a command that completed: connection, submitted, completed, bytes."""
    cycles = truth["cycles"]
    if "by_initiator" in cycles:
        begun, ended = cycles["by_initiator"]["submitted_ns"], cycles["by_initiator"]["completed_ns"]
    else:
        begun, ended = cycles["initiator"]["command_first_ns"], cycles["initiator"]["status_ns"]
    rows = [
        row
        for operation, *row in zip(
            cycles["operation"], cycles["connection"], begun, ended, cycles["bytes"], strict=True
        )
        if operation is not None and None not in row
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _latency_cv(tasks: Array, start_ns: int) -> float | None:
    """Standard deviation of the command latency / its mean."""
    latencies = (tasks[:, 2] - tasks[:, 1])[tasks[:, 2] > start_ns]
    return float(np.std(latencies) / np.mean(latencies)) if len(latencies) and np.mean(latencies) else None


def _lost(tasks: Array, start_ns: int, end_ns: int, settled_ns: int | None) -> float | None:
    """Throughput lost by the search: 1 - throughput of the whole time / throughput after the search."""
    if settled_ns is None or settled_ns >= end_ns:
        return None
    whole, after = (_rate(tasks, since, end_ns) for since in (start_ns, settled_ns))
    return 1 - whole / after if after else None


def _rate(tasks: Array, start_ns: int, end_ns: int) -> float:
    is_within = (tasks[:, 2] > start_ns) & (tasks[:, 2] <= end_ns)
    return float(tasks[is_within, 3].sum() * 1e9 / max(1, end_ns - start_ns))


def _spreads(
    truth: dict[str, Any],
    results: dict[str, Any],
    values: dict[str, Value],
    tasks: Array,
    start_ns: int,
    end_ns: int,
) -> dict[str, Any]:
    """Standard deviation / mean over the connections that existed together, of throughput and of cwnd."""
    goodputs, windows = [], []
    ends = _sender_ends(truth, values)
    for each in results["connections"]:
        since = max(start_ns, each["joined_ns"] or start_ns)
        until = min(end_ns, each["left_ns"] or end_ns)
        if until - since < _LEAST_SHARE * (end_ns - start_ns):
            continue
        goodputs.append(_rate(tasks[tasks[:, 0] == each["connection"]], since, until))
        mean = _mean_window(ends, each["connection"], since, until)
        if mean is not None:
            windows.append(mean)
    return {"connection_spread": _spread(goodputs), "cwnd_spread": _spread(windows)}


def _spread(found: Sequence[float]) -> float | None:
    return float(np.std(found) / np.mean(found)) if len(found) > 1 and np.mean(found) else None


def _sender_ends(truth: dict[str, Any], values: dict[str, Value]) -> list[dict[str, Any]]:
    """The senders of data, in the order in which the initiator opened their connections."""
    is_read = str(values.get("workload.operation", "read")) == "read"
    ends = [end for of_target in truth["target_ends"] for end in of_target] if is_read else truth["initiator_ends"]
    return sorted(ends, key=lambda end: int(end["initiator_port"]))


def _window(ends: Sequence[dict[str, Any]], connection: int) -> tuple[Array, Array]:
    """Times and congestion windows, in packets, of a connection of the run."""
    if connection >= len(ends):
        return np.empty(0, np.int64), np.empty(0)
    windows = ends[connection]["windows"]
    pairs = [
        (time_ns, cwnd)
        for time_ns, cwnd in zip(windows["time_ns"], windows["cwnd"] or (), strict=False)
        if cwnd is not None
    ]
    times, found = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(times, np.int64), np.array(found, float)


def _mean_window(ends: Sequence[dict[str, Any]], connection: int, since: int, until: int) -> float | None:
    """The mean over time; a value lasts until the next."""
    times, windows = _window(ends, connection)
    if not len(times) or until <= since:
        return None
    edges = np.clip(np.append(times, until), since, until)
    spans = np.diff(edges)
    return float((windows * spans).sum() / spans.sum()) if spans.sum() else None


def _courses(
    truth: dict[str, Any],
    values: dict[str, Value],
    tuning: dict[str, Any] | None,
    tasks: Array,
    first_ns: int,
    end_ns: int,
) -> Iterator[Course]:
    if tuning and tuning["steps"]:
        steps = tuning["steps"]
        times = (0.0, *(float(step["time_s"]) for step in steps), (end_ns - first_ns) / _SECOND_NS)
        numbers = (steps[0]["connections"], *(step["next_connections"] for step in steps), tuning["connections"])
        yield Course(CONNECTIONS, "", times, tuple(map(float, numbers)))
    yield _goodput(GOODPUT, tasks, first_ns, end_ns)
    ends = _sender_ends(truth, values)
    left_ns = {each["connection"]: each["left_ns"] for each in truth["results"]["connections"]}
    for number in SHOWN:
        of_it = tasks[tasks[:, 0] == number - 1]
        if len(of_it):
            yield _goodput_of_one(f"{GOODPUT} of connection {number}", of_it, first_ns, end_ns)
            yield _latency(f"{LATENCY} of connection {number}", of_it, first_ns)
        changed_ns, windows = _window(ends, number - 1)
        if len(changed_ns):
            # the window of a connection that the search has removed is none
            last_ns = min(end_ns, left_ns.get(number - 1) or end_ns)
            at = np.linspace(max(first_ns, changed_ns[0]), last_ns, _MOST_POINTS).astype(np.int64)
            held = windows[np.searchsorted(changed_ns, at, side="right") - 1]
            seconds = (at - first_ns) / _SECOND_NS
            yield Course(
                f"cwnd of connection {number}", "packets", tuple(seconds.tolist()), tuple(held.astype(float).tolist())
            )


def _goodput(name: str, tasks: Array, first_ns: int, end_ns: int) -> Course:
    """From what completed in each second, or in longer intervals of a long run."""
    seconds = (end_ns - first_ns) / _SECOND_NS
    count = int(np.clip(seconds, 1, _MOST_POINTS))
    edges = np.linspace(first_ns, end_ns, count + 1)
    sums, _ = np.histogram(tasks[:, 2], edges, weights=tasks[:, 3])
    width_s = seconds / count
    times = (edges[:-1] - first_ns) / _SECOND_NS + width_s / 2
    rates = sums / width_s / _MB if width_s else sums
    return Course(name, "MB/s", tuple(times.tolist()), tuple(rates.astype(float).tolist()))


def _goodput_of_one(name: str, tasks: Array, first_ns: int, end_ns: int) -> Course:
    """The same of a single connection while it has commands, with the bytes of each spread over its time in flight.

    *Why spread:* it completes a few commands per second, and their whole number would jump from second to second.
    """
    begin_ns, last_ns = int(tasks[:, 1].min()), min(end_ns, int(tasks[:, 2].max()))
    seconds = (last_ns - begin_ns) / _SECOND_NS
    edges = np.linspace(begin_ns, last_ns, int(np.clip(seconds, 1, _MOST_POINTS)) + 1)
    lasted_ns = np.maximum(tasks[:, 2] - tasks[:, 1], 1)
    shares = np.clip((edges[:, None] - tasks[:, 1]) / lasted_ns, 0, 1)
    rates = np.diff(shares @ tasks[:, 3]) / np.diff(edges) * _SECOND_NS / _MB if seconds > 0 else np.zeros(1)
    times = ((edges[:-1] + edges[1:]) / 2 - first_ns) / _SECOND_NS
    return Course(name, "MB/s", tuple(times.tolist()), tuple(rates.astype(float).tolist()))


def _latency(name: str, tasks: Array, first_ns: int) -> Course:
    """Of each command, at its end; of a long run evenly chosen commands."""
    in_order = tasks[np.argsort(tasks[:, 2], kind="stable")]
    kept = in_order[:: -(-len(in_order) // _MOST_POINTS)]
    times = (kept[:, 2] - first_ns) / _SECOND_NS
    return Course(name, "ms", tuple(times.tolist()), tuple(((kept[:, 2] - kept[:, 1]) / 1e6).tolist()))
