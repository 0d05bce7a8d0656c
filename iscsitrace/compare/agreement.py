"""A capture compared with the truth of the run that made it: commands, parameters and losses, value by value.

The truth of a simulated run is exact to the nanosecond, so every instant has to be equal; that of other runs has the
commands and the bytes moved, or the reads and writes of a program with their latencies. Values that the truth lacks are
not compared. A difference does not say which side is wrong.

The truth of a shipped sample (``samples/*/truth.json``) was told by the programs that made the traffic and by tshark.
It has totals and the parameters that the kernels reported, not single commands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iscsitrace.compare import truth as truth_files
from iscsitrace.compare.truth import FIELDS, FIRST_PORT, INSTANTS, KEYS, End, Row
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Source, Table

_WORKLOAD = ("read", "write")
_FIN, _SYN = 0x01, 0x02


@dataclass(frozen=True)
class TruthDifference:
    """A value that differs between capture and truth, or that one of them lacks."""

    subject: str
    """``capture``, ``connection``, ``cycle``, ``parameter`` or ``loss``."""
    connection: int | None
    """tcp.stream."""
    text: str


@dataclass
class Agreement:
    """The result of comparing a capture with a truth."""

    tap: str | None
    cycle_count: int = 0
    """Commands that both have."""
    value_count: int = 0
    """Values of commands that were compared; likewise below."""
    parameter_count: int = 0
    loss_count: int = 0
    host_times_ns: list[int] = field(default_factory=list)
    """How much longer than each command at the initiator the program waited that issued it: the host's own time."""
    differences: list[TruthDifference] = field(default_factory=list)

    def differ(self, subject: str, connection: int | None, text: str) -> None:
        """Adds a difference."""
        self.differences.append(TruthDifference(subject, connection, text))


@dataclass(frozen=True)
class Tables:
    """The tables of a capture that are compared."""

    connections: Table
    cycles: Table
    parameters: Table
    packet_count: int


def compare(tables: Tables, truth: Mapping[str, Any], tap: str | None) -> Agreement:
    """Compares the tables of one capture with its truth.

    ``tap`` says where the capture of a simulation or a run in the lab was taken: ``initiator``, ``target``,
    ``target-2`` ... InputInvalid for a tap that the truth does not have, and for a truth that is none.
    """
    truth_files.check(truth)
    agreement = Agreement(tap)
    try:
        _TruthCheck(tables, truth, tap, agreement).run()
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputInvalid(f"the truth is damaged: {type(error).__name__}: {error}") from error
    return agreement


