"""A subject as the model takes it: its setting, and the waits that packets show but no setting tells.

What the model reckons itself (path, line, window, R2T rounds, a held status) comes as a setting; what only the budget
knows (hosts, losses, slow start) is taken from there as it was measured, so that a what-if of the one leaves the other
as it is (docs/method.md, section 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.findings.thresholds import MIN_TASKS, MOST
from iscsitrace.analysis.measures import budget
from iscsitrace.analysis.model.bursts import solicited_bytes
from iscsitrace.analysis.model.meeting import tasks_per_ns
from iscsitrace.analysis.model.prediction import predict
from iscsitrace.analysis.model.setting import Setting, Solicitation
from iscsitrace.analysis.session import workload
from iscsitrace.analysis.session.subject import Subject, known
from iscsitrace.tables.table import Table

Array = NDArray[Any]

WAITS: Final = ("target_service", "initiator_service", "initiator_think", "ack_wait")
"""Parts that each task pays beside its delays, while other tasks go on: nanoseconds a task."""
_ON_THE_WAY: Final = 0.95
"""Of the round trip to the initiator, less what the jitter of its least may be: at queue depth 1 the next command comes
when it is over."""
_AWAY: Final = 1 / 8
"""Share of the path that a tap beside the initiator does not have on the initiator's side."""
STALLS: Final = ("loss", "slow_start", "receiver", "unknown")
"""What holds up all tasks together, and the more of it the more is moved: nanoseconds a byte."""


OF_ONE_CONNECTION: Final = ("loss", "receiver")
"""Of these, what holds up the tasks of one connection, and not those of others."""


UNEVEN: Final = 0.25
"""Service times that differ by so much of what a block takes on the line put tasks out of step."""


