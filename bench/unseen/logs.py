"""What the logs of a run hold, on one clock, and how those of a simulation are read.

The link logs every packet, each sender every change of its windows, the truth every command at both hosts. The times
of R2Ts are those of the captures at both hosts. This file judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import iscsitrace
from bench.budget.spans import Spans, union
from bench.unseen import wire
from bench.unseen.drawing import Draw
from bench.unseen.runs import OWN_PORT, TAPS, Made
from bench.unseen.wire import Losses, Way

NULL: Final = np.iinfo(np.int64).min
_NEVER: Final = np.iinfo(np.int64).max
_SMALL_BUFFER_BYTES: Final = 1 << 20
"""A send buffer below can stop a sender; the default cannot here."""
_BASIC_HEADER_BYTES: Final = 48

Numbers = NDArray[np.int64]
Times = Mapping[str, Numbers]
Round = tuple[int, int, int, int, int]
"""R2T, first and last data at the initiator; R2T and last data at the target."""


@dataclass(frozen=True)
class Logs:
    """What is known of a run."""

    commands: Times
    """The reads and writes of the judged session: a row for each, times at the initiator, and at the target (at_)."""
    rounds: Mapping[int, list[Round]]
    """Per write, by the row of its command."""
    ways: Mapping[str, Way]
    losses: Losses
    full: Mapping[str, Mapping[str, Spans]]
    """By side: when its sender had no room for another segment, by what it lacked."""
    delays_ns: Mapping[str, tuple[float, float]]
    """Of each direction: the least, and the mean without queues."""
    overtaken_share: float
    """Packets that were overtaken, of those of their direction: the larger share."""
    service_ns: int
    """The least time that the target takes for a read."""
    cut_share: float = 0.0
    """PDUs whose headers the snaplen cut."""
    reaction_ns: int = 1
    """How long a host may take to send what it may send."""
    notice_ns: int = 0
    """How long after a packet came in the log of the windows may show what it opened."""


def of_simulation(draw: Draw, made: Made) -> Logs:
    """The logs of a simulated run."""
    commands = _commands(made.truth, made.from_ns)
    ways = wire.ways(made)
    delay = made.truth["settings"]["portals"][0]["read_delay"]
    return Logs(
        commands,
        {} if draw["workload.operation"] == "read" else _rounds(made, commands),
        ways,
        wire.losses(made, ways),
        {side: _full(made.truth, side) for side in TAPS},
        delays_of(made.truth),
        overtaken_share(made.truth),
        int(delay.get("delay_ns", delay.get("low_ns", 0))),
        _cut_share(draw, made),
    )


def delays_of(truth: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Of each direction the least delay, and the mean, by the settings of the link."""
    path = truth["settings"]["world"]["paths"][0]
    return {
        name: (path[name]["delay_ns"], path[name]["delay_ns"] + path[name].get("jitter_ns", 0) / 2)
        for name in wire.NEAR
    }


def overtaken_share(truth: Mapping[str, Any]) -> float:
    """Packets that were overtaken, by the counters of the link."""
    counters = [truth["paths"][0][name]["counters"] for name in wire.NEAR]
    return float(max(each["overtaken"]["count"] / max(1, each["arrived"]["count"]) for each in counters))


def _cut_share(draw: Draw, made: Made) -> float:
    """PDUs whose header lies beyond the snaplen in the segment that has its first byte."""
    if not draw.snaplen:
        return 0.0
    cut = count = 0
    pdus = iscsitrace.read(str(made.whole["initiator"])).pdus
    offsets, is_to_target = pdus.raw("stream_offset_bytes"), pdus.raw("to_target").astype(bool)
    for name, near in wire.NEAR.items():
        starts = wire.segment_offsets(made.whole[near], to_target=name == "to_target")
        own = offsets[is_to_target == (name == "to_target")]
        into = own - starts[np.maximum(np.searchsorted(starts, own, side="right") - 1, 0)]
        cut += int((wire.FRAME_HEADERS_BYTES + into + _BASIC_HEADER_BYTES > draw.snaplen).sum())
        count += len(own)
    return cut / max(1, count)