class _TruthCheck:
    def __init__(self, tables: Tables, truth: Mapping[str, Any], tap: str | None, agreement: Agreement) -> None:
        self._truth = truth
        self._kind: str = truth["kind"]
        self._agreement = agreement
        self._has_taps = self._kind in {"simulation", "run"}
        self._target = truth_files.target_of(truth, tap) if self._has_taps else None
        self._tables = tables
        # a transfer over bare sockets has no commands and no login keys
        self._is_socket = truth.get("results", {}).get("mode") == "socket"
        self._connections = [row for row in tables.connections.rows() if bool(row["is_iscsi"]) != self._is_socket]
        self._targets = truth_files.target_numbers(truth)
        self._streams: dict[End, list[int]] = defaultdict(list)
        for row in self._connections:
            self._streams[self._end(row)].append(row["connection"])
        self._ends = self._initiator_ends()

    def _end(self, row: Row) -> End:
        return self._targets.get(row["target_address"], 0), row["initiator_port"]

    def _initiator_ends(self) -> dict[int, End]:
        """The initiator's end of each connection of the truth."""
        if self._kind == "simulation":
            numbers = {one["connection"] for one in self._truth["results"]["connections"]}
            return {number: (0, FIRST_PORT + number) for number in numbers | set(self._truth["cycles"]["connection"])}
        name = "peer_port" if self._kind == "target" else "own_port"
        ends = {
            end["connection"]: (self._targets.get(end["peer_address"], 0), end[name]) for end in self._truth["ends"]
        }
        # the ports of a short connection may be unknown
        if self._kind == "run":
            return ends | self._ends_by_order(ends)
        unknown = set(self._truth["cycles"].get("connection", ())) - set(ends)
        unclaimed = set(self._streams) - set(ends.values())
        if len(unknown) == len(unclaimed) == 1:
            ends[unknown.pop()] = unclaimed.pop()
        return ends

    def _ends_by_order(self, known: Mapping[int, End]) -> dict[int, End]:
        """The ends of a run's other connections: truth and capture list those to one target in order of opening."""
        opened = sorted((one["connection"], one["target"]) for one in self._truth["results"].get("connections", ()))
        found: dict[int, End] = {}
        for target in {target for _, target in opened}:
            unknown = [number for number, its in opened if its == target and number not in known]
            unclaimed = [end for end in self._streams if end[0] == target and end not in known.values()]
            found.update(zip(unknown, unclaimed, strict=False))
        return found

    def run(self) -> None:
        if self._has_taps:
            self._compare_packets()
            self._compare_losses()
        # initiators of other projects do not report their commands
        if self._truth["cycles"] is not None:
            self._compare_cycles()
        elif self._truth.get("commands", {}).get("block_bytes"):
            self._compare_calls()
        if "results" in self._truth and not self._is_socket:
            self._compare_parameters()

    def _compare_packets(self) -> None:
        found = self._tables.packet_count
        expected = self._truth["packet_counts"][0 if self._target is None else 1 + self._target]
        if found != expected:
            self._agreement.differ("capture", None, f"has {found} packets, {expected} passed the tap")

    def _compare_losses(self) -> None:
        """All retransmissions of a host pass the tap beside it; those of the other host may be lost on the way."""
        truth = self._truth
        ends = truth["initiator_ends"] if self._target is None else truth["target_ends"][self._target]
        to_target = self._target is None
        way = "to_target" if to_target else "to_initiator"
        column = f"retransmitted_packets_{way}"
        found: dict[End, int] = defaultdict(int)
        answers: dict[End, int] = defaultdict(int)
        for row in self._connections:
            syns, fins = row[f"retransmitted_syns_{way}"], row[f"retransmitted_fins_{way}"]
            found[self._end(row)] += row[column] + syns + fins
            # a SYN that comes twice is answered twice, and the second answer need not be a retransmission
            answers[self._end(row)] += 0 if to_target else syns
        for each in ends:
            number = (each.get("target", 0) if to_target else self._target or 0) if self._targets else 0
            end, expected = (number, each["initiator_port"]), each["retransmitted_segment_count"]
            self._agreement.loss_count += 1
            # the truth lacks what a kernel retransmits after its last sample
            least = 0 if self._kind == "run" else found[end] - answers[end]
            if not least <= expected <= found[end]:
                text = f"{column}, with SYN and FIN, is {found[end]}, the truth has {expected}"
                self._agreement.differ("loss", self._stream(end), text)

    def _stream(self, end: End | None) -> int | None:
        streams = self._streams.get(end, []) if end is not None else []
        return streams[0] if streams else None

    def _compare_cycles(self) -> None:
        expected: dict[tuple[End | None, int], list[Row]] = defaultdict(list)
        for truth in truth_files.rows(self._truth, self._target):
            expected[self._ends.get(truth["connection"]), truth["initiator_task_tag"]].append(truth)
        ends = {row["connection"]: self._end(row) for row in self._connections}
        found: dict[tuple[End | None, int], list[Row]] = defaultdict(list)
        names = ["cycle", "connection", "initiator_task_tag", *FIELDS[self._kind], *INSTANTS]
        for row in self._tables.cycles.rows(names):
            # the log of an initiator has only the commands of its workload
            if self._kind not in {"run", "initiator"} or row["operation"] in _WORKLOAD:
                found[ends.get(row["connection"]), row["initiator_task_tag"]].append(row)
        for key in [*expected, *(key for key in found if key not in expected)]:
            self._compare_tag(*key, found.get(key, []), expected.get(key, []))

    def _compare_tag(self, end: End | None, tag: int, found: Sequence[Row], expected: Sequence[Row]) -> None:
        """The commands of one Initiator Task Tag on one connection are in the same order on both sides."""
        if self._kind == "simulation" and len(found) != len(expected):
            # some are missing: commands that began at the same time are the same
            known = {truth["command_first_ns"]: truth for truth in expected}
            same = [row for row in found if row["command_first_ns"] in known]
            times = {row["command_first_ns"] for row in same}
            for row in same:
                self._compare_cycle(row, known[row["command_first_ns"]])
            found = [row for row in found if row["command_first_ns"] not in times]
            expected = [truth for truth in expected if truth["command_first_ns"] not in times]
        for row, truth in zip(found, expected, strict=False):
            self._compare_cycle(row, truth)
        name = f"Initiator Task Tag 0x{tag:08x}"
        for row in found[len(expected) :]:
            self._agreement.differ("cycle", row["connection"], f"cycle {row['cycle']}, {name}: not in the truth")
        for truth in expected[len(found) :]:
            where = "a connection without known ports" if end is None else f"initiator's port {end[1]}"
            text = f"{name}, {truth['operation'] or 'no operation of the workload'}: not in the capture ({where})"
            self._agreement.differ("cycle", self._stream(end), text)

    def _compare_cycle(self, row: Row, truth: Row) -> None:
        agreement = self._agreement
        agreement.cycle_count += 1
        for name, its in FIELDS[self._kind].items():
            # values that the truth lacks are not compared
            if truth[its] is not None:
                self._compare_value(row, name, truth[its])
        if self._kind == "simulation":
            for name in INSTANTS:
                self._compare_value(row, name, truth[name])

    def _compare_value(self, row: Row, name: str, expected: object) -> None:
        self._agreement.value_count += 1
        if row[name] != expected:
            text = f"cycle {row['cycle']}: {name} is {row[name]}, the truth has {expected}"
            self._agreement.differ("cycle", row["connection"], text)

    def _compare_calls(self) -> None:
        """The reads and writes of a program on one disk, each with its latency as the program measured it.

        The kernel may cut one into several commands. At the initiator, each of these takes at most as long.
        """
        calls = truth_files.calls(self._truth)
        found: dict[tuple[str, int], list[Row]] = defaultdict(list)
        names = ("cycle", "connection", "operation", "lba", "bytes", "command_first_ns", "status_ns")
        for row in self._tables.cycles.rows(names):
            if row["operation"] in _WORKLOAD and row["lba"] is not None:
                found[row["operation"], row["lba"] * self._truth["commands"]["block_bytes"]].append(row)
        # from the last one on: the kernel reads a new disk before the program does
        for call in reversed(calls):
            self._compare_call(call, found)

    def _compare_call(self, call: Row, found: Mapping[tuple[str, int], list[Row]]) -> None:
        agreement, offset, end = self._agreement, call["offset"], call["offset"] + call["bytes"]
        while offset < end:
            rows = found.get((call["operation"], offset))
            if not rows:
                text = f"{call['operation']} of {call['bytes']} bytes at byte {call['offset']}: not in the capture"
                agreement.differ("cycle", None, text)
                return
            row = rows.pop(_place(rows, end - offset))
            agreement.cycle_count += 1
            offset += row["bytes"]
            if self._target is None and row["status_ns"] is not None and row["command_first_ns"] is not None:
                agreement.value_count += 1
                took_ns = row["status_ns"] - row["command_first_ns"]
                agreement.host_times_ns.append(call["latency_ns"] - took_ns)
                if took_ns > call["latency_ns"]:
                    text = f"cycle {row['cycle']} takes {took_ns} ns, the program waited {call['latency_ns']} ns"
                    agreement.differ("cycle", row["connection"], text)

    def _compare_parameters(self) -> None:
        found: dict[int, list[Row]] = defaultdict(list)
        for row in self._tables.parameters.rows():
            found[row["connection"]].append(row)
        for one in self._truth["results"].get("connections", ()):
            if self._target is not None and one["target"] != self._target:
                continue
            end = self._ends.get(one["connection"])
            for stream in self._streams.get(end, ()) if end is not None else ():
                for key in found[stream]:
                    # the parameters of a session are negotiated on its leading connection
                    is_silent = one["cid"] > 0 and key["source"] == "default"
                    if one["parameters"] and key["key"] in KEYS and not is_silent:
                        self._compare_parameter(key, one["parameters"])

    def _compare_parameter(self, row: Row, truth: Row) -> None:
        self._agreement.parameter_count += 1
        sides = ("effective_initiator", "effective_target")
        for side, name in zip(sides, KEYS[row["key"]], strict=True):
            # a kernel does not report every key
            if name not in truth:
                continue
            expected = _spelled(truth[name])
            if row[side] is not None and row[side] != expected:
                text = f"{row['key']}, {side.replace('_', ' ')}: {row[side]}, the truth has {expected}"
                self._agreement.differ("parameter", row["connection"], text)