@dataclass(frozen=True)
class Situation:
    """One workload over one path, as measured."""

    setting: Setting
    """Its ``queue_depth`` is that of all connections together; its ``service_ns`` is the sum of the waits."""
    waits_ns: Mapping[str, float] = field(default_factory=dict)
    """Of WAITS, per task."""
    stalls_ns_per_byte: Mapping[str, float] = field(default_factory=dict)
    """Of STALLS."""
    open_names: frozenset[str] = frozenset()
    """Fields of Setting and Solicitation that the packets do not tell: their values are assumed."""
    service_deviation_ns: float = 0.0
    """Standard deviation of what the target takes for a task, where tasks go one after another."""
    groups: int = 1
    """Of connections that are like those measured, and stall on their own."""

    def throughput(self, *, is_rough: bool = False) -> float:
        """Bytes per second, by the model; roughly, and soon, without following tasks that are in each other's way."""
        if self.groups > 1:
            return self._side_by_side(is_rough=is_rough)
        tasks = self.setting.queue_depth
        connections = min(self.setting.connections, tasks)
        setting = replace(
            self.setting,
            connections=connections,
            queue_depth=round(tasks / connections),
            service_ns=sum(self.waits_ns.values()),
        )
        reached = min(_throughput(setting, is_rough=is_rough), self._by_chance(setting))
        ns_per_byte = 1e9 / reached + sum(self.stalls_ns_per_byte.values())
        return 1e9 / ns_per_byte

    def with_setting(self, **changes: Any) -> Situation:
        """The same with other values of its setting."""
        return replace(self, setting=replace(self.setting, **changes))

    def with_keys(self, **changes: Any) -> Situation:
        """The same with other keys in force."""
        return self.with_setting(solicitation=replace(self.setting.solicitation, **changes))

    def with_connections(self, count: int) -> Situation:
        """The same over a multiple of its connections, each with one task at least: so many that work side by side."""
        groups = max(1, count // self.setting.connections)
        tasks = max(self.setting.queue_depth, groups * self.setting.connections)
        found = self.with_setting(connections=groups * self.setting.connections, queue_depth=tasks)
        return replace(found, groups=groups)

    def _by_chance(self, setting: Setting) -> float:
        """What is left of a throughput when tasks meet on the line; infinite when they fall into step."""
        outstanding = setting.queue_depth * setting.connections
        if outstanding == 1 or not setting.c_bytes_per_s or not self.service_deviation_ns:
            return inf
        alone = predict(replace(setting, queue_depth=1, connections=1))
        if self.service_deviation_ns < UNEVEN * alone.transfer_ns:
            return inf
        return 1e9 * setting.block_bytes * tasks_per_ns(outstanding, alone.period_ns, alone.transfer_ns)

    def _side_by_side(self, *, is_rough: bool) -> float:
        """What so many groups give: as many times one of them, up to what all can that share the line.

        A loss, or a receiver that is late, holds up one connection, and the others go on; slow start is all
        connections' at once.
        """
        tasks, connections = self.setting.queue_depth // self.groups, self.setting.connections // self.groups
        stalls = self.stalls_ns_per_byte
        own = {each: stall for each, stall in stalls.items() if each in OF_ONE_CONNECTION}
        one = replace(
            self.with_setting(connections=connections, queue_depth=tasks), stalls_ns_per_byte=own, groups=1
        ).throughput(is_rough=is_rough)
        together = replace(self, stalls_ns_per_byte={}, groups=1).throughput(is_rough=is_rough)
        common = sum(stall for each, stall in stalls.items() if each not in OF_ONE_CONNECTION)
        return 1e9 / (1e9 / min(self.groups * one, together) + common)

    def without(self, name: str, share: float = 1.0) -> Situation:
        """The same without a wait or stall, or without a share of it."""
        waits_ns = {each: wait * (1 - share * (each == name)) for each, wait in self.waits_ns.items()}
        stalls = {each: stall * (1 - share * (each == name)) for each, stall in self.stalls_ns_per_byte.items()}
        return replace(self, waits_ns=waits_ns, stalls_ns_per_byte=stalls)


@lru_cache(maxsize=4096)
def _throughput(setting: Setting, *, is_rough: bool) -> float:
    """By the model. Of tasks without rounds or windows it is known without following each of them: as many times that
    of one, up to what the line carries.
    """
    outstanding = setting.queue_depth * setting.connections
    if outstanding == 1 or setting.is_status_held:
        return predict(setting).throughput_bytes_per_s
    alone = predict(replace(setting, queue_depth=1, connections=1))
    is_plain = not alone.stall_ns and (setting.operation == "read" or not solicited_bytes(setting))
    if not (is_plain or is_rough):
        return predict(setting).throughput_bytes_per_s
    line = setting.block_bytes * 1e9 / alone.transfer_ns if alone.transfer_ns else inf
    return min(outstanding * alone.throughput_bytes_per_s, line)


@dataclass(frozen=True)
class Measured:
    """A situation with what it came to."""

    situation: Situation
    throughput_bytes_per_s: float
    """Data of all reads and writes over the time from the first one's command to the last one's status, less the
    pauses between jobs."""
    busy_ns: int
    """That time."""
    parts_ns: Mapping[str, int]
    """Its budget."""
    task_count: int
    bytes: int

    @property
    def remainder(self) -> float:
        """Throughput measured / throughput by the model."""
        return self.throughput_bytes_per_s / self.situation.throughput()


def measure(subject: Subject) -> Measured | None:
    """The situation of a session's reads, or its writes, whichever moved more.

    None where little was moved, reads and writes went side by side, or the path is unknown.
    """
    path_ns = subject.path_ns
    word, cycles = _largest(subject.transfers)
    if not path_ns or len(cycles) < MIN_TASKS:
        return None
    parts_ns, busy_ns = _budget_of(subject, cycles)
    moved, count = int(cycles.raw("data_bytes").astype(np.int64).sum()), len(cycles)
    if busy_ns <= 0 or not moved:
        return None
    connections = max(1, len(np.unique(cycles.raw("connection"))))
    depth = _queue_depth(cycles, subject.rtt_ns("initiator") or 0)
    sender = _sender(subject, to_target=word == "write")
    closes = bool(sender) and (sender["rwnd_min_bytes"] or 0) < (sender["segment_bytes"] or 1)
    is_known = bool(sender) and not sender["is_window_scale_inferred"] and not closes
    held = word == "read" and _is_status_held(subject)
    solicitation, open_names = Solicitation(), set[str]()
    if word == "write":
        solicitation, open_names = _solicitation(subject, cycles)
    if not sender.get("line_bytes_per_s"):
        open_names.add("c_bytes_per_s")
    if not is_known:
        open_names.add("window_bytes")
    if word == "read" and depth > 1 and not held and cycles.raw("is_status_in_data").mean() < 1 - MOST:
        # with several outstanding a held status goes along with the data of the next task
        open_names.add("is_status_held")
    setting = Setting(
        operation=word,
        block_bytes=round(moved / count),
        delay_ns=path_ns / 2,
        c_bytes_per_s=sender.get("line_bytes_per_s") or None,
        data_pdu_bytes=int(cycles.raw("data_pdu_bytes_max").max()) or None,
        queue_depth=depth,
        connections=connections,
        is_status_held=held,
        solicitation=solicitation,
        window_bytes=(sender["rwnd_max_bytes"] or None) if is_known else None,
        segment_bytes=sender.get("segment_bytes") or Setting.segment_bytes,
    )
    # a task pays what all wait for as often as there are tasks beside it
    waits_ns = {name: parts_ns[name] / count * depth for name in WAITS}
    if held:
        # two delays of it are the model's
        waits_ns["ack_wait"] = max(0.0, waits_ns["ack_wait"] - path_ns)
    lost_ns, slow_ns = _congestion_ns(subject, *_span(cycles))
    stalls_ns = {
        "loss": parts_ns["loss_recovery"] + lost_ns,
        "slow_start": slow_ns,
        "receiver": 0 if is_known else parts_ns["receive_window"],
        "unknown": parts_ns["unknown"],
    }
    stalls_ns_per_byte = {name: stall / moved for name, stall in stalls_ns.items()}
    service_ns = subject.waits_by_cycle(subject.stretches("target_service"))[subject.rows_of(cycles.raw("cycle"))]
    deviation_ns = float(np.std(service_ns)) if depth == 1 else 0.0
    situation = Situation(setting, waits_ns, stalls_ns_per_byte, frozenset(open_names), deviation_ns)
    throughput = moved * 1e9 / busy_ns
    if depth > 1 and (subject.rtt_ns("initiator") or 0) > path_ns * _AWAY:
        # what queues before the line beyond the tap is outstanding, too: without it the line would not be so busy
        alone = situation.with_setting(queue_depth=1).throughput()
        situation = situation.with_setting(queue_depth=max(depth, round(throughput / alone)))
    return Measured(situation, throughput, busy_ns, parts_ns, count, moved)


def _largest(cycles: Table) -> tuple[str, Table]:
    """The reads, or the writes, that moved more; none where the others moved much meanwhile."""
    moved = cycles.raw("data_bytes").astype(np.int64)
    sums = {word: int(moved[cycles.raw(f"is_{word}")].sum()) for word in ("read", "write")}
    word = max(sums, key=lambda each: sums[each])
    is_own = cycles.raw(f"is_{word}")
    if is_own.all():
        # no copy of what most sessions have
        return word, cycles
    own = cycles.select(is_own)
    if len(own):
        first, last = _span(own)
        starts = cycles.raw("command_first_ns")
        meanwhile = int(moved[~is_own & (starts >= first) & (starts <= last)].sum())
        if meanwhile > (1 - workload.MOSTLY) * sums[word]:
            own = own.select(slice(0, 0))
    return word, own


def _span(cycles: Table) -> tuple[int, int]:
    """From the first command to the last status."""
    first, ends = int(cycles.raw("command_first_ns").min()), cycles.raw("status_ns")[known(cycles, "status_ns")]
    return first, int(ends.max(initial=first))


def _budget_of(subject: Subject, cycles: Table) -> tuple[dict[str, int], int]:
    """The parts of the time in which these tasks went, and their sum, both without pauses between jobs."""
    table = subject.tables["budget"]
    first, last = _span(cycles)
    lengths = np.minimum(table.raw("time_last_ns"), last) - np.maximum(table.raw("time_first_ns"), first)
    lengths, part = np.maximum(lengths, 0), table.raw("part")
    sums = np.bincount(part, weights=lengths, minlength=len(budget.PARTS)).astype(np.int64)
    parts_ns = dict(zip(budget.PARTS, sums.tolist(), strict=True))
    think_ns = lengths[part == budget.PARTS.index("initiator_think")]
    parts_ns["initiator_think"] -= budget.between_jobs_ns(think_ns[think_ns > 0])
    return parts_ns, sum(parts_ns.values())


def _queue_depth(cycles: Table, rtt_to_initiator_ns: int) -> int:
    """Median of the tasks outstanding when each was asked for, as the initiator sees it.

    Away from the initiator a task is outstanding for longer than the tap sees: until its status has arrived and the
    command that follows it could have come back.
    """
    starts = np.sort(cycles.raw("command_first_ns"))
    has_end = known(cycles, "status_ns")
    ends = np.sort(cycles.raw("status_ns")[has_end]) + round(_ON_THE_WAY * rtt_to_initiator_ns)
    depths = np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")
    return max(1, int(np.median(depths)))


def _sender(subject: Subject, *, to_target: bool) -> dict[str, Any]:
    """The row of ``senders`` that most data came from; empty where there is none."""
    direction = "to_target" if to_target else "to_initiator"
    sent = {row["connection"]: row[f"stream_bytes_{direction}"] for row in subject.connections}
    rows = [row for row in subject.tables["senders"].rows() if row["to_target"] == to_target]
    return max(rows, key=lambda row: sent.get(row["connection"], 0), default={})


def _is_status_held(subject: Subject) -> bool:
    """Whether most reads waited for the ACK of their data, by half of the path or more, before their status came."""
    cycles, path_ns = subject.cycles, subject.path_ns or 0
    is_apart = subject.is_transfer & cycles.raw("is_read") & ~cycles.raw("is_status_in_data")
    waited_ns = subject.waits_by_cycle(subject.stretches("ack_wait"))
    is_held = is_apart & (waited_ns > path_ns / 2)
    return bool(is_held.sum() > MOST * (subject.is_transfer & cycles.raw("is_read")).sum())


def _congestion_ns(subject: Subject, first_ns: int, last_ns: int) -> tuple[int, int]:
    """What waiting for the congestion window took after the first loss, and before it, between two instants."""
    waits = subject.stretches("congestion_window")
    waits = waits.where((waits.starts >= first_ns) & (waits.ends <= last_ns))
    losses = subject.tables["recoveries"].raw("time_first_ns")
    is_after = waits.starts >= losses.min() if len(losses) else np.zeros(len(waits.starts), dtype=bool)
    after_ns = int(waits.lengths[is_after].sum())
    return after_ns, waits.total_ns - after_ns


def _solicitation(subject: Subject, cycles: Table) -> tuple[Solicitation, set[str]]:
    """How writes get their data across, the keys in force and what was made of them; and what of it is assumed."""
    keys = {
        row["key"]: row["effective_target"] for row in subject.tables["parameters"].rows(("key", "effective_target"))
    }
    plain = Solicitation()
    immediate, unsolicited = int(cycles.raw("immediate_bytes").max()), int(cycles.raw("unsolicited_bytes").max())
    bursts = subject.tables["rounds"].raw("desired_data_transfer_length")
    burst, max_burst = int(bursts.max(initial=0)), _number(keys, "MaxBurstLength")
    if max_burst and burst >= min(max_burst, int(cycles.raw("bytes").max()) - immediate - unsolicited):
        # as long as they may be, or as long as what is left of a block
        burst = max_burst
    first_burst = _number(keys, "FirstBurstLength") or max(immediate + unsolicited, plain.first_burst_bytes)
    # all that may go unasked went with the command
    is_all_immediate = keys.get("InitialR2T") == "No" and immediate >= min(first_burst, int(cycles.raw("bytes").max()))
    found = Solicitation(
        is_initial_r2t=not unsolicited and not is_all_immediate,
        is_immediate_data=immediate > 0,
        first_burst_bytes=first_burst,
        max_burst_bytes=burst or max_burst or plain.max_burst_bytes,
        max_outstanding_r2t=_number(keys, "MaxOutstandingR2T") or plain.max_outstanding_r2t,
        max_recv_data_segment_bytes=_number(keys, "MaxRecvDataSegmentLength")
        or max(immediate, plain.max_recv_data_segment_bytes),
    )
    # where nothing may go unasked FirstBurstLength is not agreed on (RFC 7143, section 13.14)
    return found, set() if _number(keys, "FirstBurstLength") else {"first_burst_bytes"}


def _number(keys: Mapping[str, str | None], key: str) -> int | None:
    value = keys.get(key) or ""
    return int(value) if value.isdigit() else None
