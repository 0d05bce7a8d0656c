"""A session as the model takes it: a setting, and the waits that no setting predicts; and how both are measured.

The model computes path, line, window, R2T rounds and a held status from the setting. Waits for hosts, losses and slow
start come from the time breakdown as measured. So a what-if of one leaves the other as it is (docs/method.md,
section 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import Any, Final

import numpy as np

from iscsitrace.fit.conditions import Conditions
from iscsitrace.measure import budget, line, workload
from iscsitrace.measure.losses import losses
from iscsitrace.measure.session import Session
from iscsitrace.measure.workload import MIN_TASKS, MOST
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Prediction, Setting, altered
from iscsitrace.model.transfer import commands_per_ns, is_uneven, solicited_bytes
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Array, Table

WAITS: Final = ("target_service", "initiator_service", "initiator_think", "ack_wait")
"""Waits of one command while others go on: nanoseconds per command."""
STALLS: Final = ("loss", "slow_start", "receiver", "outage", "unknown")
"""Stalls of all commands together, proportional to the bytes moved: nanoseconds per byte."""


OF_ONE_CONNECTION: Final = ("loss", "receiver")
"""Stalls of one connection, which the others do not share."""


@dataclass(frozen=True)
class Situation:
    """One workload over one path, as measured."""

    setting: Setting
    """Its ``queue_depth`` is that of all connections together; its ``service_ns`` is the sum of the waits."""
    waits_ns: Mapping[str, float] = field(default_factory=dict)
    """Of WAITS, per command."""
    stalls_ns_per_byte: Mapping[str, float] = field(default_factory=dict)
    """Of STALLS."""
    open_names: frozenset[str] = frozenset()
    """Fields of Setting and Solicitation that the packets do not show: their values are assumed."""
    service_deviation_ns: float = 0.0
    """Standard deviation of the target's service time, measured at queue depth 1."""
    sizes: tuple[tuple[int, float], ...] = ()
    """I/O sizes in bytes, each with its share of the commands; empty where all have the setting's size, their mean."""
    groups: int = 1
    """Groups of connections like the measured ones; each group stalls by itself."""
    _reached: dict[bool, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Its throughput, exact and rough, once computed: each what-if is compared with the same situation."""

    def throughput(self, *, is_rough: bool = False) -> float:
        """Throughput of the model in bytes per second; ``is_rough`` is faster and does not follow single commands."""
        if is_rough not in self._reached:
            of = self._side_by_side if self.groups > 1 else self._together
            self._reached[is_rough] = of(is_rough=is_rough)
        return self._reached[is_rough]

    def _together(self, *, is_rough: bool) -> float:
        """The throughput of one group."""
        setting = self.setting.dealt(service_ns=sum(self.waits_ns.values()))
        reached = min(self._of_sizes(setting, is_rough=is_rough), self._by_chance(setting))
        ns_per_byte = 1e9 / reached + sum(self.stalls_ns_per_byte.values())
        return 1e9 / ns_per_byte

    def with_setting(self, **changes: Any) -> Situation:
        """The same with other values of its setting; with another I/O size, all commands have that size."""
        if "block_bytes" in changes:
            return self._with(setting=altered(self.setting, **changes), sizes=())
        return self._with(setting=altered(self.setting, **changes))

    def with_sizes_of(self, other: Situation) -> Situation:
        """The same with the I/O sizes of another."""
        return self.with_setting(block_bytes=other.setting.block_bytes)._with(sizes=other.sizes)

    def _with(self, **changes: Any) -> Situation:
        return altered(self, **changes, _reached={})

    def with_stall(self, name: str, ns_per_byte: float) -> Situation:
        """The same with another stall."""
        return self._with(stalls_ns_per_byte={**self.stalls_ns_per_byte, name: ns_per_byte})

    def with_keys(self, **changes: Any) -> Situation:
        """The same with other negotiated parameters."""
        return self.with_setting(solicitation=altered(self.setting.solicitation, **changes))

    def with_connections(self, count: int) -> Situation:
        """The same over a multiple of its connections, side by side, each with one command in flight or more."""
        groups = max(1, count // self.setting.connections)
        tasks = max(self.setting.queue_depth, groups * self.setting.connections)
        found = self.with_setting(connections=groups * self.setting.connections, queue_depth=tasks)
        return found._with(groups=groups)

    def _of_sizes(self, setting: Setting, *, is_rough: bool) -> float:
        """The throughput of commands of these sizes, one after another: their waits for windows and R2Ts are not in
        proportion to their size. In a queue, where one is sent while others wait, that of commands of the mean size.
        """
        if not self.sizes or setting.queue_depth * setting.connections > 1:
            return _throughput(setting, is_rough=is_rough)
        alone = ((size, share, altered(setting, block_bytes=size)) for size, share in self.sizes)
        each_ns = sum(share * size / _throughput(one, is_rough=is_rough) for size, share, one in alone)
        return sum(size * share for size, share in self.sizes) / each_ns

    def _by_chance(self, setting: Setting) -> float:
        """The throughput of commands that meet on the line by chance; infinite where they fall into step."""
        outstanding = setting.queue_depth * setting.connections
        if outstanding == 1 or not setting.c_bytes_per_s or not self.service_deviation_ns:
            return inf
        alone = _alone(setting)
        if not is_uneven(self.service_deviation_ns, alone.transfer_ns):
            return inf
        return 1e9 * setting.block_bytes * commands_per_ns(outstanding, alone.period_ns, alone.transfer_ns)

    def _side_by_side(self, *, is_rough: bool) -> float:
        """The throughput of all groups: that of one times their number, up to what the shared line carries.

        A loss or a slow receiver stalls one connection while the others go on; slow start stalls all at once.
        """
        tasks, connections = self.setting.queue_depth // self.groups, self.setting.connections // self.groups
        stalls = self.stalls_ns_per_byte
        own = {each: stall for each, stall in stalls.items() if each in OF_ONE_CONNECTION}
        dealt = self.with_setting(connections=connections, queue_depth=tasks)
        one = dealt._with(stalls_ns_per_byte=own, groups=1).throughput(is_rough=is_rough)
        together = self._with(stalls_ns_per_byte={}, groups=1).throughput(is_rough=is_rough)
        common = sum(stall for each, stall in stalls.items() if each not in OF_ONE_CONNECTION)
        return 1e9 / (1e9 / min(self.groups * one, together) + common)

    def without(self, name: str, share: float = 1.0) -> Situation:
        """The same without a wait or stall, or without a share of it."""
        waits_ns = {each: wait * (1 - share * (each == name)) for each, wait in self.waits_ns.items()}
        stalls = {each: stall * (1 - share * (each == name)) for each, stall in self.stalls_ns_per_byte.items()}
        return self._with(waits_ns=waits_ns, stalls_ns_per_byte=stalls)


@lru_cache(maxsize=4096)
def _throughput(setting: Setting, *, is_rough: bool) -> float:
    """Throughput of the model. Commands without R2T rounds or window stalls need not be followed one by one: their
    throughput is that of one times the queue depth, up to the line rate.
    """
    outstanding = setting.queue_depth * setting.connections
    if outstanding > 1 and setting.is_status_held:
        return predict(setting).throughput_bytes_per_s
    alone = _alone(setting)
    if outstanding == 1:
        return alone.throughput_bytes_per_s
    is_plain = not alone.stall_ns and (setting.operation == "read" or not solicited_bytes(setting))
    if not (is_plain or is_rough):
        return predict(setting).throughput_bytes_per_s
    line = setting.block_bytes * 1e9 / alone.transfer_ns if alone.transfer_ns else inf
    return min(outstanding * alone.throughput_bytes_per_s, line)


def _alone(setting: Setting) -> Prediction:
    """One command of a setting, with no others in flight."""
    if setting.queue_depth != 1 or setting.connections != 1:
        setting = altered(setting, queue_depth=1, connections=1)
    return _predicted(setting)


@lru_cache(maxsize=4096)
def _predicted(setting: Setting) -> Prediction:
    """What-ifs of one session change the queue depth more often than what a command alone takes."""
    return predict(setting)


_AWAY: Final = 1 / 8
"""Share of the RTT on the initiator's side from which on a tap does not count as beside the initiator."""
_SIZES: Final = 8
"""The most I/O sizes that are kept apart."""


@dataclass(frozen=True)
class Measured:
    """A situation with the pace that was measured."""

    situation: Situation
    pace_bytes_per_s: float
    """Data of all reads, or all writes, over their busy time: pauses of the program between two commands count."""
    busy_ns: int
    """The busy time."""
    parts_ns: Mapping[str, int]
    """Its time breakdown."""
    task_count: int
    bytes: int

    @property
    def remainder(self) -> float:
        """Pace measured / pace of the model."""
        return self.pace_bytes_per_s / self.situation.throughput()


def measure(session: Session) -> Measured | None:
    """The situation of a session's reads, or of its writes if they moved more bytes.

    None where there are few commands, where reads and writes ran side by side, or where the RTT is unknown.
    """
    path = session.path
    word, cycles = _largest(session.transfers)
    if path is None or len(cycles) < MIN_TASKS:
        return None
    parts_ns, busy_ns = _budget_of(session, cycles)
    moved, count = int(cycles.raw("data_bytes").astype(np.int64).sum()), len(cycles)
    if busy_ns <= 0 or not moved:
        return None
    conditions, pace = Conditions(session, word), moved * 1e9 / busy_ns
    depth, found_line = conditions.queue_depth, line.of_sender(conditions.busiest_sender)
    # else the line had at least the rate of the transfers
    transfer_ns = parts_ns["transfer"]
    least_bytes_per_s = moved * 1e9 / transfer_ns if transfer_ns else None
    is_window_known = conditions.window_bytes is not None and not conditions.is_window_shut
    setting = replace(
        conditions.setting(round(moved / count), depth),
        c_bytes_per_s=found_line.bytes_per_s if found_line else least_bytes_per_s,
        data_pdu_bytes=conditions.data_pdu_bytes,
        window_bytes=conditions.window_at(pace, path.round_trip_ns) if is_window_known else None,
        # slow start counts as a measured stall
        start_window_bytes=None,
    )
    open_names = set[str]()
    if word == "write":
        open_names |= conditions.assumed_names
    if found_line is None:
        open_names.add("c_bytes_per_s")
    if not is_window_known:
        open_names.add("window_bytes")
    held = setting.is_status_held
    if word == "read" and depth > 1 and not held and cycles.raw("is_status_in_data").mean() < 1 - MOST:
        # at this queue depth a held status rides with the data of the next command, so nothing shows it
        open_names.add("is_status_held")
    # each command pays a common wait once for every command in flight
    waits_ns = {name: parts_ns[name] / count * depth for name in WAITS}
    if held:
        # the model already has an RTT of it
        waits_ns["ack_wait"] = max(0.0, waits_ns["ack_wait"] - path.round_trip_ns)
    lost_ns, slow_ns = _congestion_ns(session, *_span(cycles))
    # the model's window is what is in flight then
    windows = ("receive_window", "send_buffer") if conditions.is_held_by_buffer else ("receive_window",)
    window_ns = sum(parts_ns[name] for name in windows)
    stalls_ns = {
        "loss": parts_ns["loss_recovery"] + lost_ns,
        "slow_start": slow_ns,
        "receiver": 0 if is_window_known else window_ns,
        "unknown": parts_ns["unknown"] + (0 if "send_buffer" in windows else parts_ns["send_buffer"]),
        "outage": parts_ns["outage"],
    }
    stalls_ns_per_byte = {name: stall / moved for name, stall in stalls_ns.items()}
    service_ns = session.waits_by_cycle(session.stretches("target_service"))[session.rows_of(cycles.raw("cycle"))]
    deviation_ns = float(np.std(service_ns)) if depth == 1 else 0.0
    sizes = _sizes_of(cycles.raw("data_bytes"))
    situation = Situation(setting, waits_ns, stalls_ns_per_byte, frozenset(open_names), deviation_ns, sizes)
    if depth > 1 and (session.rtt_ns("initiator") or 0) > path.round_trip_ns * _AWAY:
        # commands queued before the line, beyond the tap, are in flight too: the line is too busy without them
        alone = situation.with_setting(queue_depth=1).throughput()
        situation = situation.with_setting(queue_depth=max(depth, round(pace / alone)))
    if is_window_known:
        situation = _with_slow_receiver(situation, busy_ns / moved, window_ns / moved)
    return Measured(situation, pace, busy_ns, parts_ns, count, moved)


def _sizes_of(moved: Array) -> tuple[tuple[int, float], ...]:
    """The sizes of commands in bytes, each with its share of them; empty where all have the same. Where there are more
    than _SIZES, those between two powers of two count as their mean.
    """
    sizes, counts = np.unique(moved[moved > 0].astype(np.int64), return_counts=True)
    if len(sizes) > _SIZES:
        _, groups = np.unique(np.frexp(sizes.astype(np.float64))[1], return_inverse=True)
        sums, counts = np.bincount(groups, sizes * counts), np.bincount(groups, counts)
        sizes = np.rint(sums / counts)
    if len(sizes) < 2:
        return ()
    return tuple((int(size), float(count) / len(moved)) for size, count in zip(sizes, counts, strict=True))


def _with_slow_receiver(situation: Situation, busy_ns_per_byte: float, waited_ns_per_byte: float) -> Situation:
    """The situation with the waits for the window that its size does not explain.

    A receiver that reads slowly, or a window below its largest size, keeps the sender waiting for longer than the
    model's window does. That is the time that the model lacks, as far as the sender waited for the window.
    """
    lacking = busy_ns_per_byte - 1e9 / situation.throughput()
    return situation.with_stall("receiver", min(waited_ns_per_byte, max(0.0, lacking)))


def _largest(cycles: Table) -> tuple[str, Table]:
    """Reads or writes: the ones that moved more; no rows where the others moved much at the same time."""
    moved = cycles.raw("data_bytes").astype(np.int64)
    sums = {word: int(moved[cycles.raw(f"is_{word}")].sum()) for word in ("read", "write")}
    word = max(sums, key=lambda each: sums[each])
    is_own = cycles.raw(f"is_{word}")
    if is_own.all():
        # most sessions do only one of them: no copy
        return word, cycles
    own = cycles.select(is_own)
    if len(own):
        first, last = _span(own)
        starts = cycles.raw("command_first_ns")
        meanwhile = int(moved[~is_own & (starts >= first) & (starts <= last)].sum())
        if meanwhile > (1 - workload.MOSTLY) * sums[word]:
            own = own.select([])
    return word, own


def _span(cycles: Table) -> tuple[int, int]:
    """From the first command to the last status."""
    first, ends = int(cycles.raw("command_first_ns").min()), cycles.raw("status_ns")[known(cycles, "status_ns")]
    return first, int(ends.max(initial=first))


def _budget_of(session: Session, cycles: Table) -> tuple[dict[str, int], int]:
    """The time breakdown of the busy time of these commands, and its sum: that of the session, unless it did others."""
    if session.budget is not None and len(cycles) == len(session.transfers):
        return dict(session.budget.parts_ns), session.jobs_ns
    table = session.busy
    first, last = _span(cycles)
    lengths = np.minimum(table.raw("time_last_ns"), last) - np.maximum(table.raw("time_first_ns"), first)
    lengths, part = np.maximum(lengths, 0), table.raw("part")
    sums = np.bincount(part, weights=lengths, minlength=len(budget.PARTS)).astype(np.int64)
    parts_ns = dict(zip(budget.PARTS, sums.tolist(), strict=True))
    return parts_ns, sum(parts_ns.values())


def _congestion_ns(session: Session, first_ns: int, last_ns: int) -> tuple[int, int]:
    """Waits for the congestion window between two instants: after the first loss, and before it."""
    waits = session.stretches("congestion_window")
    waits = waits.where((waits.starts >= first_ns) & (waits.ends <= last_ns))
    if not len(waits.starts):
        return 0, 0
    lost_ns = losses(session.tables["recoveries"]).raw("time_first_ns")
    is_after = waits.starts >= lost_ns.min() if len(lost_ns) else np.zeros(len(waits.starts), dtype=bool)
    after_ns = int(waits.lengths[is_after].sum())
    return after_ns, waits.total_ns - after_ns
