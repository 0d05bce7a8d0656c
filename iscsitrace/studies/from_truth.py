"""What the truth of a run shows without a capture: its commands, its parallel streams, and curves over its time.

A stream is a connection that carries data of the workload. For a search for the number of connections: what it found,
when, and what it cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.lab.settings.kinds import Value

Array = NDArray[Any]

_FIRST_PORT: Final = 40_000
"""Connection N of a simulation has this initiator port + N."""
_NO_THRESHOLD: Final = 0x7FFF_FFFF
"""ssthresh before any loss, in the kernel's representation."""
_RANKED_LEAST: Final = 3
_SECONDS_LEAST: Final = 2
SHOWN: Final = (1, 40)
"""Connections whose curves are kept: the first, and one that joins late. They are counted from 1, in the order in which
they were opened, among those in use at the end."""
CONNECTIONS, GOODPUT, LATENCY = "connections", "goodput", "latency"
MEASURED = "measured goodput"
"""What each measurement of a number of connections found, at its end."""
ALL_LATENCIES = f"{LATENCY} of every command"
_SECOND_NS: Final = 1_000_000_000
_MOST_POINTS: Final = 240
_MOST_DOTS: Final = 2000
_MB: Final = 1e6
_LEAST_SHARE: Final = 0.5
"""Connections that existed for a smaller share of the time are not compared."""


@dataclass(frozen=True)
class StreamTruth:
    """One connection. Unknown values are None."""

    target: int
    connection: int
    byte_count: int
    """In the measured stretch."""
    throughput_bytes_per_s: float
    """Of these bytes: to the end of the stretch in a run of a fixed duration, else to the end of the stream."""
    ended_s: float
    """When its last command completed, since the first command of all streams was submitted."""
    resent_count: int | None = None
    """Segments that the sender of its data retransmitted."""
    timeout_count: int | None = None
    """Retransmission timeouts of that sender; unknown for a kernel."""
    slow_start_ended_s: float | None = None
    """When its first loss ended slow start; None without a loss."""
    slow_start_left_bytes: int | None = None
    """The congestion window after this loss (ssthresh)."""


@dataclass(frozen=True)
class Course:
    """A quantity over the time of a run."""

    name: str
    unit: str
    times_s: tuple[float, ...]
    """Since the first command."""
    values: tuple[float, ...]


TARGET, CONNECTION, BEGUN, ENDED, SIZE = range(5)
"""The columns of `commands`."""


def commands(truth: Mapping[str, Any]) -> Array:
    """The commands of the workload that completed, as int64: target, connection, times of submission and completion
    in ns (as the initiator saw them, or else at its tap), bytes.
    """
    cycles = truth["cycles"]
    if "by_initiator" in cycles:
        begun, ended = cycles["by_initiator"]["submitted_ns"], cycles["by_initiator"]["completed_ns"]
    else:
        begun, ended = cycles["initiator"]["command_first_ns"], cycles["initiator"]["status_ns"]
    columns = (cycles["target"], cycles["connection"], begun, ended, cycles["bytes"])
    rows = [
        row
        for operation, *row in zip(cycles["operation"], *columns, strict=True)
        if operation is not None and None not in row
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, 5)


def of_streams(
    truth: Mapping[str, Any], values: Mapping[str, Value], start_ns: int, end_ns: int, *, is_timed: bool
) -> dict[str, Any]:
    """The fields of a `PointResult` about its streams; none for mixed reads and writes, which have two directions."""
    operation = values.get("workload.operation", "read")
    if operation not in {"read", "write"}:
        return {}
    is_read = operation == "read"
    found = of_truth(truth, start_ns, end_ns if is_timed else None, is_read=is_read)
    of_ends: dict[str, Any] = {
        "spread_s": spread_s(found),
        "spread_ratio": spread_ratio(found),
        "slow_start_rank": slow_start_rank(found),
    }
    return {
        "streams": found,
        "jain": jain(found),
        "timeout_count": timeout_count(found),
        "retransmission_rate": retransmission_rate(truth, found, is_read=is_read),
        "utilisation": utilisation(truth, start_ns, end_ns, is_read=is_read),
        "mean_of_peak": mean_of_peak(commands(truth), start_ns, end_ns),
        # in a run of a fixed duration all streams end at once
        **({} if is_timed else of_ends),
    }


