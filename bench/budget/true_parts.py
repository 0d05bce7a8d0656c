"""The true time breakdown, from the logs of the link and the hosts.

It starts with the time in which the line carried payload. The rest is attributed in this order: a lost byte was not
recovered yet; no command was in flight; the sender had bytes to send (and which window was full); an ACK or status was
held; an R2T was unanswered by the initiator, or a command by the target. The remaining time is RTT. The times of
commands and the bytes in flight come from the captures at both hosts, which the tests compare with the simulation to
the nanosecond; no analysis of these captures is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import iscsitrace
from bench.budget import link
from bench.budget.cases import LARGE_WINDOW_BYTES, MS_NS, SEGMENT_BYTES, SEND_BUFFER_BYTES, Case
from bench.budget.packets import Packet, repairs, timer_waits
from bench.budget.spans import Spans, attributed, complement, intersection, subtraction, union
from bench.senders import end_of

_NULL = np.iinfo(np.int64).min
_NEVER = np.iinfo(np.int64).max
_FAR = {"initiator": "target", "target": "initiator"}
_DIRECTION = {"initiator": "to_target", "target": "to_initiator"}

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Taps:
    """Commands, bursts and packets of both captures of a run, by tap."""

    cycles: dict[str, Columns]
    rounds: dict[str, Columns]
    segments: dict[str, Columns]

    def span(self, tap: str) -> tuple[int, int]:
        """From the first command to the last status."""
        cycles = self.cycles[tap]
        return int(cycles["command_first_ns"].min()), int(cycles["status_ns"].max())


def read(captures: Mapping[str, Any]) -> Taps:
    """Both captures of a run, by tap."""
    found: dict[str, dict[str, Columns]] = {"cycles": {}, "rounds": {}, "segments": {}}
    names = {
        "cycles": ("command_first_ns", "command_last_ns", "data_first_ns", "data_last_ns", "status_ns"),
        "rounds": ("cycle", "r2t_ns", "data_first_ns", "data_last_ns"),
        "segments": (
            "to_target",
            "time_ns",
            "stream_offset_bytes",
            "payload_bytes",
            "ack_offset_bytes",
            "window_bytes",
        ),
    }
    for tap, capture in captures.items():
        trace = iscsitrace.read(str(capture), tables=("segments",))
        for table, columns in names.items():
            found[table][tap] = {name: trace.table(table).raw(name) for name in columns}
        found["cycles"][tap]["is_block"] = np.isin(trace.cycles["operation"], ("read", "write"))
    return Taps(**found)


@dataclass(frozen=True)
class Run:
    """One run: its settings, its truth and its captures."""

    case: Case
    truth: Mapping[str, Any]
    taps: Taps
    packets: Mapping[str, list[Packet]] | None = None
    """Packets at both taps; only if packets were lost."""

    @property
    def is_simulated(self) -> bool:
        """Whether its TCP was simulated, and logged each change of its pipe."""
        return bool(self.truth["kind"] == "simulation")

    @property
    def sender(self) -> str:
        """The sender of the data."""
        (sender,) = self.case.senders
        return sender

    def shift_ns(self, near: str, tap: str) -> int:
        """Delay from the tap beside a host to this tap."""
        settings = self.truth["settings"]["world"]["paths"][0][_DIRECTION[near]]
        return 0 if near == tap else int(settings["delay_ns"])

    def hidden_ns(self, tap: str) -> int:
        """Idle time of the line during losses that a tap cannot see, because no later packet passed it."""
        if not self.packets:
            return 0
        line = union(*(link.payload_times(self.truth, direction, tap) for direction in link.NEAR))
        claims = {"transfer": line, "hidden": self._loss_times(tap, is_hidden_only=True)}
        return attributed(self.taps.span(tap), claims, "rest")["hidden"]

    def parts(self, tap: str) -> dict[str, int]:
        """The parts of the time at a tap, in nanoseconds."""
        span = self.taps.span(tap)
        at_initiator, at_target = self.taps.cycles["initiator"], self.taps.cycles["target"]
        later = self.shift_ns(self.sender, tap)
        claims: dict[str, Spans] = {
            "transfer": union(*(link.payload_times(self.truth, direction, tap) for direction in link.NEAR))
        }
        if self.packets:
            claims["loss_recovery"] = self._loss_times(tap)
        claims["initiator_think"] = complement(
            _spans(at_initiator["command_first_ns"], at_initiator["status_ns"]), span
        )
        backlog, full = self._backlog(), self._full()
        claims |= {limit: intersection(backlog, times) + later for limit, times in full.items()}
        if self.case.window_bytes < LARGE_WINDOW_BYTES:
            # a kernel waits for half of the window instead of filling the rest (RFC 9293 section 3.8.6.2.1)
            others = union(full["congestion_window"], full["send_buffer"])
            claims["receive_window"] = subtraction(backlog, others) + later
        if self.case.status == "apart_held":
            held = _spans(at_target["data_last_ns"], at_target["status_ns"])
            claims["ack_wait"] = union(backlog, held) + later
        claims["initiator_service"] = _spans(*(self.taps.rounds["initiator"][n] for n in ("r2t_ns", "data_first_ns")))
        claims["target_service"] = self._service(at_target)
        return attributed(span, claims, "propagation")

    def limited_ns(self) -> dict[str, int]:
        """The sender's busy time, as TCP_INFO counts it, and the time in which each limit held it.

        Time in which a lost byte was not recovered yet is apart, as in the time breakdown. Linux counts a full window
        in it, too.
        """
        backlog, full = self._backlog(), self._full()
        if self.packets:
            lost = self._loss_times(self.sender)
            full = {limit: subtraction(times, lost) for limit, times in full.items()}
        flying = self._in_flight()
        found = {limit: intersection(backlog, times) for limit, times in full.items()} | {
            "busy": union(backlog, flying)
        }
        return {name: int(np.diff(times).sum()) for name, times in found.items()}

    def _loss_times(self, tap: str, *, is_hidden_only: bool = False) -> Spans:
        """Losses of either direction until recovery; on request only losses that the tap at that side cannot see."""
        assert self.packets
        found = []
        for near, far in _FAR.items():
            if is_hidden_only and near == tap:
                continue
            repaired = repairs(self.packets[near], self.packets[far], to_target=near == "initiator")
            times = [(each.first_ns, each.last_ns) for each in repaired if each.is_hidden or not is_hidden_only]
            if not is_hidden_only:
                times += timer_waits(self.packets[near], to_target=near == "initiator")
            found.append(np.asarray(times, np.int64).reshape(-1, 2) + self.shift_ns(near, tap))
        return union(*found)

    def _backlog(self) -> Spans:
        """Times at which the sender of the data has requested data that did not pass its tap yet."""
        cycles = self.taps.cycles[self.sender]
        if self.case.operation == "read":
            return _spans(self._data_ready_ns(), cycles["data_last_ns"])
        if self.case.burst_bytes:
            # of queued commands an R2T waits behind the data of others
            first = "data_first_ns" if self.case.queue_depth == 1 else "r2t_ns"
            return _spans(*(self.taps.rounds["initiator"][name] for name in (first, "data_last_ns")))
        return _spans(cycles["command_first_ns"], _data_last_ns(cycles))

    def _data_ready_ns(self) -> NDArray[np.int64]:
        """Time at which the target has the data of each read: after its service time and the delay of its host."""
        cycles, set_ns = self.taps.cycles["target"], self.case.service_ns
        is_read = cycles["is_block"] & (cycles["data_first_ns"] != _NULL)
        waits_ns = (cycles["data_first_ns"] - cycles["command_last_ns"])[is_read]
        # most queued reads wait for earlier ones; the fastest shows the delay of the host
        host_ns = int(np.percentile(waits_ns, 95 if self.case.queue_depth == 1 else 5)) - set_ns
        answered = cycles["command_last_ns"] + set_ns + min(max(host_ns, 0), MS_NS)
        return np.where(cycles["is_block"], answered, _NULL)

    def _flight(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """At each packet beside the sender: its time, the bytes then in flight, and those that the window still has."""
        segments = self.taps.segments[self.sender]
        is_own = segments["to_target"] == (self.sender == "initiator")
        acknowledged = segments["ack_offset_bytes"]
        sent = np.where(is_own, segments["stream_offset_bytes"] + segments["payload_bytes"], 0)
        sent = np.maximum.accumulate(sent)
        edge = np.maximum.accumulate(np.where(is_own, 0, acknowledged + segments["window_bytes"]))
        return segments["time_ns"], sent - np.maximum.accumulate(np.where(is_own, 0, acknowledged)), edge - sent

    def _in_flight(self) -> Spans:
        """Times with bytes in flight."""
        times, owin, _ = self._flight()
        return union(_lasting(times)[:-1][owin[:-1] > 0])

    def _full(self) -> dict[str, Spans]:
        """Times at which there is no room for another segment, by what lacks it: one limit at a time."""
        times, owin, room = self._flight()
        logged = end_of(self.truth, self.sender)["windows"]
        places = np.maximum(np.searchsorted(np.asarray(logged["time_ns"], np.int64), times, side="right") - 1, 0)
        if self.is_simulated:
            is_full = (np.asarray(logged["pipe"]) >= np.asarray(logged["cwnd"]))[places]
        else:
            # a kernel may be sampled before it has a window
            windows = [each or self.case.initial_window for each in logged["cwnd"]]
            cwnd = np.asarray(windows, np.int64)[places] * SEGMENT_BYTES
            # lost bytes are unacknowledged and not in the pipe: with a full window the sender is cwnd-limited
            is_full = (owin > cwnd - SEGMENT_BYTES) | ((owin > 0) & bool(self.packets))
        is_closed, lasts = room < SEGMENT_BYTES, _lasting(times)
        # what both windows have room for leaves as soon as it is in the send buffer
        is_buffered = (owin > 0) & (self.case.send_buffer_bytes < SEND_BUFFER_BYTES)
        return {
            "receive_window": union(lasts[is_closed]),
            "congestion_window": union(lasts[is_full & ~is_closed]),
            "send_buffer": union(lasts[is_buffered & ~is_full & ~is_closed]),
        }

    def _service(self, cycles: Columns) -> Spans:
        """Service time: from the last packet that the target needs to its answer (an R2T, data, or the status)."""
        command_last, data_first = cycles["command_last_ns"], cycles["data_first_ns"]
        is_write = cycles["is_block"] & (self.case.operation == "write")
        # other commands are answered by data, or by the status at once
        answered = np.where(data_first == _NULL, cycles["status_ns"], data_first)
        if self.case.operation == "read":
            answered = np.where(cycles["is_block"], np.minimum(answered, self._data_ready_ns()), answered)
        last = _data_last_ns(cycles)
        return union(
            _spans(command_last[~is_write], answered[~is_write]),
            _spans(last[is_write], cycles["status_ns"][is_write]),
            self._r2t_service(),
        )

    def _r2t_service(self) -> Spans:
        """From a command, or the end of the previous burst, to the R2T with which the target answers."""
        rounds, command_last = self.taps.rounds["target"], self.taps.cycles["target"]["command_last_ns"]
        order = np.lexsort([rounds["r2t_ns"], rounds["cycle"]])
        cycle, r2t, ended = (rounds[name][order] for name in ("cycle", "r2t_ns", "data_last_ns"))
        is_first = np.append(True, cycle[1:] != cycle[:-1])[: len(cycle)]
        return _spans(np.where(is_first, command_last[cycle], np.append(_NULL, ended)[: len(ended)]), r2t)


def _spans(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Spans:
    is_known = (starts != _NULL) & (ends != _NULL)
    return union(np.column_stack([starts, ends])[is_known])


def _lasting(times: NDArray[np.int64]) -> Spans:
    """From each time to the next one; the last has no end."""
    return np.column_stack([times, np.append(times[1:], _NEVER)])


def _data_last_ns(cycles: Columns) -> NDArray[np.int64]:
    """The end of the last data byte, which may be in the command."""
    return np.where(cycles["data_last_ns"] == _NULL, cycles["command_last_ns"], cycles["data_last_ns"])