def _full(truth: Mapping[str, Any], side: str) -> dict[str, Spans]:
    """When the sender had no room for another segment, by what it lacked: one limit at a time."""
    (end,) = [each for each in _ends(truth, side) if each["initiator_port"] == OWN_PORT]
    log = end["windows"]
    times = np.asarray(log["time_ns"], np.int64)
    pipe, cwnd, unacked = (np.asarray(log[name], np.int64) for name in ("pipe", "cwnd", "unacked"))
    mss, window = end["snd_mss"], np.asarray(log["snd_wnd_bytes"], np.int64)
    lasting = np.column_stack([times, np.append(times[1:], _NEVER)])
    tcp = truth["settings"]["world"][f"{side}_tcp"]
    is_small = tcp["send_buffer_bytes"] < _SMALL_BUFFER_BYTES
    room = window - unacked * mss
    # a sender waits for half of a small window instead of filling the rest (RFC 9293 section 3.8.6.2.1)
    is_closed = (unacked > 0) & ((room < mss) | ((room < window // 2) & (pipe < cwnd) & (not is_small)))
    is_full = (pipe >= cwnd) & ~is_closed
    is_buffered = (unacked > 0) & is_small & ~is_closed & ~is_full
    return {
        "receive_window": union(lasting[is_closed]),
        "congestion_window": union(lasting[is_full]),
        "send_buffer": union(lasting[is_buffered]),
    }


def _rounds(made: Made, commands: Times) -> dict[int, list[Round]]:
    """The R2Ts of each write; a command is found at a tap by its tag and time."""
    traces = {tap: iscsitrace.read(str(file)) for tap, file in made.whole.items()}
    rows = {}
    for tap, trace in traces.items():
        columns = (trace.cycles.raw(name).tolist() for name in ("initiator_task_tag", "command_first_ns"))
        rows[tap] = {key: row for row, key in enumerate(zip(*columns, strict=True))}
    tags = commands["tag"].tolist()
    places = [
        (rows["initiator"].get((tag, begin)), rows["target"].get((tag, at_begin)))
        for tag, begin, at_begin in zip(tags, commands["begin"].tolist(), commands["at_begin"].tolist(), strict=True)
    ]
    return paired(bursts(traces["initiator"]), bursts(traces["target"]), places)


def bursts(trace: Any) -> dict[int, list[tuple[int, int, int]]]:
    """By the row of the command in a trace: the R2Ts of a write that were answered, each with first and last data."""
    columns = (trace.rounds.raw(name).tolist() for name in ("cycle", "r2t_ns", "data_first_ns", "data_last_ns"))
    found: dict[int, list[tuple[int, int, int]]] = {}
    for cycle, *times in zip(*columns, strict=True):
        if NULL not in times:
            found.setdefault(cycle, []).append((times[0], times[1], times[2]))
    return {cycle: sorted(each) for cycle, each in found.items()}


def paired(
    near: Mapping[int, list[tuple[int, int, int]]],
    far: Mapping[int, list[tuple[int, int, int]]],
    places: Sequence[tuple[int | None, int | None]],
) -> dict[int, list[Round]]:
    """The R2Ts of each command at both taps, where both have the same number; ``places`` are its rows."""
    found = {}
    for number, (here, there) in enumerate(places):
        one, other = near.get(here, []) if here is not None else [], far.get(there, []) if there is not None else []
        if one and len(one) == len(other):
            found[number] = [(*mine, own[0], own[2]) for mine, own in zip(one, other, strict=True)]
    return found


def _commands(truth: Mapping[str, Any], from_ns: int) -> Times:
    """The reads and writes of the judged session that are in the captures from the beginning, and were answered."""
    table = truth["cycles"]
    rows = [
        row
        for row, operation in enumerate(table["operation"])
        if operation
        and table["connection"][row] == 0
        and table["initiator"]["status_ns"][row] is not None
        and table["initiator"]["command_first_ns"][row] >= from_ns
    ]
    near, far = table["initiator"], table["at_target"]

    def column(values: list[Any]) -> Numbers:
        return np.array([NULL if values[row] is None else values[row] for row in rows], np.int64)

    found = {
        "begin": column(near["command_first_ns"]),
        "command_last": column(near["command_last_ns"]),
        "last": column(near["data_last_ns"]),
        "end": column(near["status_ns"]),
        "at_begin": column(far["command_first_ns"]),
        "at_command": column(far["command_last_ns"]),
        "at_first": column(far["data_first_ns"]),
        "at_last": column(far["data_last_ns"]),
        "at_end": column(far["status_ns"]),
        "tag": column(table["initiator_task_tag"]),
        "is_read": np.array([table["operation"][row] == "read" for row in rows], np.int64),
    }
    if not rows:
        raise RuntimeError("no command was answered")
    return found


def _ends(truth: Mapping[str, Any], side: str) -> list[Mapping[str, Any]]:
    return list(truth["initiator_ends"] if side == "initiator" else truth["target_ends"][0])