def of_truth(truth: Mapping[str, Any], start_ns: int, end_ns: int | None, *, is_read: bool) -> tuple[StreamTruth, ...]:
    """The streams of a run, by target and connection.

    What completed from ``start_ns`` to ``end_ns`` counts; without an end, each stream counts to its own end.
    """
    senders = _senders(truth, is_read=is_read)
    done = commands(truth)
    places = sorted({(target, number) for target, number, *_ in done.tolist()})
    own = {place: done[(done[:, TARGET] == place[0]) & (done[:, CONNECTION] == place[1])] for place in places}
    times_ns = int(truth["results"]["started_ns"]), start_ns, end_ns
    return tuple(_stream(place, found, times_ns, senders.get(place, {})) for place, found in own.items())


def _stream(
    place: tuple[int, int],
    done: Array,
    times_ns: tuple[int, int, int | None],
    sender: Mapping[str, Any],
) -> StreamTruth:
    begun_ns, start_ns, end_ns = times_ns
    last_ns = int(done[:, ENDED].max())
    until_ns = last_ns if end_ns is None else end_ns
    counts = (done[:, ENDED] > start_ns) & (done[:, ENDED] <= until_ns)
    byte_count = int(done[counts, SIZE].sum())
    left_ns, left_bytes = _slow_start_end(sender)
    return StreamTruth(
        *place,
        byte_count=byte_count,
        throughput_bytes_per_s=byte_count * 1e9 / (until_ns - start_ns) if until_ns > start_ns else 0.0,
        ended_s=(last_ns - begun_ns) / 1e9,
        resent_count=sender.get("retransmitted_segment_count"),
        timeout_count=sender.get("timeout_count"),
        slow_start_ended_s=None if left_ns is None else (left_ns - begun_ns) / 1e9,
        slow_start_left_bytes=left_bytes,
    )


def _senders(truth: Mapping[str, Any], *, is_read: bool) -> dict[tuple[int, int], Mapping[str, Any]]:
    """The sender of the data of each connection, by target and connection."""
    ports = {each["own_port"]: each["connection"] for each in truth.get("ends") or () if each.get("own_port")}
    targets = {each["connection"]: each["target"] for each in truth["results"]["connections"]}

    def place(end: Mapping[str, Any], target: int | None) -> tuple[int | None, int | None]:
        port = end["initiator_port"]
        connection = ports.get(port) if ports else port - _FIRST_PORT
        return targets.get(connection) if target is None else target, connection

    if is_read:
        ends = [(place(end, target), end) for target, its in enumerate(truth["target_ends"]) for end in its]
    else:
        ends = [(place(end, end.get("target")), end) for end in truth["initiator_ends"]]
    return {(target, number): end for (target, number), end in ends if target is not None and number is not None}


