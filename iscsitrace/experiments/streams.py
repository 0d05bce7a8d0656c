"""The parallel streams of a run, from its truth: what each carried, when it finished, and its losses.

A stream is a connection that carries data of the workload. No capture is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.lab.settings.kinds import Value

_FIRST_PORT: Final = 40_000
"""Connection N of a simulation has this initiator port + N."""
_NO_THRESHOLD: Final = 0x7FFF_FFFF
"""ssthresh before any loss, in the kernel's representation."""
_RANKED_LEAST: Final = 3


@dataclass(frozen=True)
class Stream:
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


def of_run(
    truth: Mapping[str, Any], values: Mapping[str, Value], start_ns: int, end_ns: int, *, is_timed: bool
) -> dict[str, Any]:
    """The fields of a `PointResult` about its streams; none for mixed reads and writes, which have two directions."""
    operation = values.get("workload.operation", "read")
    if operation not in {"read", "write"}:
        return {}
    is_read = operation == "read"
    found = of_truth(truth, start_ns, end_ns if is_timed else None, is_read=is_read)
    return {
        "streams": found,
        "jain": jain(found),
        # in a run of a fixed duration all streams end at once
        "spread_s": None if is_timed else spread_s(found),
        "spread_ratio": None if is_timed else spread_ratio(found),
        "slow_start_rank": None if is_timed else slow_start_rank(found),
        "timeout_count": timeout_count(found),
        "retransmission_rate": retransmission_rate(truth, found, is_read=is_read),
        "utilisation": utilisation(truth, start_ns, end_ns, is_read=is_read),
    }


def of_truth(truth: Mapping[str, Any], start_ns: int, end_ns: int | None, *, is_read: bool) -> tuple[Stream, ...]:
    """The streams of a run, by target and connection.

    What completed from ``start_ns`` to ``end_ns`` counts; without an end, each stream counts to its own end.
    """
    cycles = truth["cycles"]
    ended = cycles["by_initiator"]["completed_ns"] if "by_initiator" in cycles else cycles["initiator"]["status_ns"]
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for operation, target, connection, time_ns, size in zip(
        cycles["operation"], cycles["target"], cycles["connection"], ended, cycles["bytes"], strict=True
    ):
        if operation is not None and time_ns is not None:
            found.setdefault((target, connection), []).append((time_ns, size))
    begun_ns = int(truth["results"]["started_ns"])
    senders = _senders(truth, is_read=is_read)
    return tuple(
        _stream(place, np.array(done, dtype=np.int64), (begun_ns, start_ns, end_ns), senders.get(place, {}))
        for place, done in sorted(found.items())
    )


def _stream(
    place: tuple[int, int],
    done: NDArray[np.int64],
    times_ns: tuple[int, int, int | None],
    sender: Mapping[str, Any],
) -> Stream:
    begun_ns, start_ns, end_ns = times_ns
    last_ns = int(done[:, 0].max())
    until_ns = last_ns if end_ns is None else end_ns
    counts = (done[:, 0] > start_ns) & (done[:, 0] <= until_ns)
    byte_count = int(done[counts, 1].sum())
    left_ns, left_bytes = _slow_start_end(sender)
    return Stream(
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


def jain(streams: Sequence[Stream]) -> float | None:
    """Jain's fairness index of the throughputs: 1 when all are equal, 1 / n when one has all. None without any."""
    values = np.array([stream.throughput_bytes_per_s for stream in streams])
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else None


def spread_s(streams: Sequence[Stream]) -> float | None:
    """Time from the end of the first stream to the end of the last."""
    ends = [stream.ended_s for stream in streams]
    return max(ends) - min(ends) if ends else None


def spread_ratio(streams: Sequence[Stream]) -> float | None:
    """Time of the last stream / time of the first."""
    ends = [stream.ended_s for stream in streams]
    return max(ends) / min(ends) if ends and min(ends) > 0 else None


def slow_start_rank(streams: Sequence[Stream]) -> float | None:
    """Spearman's rank correlation of the streams' ends with their windows after slow start.

    -1 when a smaller window always means a later end. A stream without a loss has the largest window. None for fewer
    than three streams, or when all ends or all windows are equal.
    """
    ends = _ranks([stream.ended_s for stream in streams])
    windows = _ranks([stream.slow_start_left_bytes or np.inf for stream in streams])
    if len(streams) < _RANKED_LEAST or not (ends.std() and windows.std()):
        return None
    return float(np.corrcoef(ends, windows)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks by size; equal values share their mean rank."""
    found = np.array(values)
    return np.array([(found < value).sum() + ((found == value).sum() - 1) / 2 for value in found], dtype=np.float64)


def timeout_count(streams: Sequence[Stream]) -> int | None:
    """Retransmission timeouts of all streams; None when those of one are unknown."""
    counts = [stream.timeout_count for stream in streams]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def retransmission_rate(truth: Mapping[str, Any], streams: Sequence[Stream], *, is_read: bool) -> float | None:
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