def _place(rows: Sequence[Row], left_bytes: int) -> int:
    """The last command of all that is left of a call, or else the last: other readers look for partitions."""
    return max((place for place, row in enumerate(rows) if row["bytes"] == left_bytes), default=-1)


def _spelled(value: object) -> str:
    """A value as a login has it."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return str(value)


_COMMAND = "SCSI Command"


def is_sample(truth: Mapping[str, Any]) -> bool:
    """Whether it is the truth of a sample, and not of a run."""
    return "kind" not in truth and {"packet_count", "connection_count"} <= truth.keys()


def compare_sample(source: Source, packet_count: int, truth: Mapping[str, Any]) -> Agreement:
    """Compares the tables of a capture with the truth of its sample. InputInvalid for a truth that is none."""
    agreement = Agreement(None)
    try:
        for subject, found, told in _totals(source, packet_count, truth):
            agreement.value_count += 1
            if found != told:
                agreement.differ("capture", None, f"{subject}: {found} in the capture, {told} in the truth")
        for connection, key, value, effective in _parameters(source, truth):
            agreement.parameter_count += 1
            if value != effective:
                agreement.differ("parameter", connection, f"{key}: {value} in the capture, {effective} in the truth")
    except (KeyError, TypeError, AttributeError) as error:
        raise InputInvalid(f"the truth is damaged: {type(error).__name__}: {error}") from error
    return agreement


def _totals(source: Source, packet_count: int, truth: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    yield "packets", packet_count, truth["packet_count"]
    yield "connections", len(source("connections")), truth["connection_count"]
    if "keys_in_force" in truth:
        # a connection is a session, unless the truth says otherwise
        yield "sessions", len(source("sessions")), truth.get("session_count", truth["connection_count"])
    if _COMMAND in truth.get("pdu_count", {}):
        yield "commands", len(source("cycles")), truth["pdu_count"][_COMMAND]
    if "aborted_task_count" in truth:
        yield "aborted commands", int(source("cycles").raw("is_aborted").sum()), truth["aborted_task_count"]


def _parameters(source: Source, truth: Mapping[str, Any]) -> Iterator[tuple[int | None, str, str, str]]:
    sessions = list(source("sessions").rows(("session", "target_name", "login_status")))
    rows = {(row["session"], row["key"]): row for row in source("parameters").rows()}
    for told in truth.get("keys_in_force", ()):
        for session in sessions:
            if session["target_name"] != told["target_name"] or session["login_status"] != 0:
                continue
            for key, value in told.items():
                row = rows.get((session["session"], key))
                if row is not None:
                    yield row["connection"], key, row["effective_initiator"], value