def _slow_start_end(sender: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """When the first loss occurred, and the window in bytes after it."""
    windows = sender.get("windows") or {}
    for time_ns, threshold in zip(windows.get("time_ns") or (), windows.get("ssthresh") or (), strict=False):
        if threshold is not None and threshold < _NO_THRESHOLD:
            return time_ns, threshold * sender["snd_mss"]
    return None, None


def jain(streams: Sequence[StreamTruth]) -> float | None:
    """Jain's fairness index of the throughputs: 1 when all are equal, 1 / n when one has all. None without any."""
    values = np.array([stream.throughput_bytes_per_s for stream in streams])
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else None


def spread_s(streams: Sequence[StreamTruth]) -> float | None:
    """Time from the end of the first stream to the end of the last."""
    ends = [stream.ended_s for stream in streams]
    return max(ends) - min(ends) if ends else None


def spread_ratio(streams: Sequence[StreamTruth]) -> float | None:
    """Time of the last stream / time of the first."""
    ends = [stream.ended_s for stream in streams]
    return max(ends) / min(ends) if ends and min(ends) > 0 else None


def slow_start_rank(streams: Sequence[StreamTruth]) -> float | None:
    """Spearman's rank correlation of the streams' ends with their windows after slow start.

    -1 when a smaller window always means a later end. A stream without a loss has the largest window. None for fewer
    than three streams, or when all ends or all windows are equal.
    """
    ends = _ranks([stream.ended_s for stream in streams])
    windows = _ranks([stream.slow_start_left_bytes or np.inf for stream in streams])
    if len(streams) < _RANKED_LEAST or not (ends.std() and windows.std()):
        return None
    return float(np.corrcoef(ends, windows)[0, 1])


def _ranks(values: Sequence[float]) -> Array:
    """Ranks by size; equal values share their mean rank."""
    found = np.array(values)
    return np.array([(found < value).sum() + ((found == value).sum() - 1) / 2 for value in found], dtype=np.float64)


def timeout_count(streams: Sequence[StreamTruth]) -> int | None:
    """Retransmission timeouts of all streams; None when those of one are unknown."""
    counts = [stream.timeout_count for stream in streams]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def retransmission_rate(truth: Mapping[str, Any], streams: Sequence[StreamTruth], *, is_read: bool) -> float | None:
    """Retransmitted segments / all packets of the senders of data."""
    links = [path["to_initiator" if is_read else "to_target"] for path in truth["paths"]]
    sent = sum(link["counters"]["arrived"]["count"] for link in links)
    resent = [stream.resent_count for stream in streams]
    known = [count for count in resent if count is not None]
    return sum(known) / sent if sent and known and len(known) == len(resent) else None


def utilisation(truth: Mapping[str, Any], start_ns: int, end_ns: int, *, is_read: bool) -> float | None:
    """Fraction of a stretch in which the bottleneck was busy: the line that all paths share, or that of the only path.

    None without such a line, or when its busy times are not known to the end.
    """
    paths = truth["paths"]
    shared = truth["access"] or (paths[0] if len(paths) == 1 else None)
    line = None if shared is None else shared["to_initiator" if is_read else "to_target"]["line"]
    if line is None or end_ns <= start_ns:
        return None
    last_ns = line["not_kept_from_ns"]
    if last_ns is not None and last_ns < end_ns:
        return None
    begun, ended = (np.array(line["busy_times"][name], dtype=np.int64) for name in ("from_ns", "to_ns"))
    busy = np.clip(ended, start_ns, end_ns) - np.clip(begun, start_ns, end_ns)
    return float(busy.sum()) / (end_ns - start_ns)


def mean_of_peak(done: Array, start_ns: int, end_ns: int) -> float | None:
    """Throughput of a stretch / that of its best second; None for a stretch of less than two seconds."""
    count = (end_ns - start_ns) // _SECOND_NS
    if count < _SECONDS_LEAST:
        return None
    edges = start_ns + _SECOND_NS * np.arange(count + 1)
    sums, _ = np.histogram(done[:, ENDED], edges, weights=done[:, SIZE])
    best = float(sums.max())
    return _rate(done, start_ns, end_ns) / best if best else None


def of_connections(truth: dict[str, Any], values: dict[str, Value], start_ns: int, end_ns: int) -> dict[str, Any]:
    """The fields of a `PointResult` about differences between connections, curves and a search."""
    tuning = truth["results"].get("tuning")
    first_ns = int(truth["results"]["started_ns"])
    converged_s = tuning and tuning["converged_s"]
    done = commands(truth)
    found: dict[str, Any] = {
        "latency_cv": _latency_cv(done, start_ns),
        "latency_poles": latency_poles(done, start_ns),
        **_spreads(truth, values, done, start_ns, end_ns),
        "courses": tuple(_courses(truth, values, done, first_ns, end_ns)),
    }
    if tuning:
        found |= {
            "connections": tuning["settled_connections"],
            "converged_s": converged_s,
            "goodput_lost": _lost(done, first_ns, end_ns, converged_s and first_ns + round(converged_s * _SECOND_NS)),
            **_measurements(tuning["steps"]),
        }
    return found


def _measurements(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the last number of connections: what its first measurement found, in what time, and the scatter of all."""
    begun = (0.0, *(float(step["time_s"]) for step in steps))
    own = [place for place, step in enumerate(steps) if step["connections"] == steps[-1]["connections"]]
    if not own:
        return {}
    return {
        "measured_bytes_per_s": float(steps[own[0]]["goodput_bytes_per_s"]),
        "measuring_s": float(steps[own[0]]["time_s"]) - begun[own[0]],
        "measured_cv": _spread([float(steps[place]["goodput_bytes_per_s"]) for place in own]),
    }


def latency_poles(done: Array, start_ns: int) -> float | None:
    """How far the mean latencies of connections lie in two groups: the share of their variance between the groups, for
    the best split. 1 when each has one of two values, 3/4 when they are evenly spaced. None for fewer than three.
    """
    counted = done[done[:, ENDED] > start_ns]
    numbers = np.unique(counted[:, CONNECTION])
    latencies = counted[:, ENDED] - counted[:, BEGUN]
    means = np.sort([latencies[counted[:, CONNECTION] == number].mean() for number in numbers])
    if len(means) < _RANKED_LEAST or not means.std():
        return None
    deviations = means - means.mean()
    left = np.arange(1, len(means))
    sums = deviations.cumsum()[:-1]
    # both groups' sums of deviations are equal but for their sign
    between = sums**2 / left + sums**2 / (len(means) - left)
    return float(between.max() / (deviations**2).sum())


def _latency_cv(done: Array, start_ns: int) -> float | None:
    """Standard deviation of the command latency / its mean."""
    latencies = (done[:, ENDED] - done[:, BEGUN])[done[:, ENDED] > start_ns]
    return float(np.std(latencies) / np.mean(latencies)) if len(latencies) and np.mean(latencies) else None


def _lost(done: Array, start_ns: int, end_ns: int, settled_ns: int | None) -> float | None:
    """Throughput lost by the search: 1 - throughput of the whole time / throughput after the search."""
    if settled_ns is None or settled_ns >= end_ns:
        return None
    whole, after = (_rate(done, since, end_ns) for since in (start_ns, settled_ns))
    return 1 - whole / after if after else None


def _rate(done: Array, start_ns: int, end_ns: int) -> float:
    is_within = (done[:, ENDED] > start_ns) & (done[:, ENDED] <= end_ns)
    return float(done[is_within, SIZE].sum() * 1e9 / max(1, end_ns - start_ns))


def _spreads(
    truth: dict[str, Any],
    values: dict[str, Value],
    done: Array,
    start_ns: int,
    end_ns: int,
) -> dict[str, Any]:
    """Standard deviation / mean over the connections that existed together, of throughput and of cwnd."""
    goodputs, windows = [], []
    ends = _sender_ends(truth, values)
    for each in truth["results"]["connections"]:
        since = max(start_ns, each["joined_ns"] or start_ns)
        until = min(end_ns, each["left_ns"] or end_ns)
        if until - since < _LEAST_SHARE * (end_ns - start_ns):
            continue
        goodputs.append(_rate(done[done[:, CONNECTION] == each["connection"]], since, until))
        mean = _mean_window(ends, each["connection"], since, until)
        if mean is not None:
            windows.append(mean)
    both = [_mean_window(ends, connection, start_ns, end_ns) for connection in _shown(truth, end_ns).values()]
    late = both[-1] / both[0] if len(both) == len(SHOWN) and both[0] and both[-1] else None
    return {"connection_spread": _spread(goodputs), "cwnd_spread": _spread(windows), "late_window": late}


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
    done: Array,
    first_ns: int,
    end_ns: int,
) -> Iterator[Course]:
    tuning = truth["results"].get("tuning")
    if tuning and tuning["steps"]:
        steps = tuning["steps"]
        times = (0.0, *(float(step["time_s"]) for step in steps), (end_ns - first_ns) / _SECOND_NS)
        numbers = (steps[0]["connections"], *(step["next_connections"] for step in steps), tuning["connections"])
        yield Course(CONNECTIONS, "", times, tuple(map(float, numbers)))
        yield Course(MEASURED, "MB/s", times[1:-1], tuple(float(step["goodput_bytes_per_s"]) / _MB for step in steps))
    yield _goodput(GOODPUT, done, first_ns, end_ns)
    ends = _sender_ends(truth, values)
    left_ns = {each["connection"]: each["left_ns"] for each in truth["results"]["connections"]}
    if len(left_ns) > 1 and len(truth["target_ends"]) == 1:
        yield _latency(ALL_LATENCIES, done, first_ns, _MOST_DOTS)
    for number, connection in _shown(truth, end_ns).items():
        of_it = done[done[:, CONNECTION] == connection]
        if len(of_it):
            yield _goodput_of_one(f"{GOODPUT} of connection {number}", of_it, first_ns, end_ns)
            yield _latency(f"{LATENCY} of connection {number}", of_it, first_ns, _MOST_POINTS)
        changed_ns, windows = _window(ends, connection)
        if len(changed_ns):
            # the window of a connection that the search has removed is none
            last_ns = min(end_ns, left_ns.get(connection) or end_ns)
            at = np.linspace(max(first_ns, changed_ns[0]), last_ns, _MOST_POINTS).astype(np.int64)
            held = windows[np.searchsorted(changed_ns, at, side="right") - 1]
            seconds = (at - first_ns) / _SECOND_NS
            yield Course(
                f"cwnd of connection {number}", "packets", tuple(seconds.tolist()), tuple(held.astype(float).tolist())
            )


def _shown(truth: Mapping[str, Any], end_ns: int) -> dict[int, int]:
    """The connections of `SHOWN` by their number there. Where fewer are in use at the end, those that were."""
    every = sorted(truth["results"]["connections"], key=lambda each: int(each["connection"]))
    at_end = [each for each in every if (each["left_ns"] or end_ns) >= end_ns]
    found = {number: (at_end if number <= len(at_end) else every)[number - 1 : number] for number in SHOWN}
    return {number: int(each[0]["connection"]) for number, each in found.items() if each}


def _goodput(name: str, done: Array, first_ns: int, end_ns: int) -> Course:
    """From what completed in each second, or in longer intervals of a long run."""
    seconds = (end_ns - first_ns) / _SECOND_NS
    count = int(np.clip(seconds, 1, _MOST_POINTS))
    edges = np.linspace(first_ns, end_ns, count + 1)
    sums, _ = np.histogram(done[:, ENDED], edges, weights=done[:, SIZE])
    width_s = seconds / count
    times = (edges[:-1] - first_ns) / _SECOND_NS + width_s / 2
    rates = sums / width_s / _MB if width_s else sums
    return Course(name, "MB/s", tuple(times.tolist()), tuple(rates.astype(float).tolist()))


def _goodput_of_one(name: str, done: Array, first_ns: int, end_ns: int) -> Course:
    """The same of a single connection while it has commands, with the bytes of each spread over its time in flight.

    *Why spread:* it completes a few commands per second, and their whole number would jump from second to second.
    """
    begin_ns, last_ns = int(done[:, BEGUN].min()), min(end_ns, int(done[:, ENDED].max()))
    seconds = (last_ns - begin_ns) / _SECOND_NS
    edges = np.linspace(begin_ns, last_ns, int(np.clip(seconds, 1, _MOST_POINTS)) + 1)
    lasted_ns = np.maximum(done[:, ENDED] - done[:, BEGUN], 1)
    shares = np.clip((edges[:, None] - done[:, BEGUN]) / lasted_ns, 0, 1)
    rates = np.diff(shares @ done[:, SIZE]) / np.diff(edges) * _SECOND_NS / _MB if seconds > 0 else np.zeros(1)
    times = ((edges[:-1] + edges[1:]) / 2 - first_ns) / _SECOND_NS
    return Course(name, "MB/s", tuple(times.tolist()), tuple(rates.astype(float).tolist()))


def _latency(name: str, done: Array, first_ns: int, most: int) -> Course:
    """Of each command, at its end; of a long run evenly chosen commands."""
    in_order = done[np.argsort(done[:, ENDED], kind="stable")]
    kept = in_order[:: -(-len(in_order) // most)]
    times = (kept[:, ENDED] - first_ns) / _SECOND_NS
    return Course(name, "ms", tuple(times.tolist()), tuple(((kept[:, ENDED] - kept[:, BEGUN]) / 1e6).tolist()))
