"""A capture against the truth of the run that made it: cycles, parameters and losses, value by value.

The truth is what the lab's runs, `initiator --truth` and `target --truth` write (docs/lab.md). Of a simulated run all
is known to the nanosecond, so every instant has to be the same; elsewhere what was asked for and what was moved. A
value that the truth does not have is not compared. It never says which side is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Table

SCHEMA_VERSION = 1
"""Of the truth files that can be read."""
KINDS = ("simulation", "run", "initiator", "target")
TAPS = "initiator, target, target-2 ..."

INSTANTS = (
    *("command_first_ns", "command_last_ns", "r2t_first_ns", "data_first_ns", "data_last_ns", "data_acked_ns"),
    "status_ns",
)
_FIRST_PORT = 40_000
"""The simulated initiator's connection of number n is opened from this port + n."""
_WORKLOAD = ("read", "write")
_FIN, _SYN = 0x01, 0x02
_OF_WORKLOAD = {
    "operation": "operation",
    "lba": "lba",
    "block_count": "block_count",
    "bytes": "bytes",
    "status": "status",
}
# column of the table cycles -> column of the truth
_FIELDS: dict[str, dict[str, str]] = {
    "simulation": {
        "operation": "operation",
        "lba": "lba",
        "block_count": "block_count",
        "bytes": "block_size_bytes",
        "data_bytes": "bytes",
        "data_pdu_count": "data_pdu_count",
        "r2t_count": "r2t_count",
        "status": "status",
    },
    "run": _OF_WORKLOAD,
    "initiator": _OF_WORKLOAD,
    "target": {
        "operation": "operation",
        "lba": "lba",
        "block_count": "block_count",
        "bytes": "expected_data_transfer_length",
        "data_bytes": "transferred_bytes",
        "r2t_count": "r2t_count",
        "status": "status",
    },
}
# key -> names in the truth: what the initiator's value is, what the target's is
_KEYS: dict[str, tuple[str, str]] = {
    "MaxRecvDataSegmentLength": (
        "initiator_max_recv_data_segment_length",
        "target_max_recv_data_segment_length",
    )
} | {
    key: (name, name)
    for key, name in {
        "HeaderDigest": "header_digest",
        "DataDigest": "data_digest",
        "MaxConnections": "max_connections",
        "InitialR2T": "initial_r2t",
        "ImmediateData": "immediate_data",
        "MaxBurstLength": "max_burst_length",
        "FirstBurstLength": "first_burst_length",
        "DefaultTime2Wait": "default_time2wait",
        "DefaultTime2Retain": "default_time2retain",
        "MaxOutstandingR2T": "max_outstanding_r2t",
        "DataPDUInOrder": "data_pdu_in_order",
        "DataSequenceInOrder": "data_sequence_in_order",
        "ErrorRecoveryLevel": "error_recovery_level",
        "TaskReporting": "task_reporting",
        "iSCSIProtocolLevel": "iscsi_protocol_level",
    }.items()
}

Row = Mapping[str, Any]
End = tuple[int, int]
"""The initiator's end of a connection: the number of its target, and its port.

A kernel gives a port again for another target, so in the real world a port alone names no connection. Elsewhere the
target's number is 0.
"""


@dataclass(frozen=True)
class Difference:
    """Something that the capture says and the truth does not, or the other way round."""

    subject: str
    """``capture``, ``connection``, ``cycle``, ``parameter`` or ``loss``."""
    connection: int | None
    """tcp.stream."""
    text: str


@dataclass
class Agreement:
    """How a capture and a truth go together."""

    tap: str | None
    cycle_count: int = 0
    """Cycles that both have."""
    value_count: int = 0
    """Values of cycles that were compared, and so on."""
    parameter_count: int = 0
    loss_count: int = 0
    differences: list[Difference] = field(default_factory=list)

    def differ(self, subject: str, connection: int | None, text: str) -> None:
        """One more difference."""
        self.differences.append(Difference(subject, connection, text))


def check(truth: Mapping[str, Any]) -> None:
    """InputInvalid when this is no truth that can be read."""
    if truth.get("schema") != SCHEMA_VERSION or truth.get("kind") not in KINDS:
        raise InputInvalid(
            f"no truth of schema {SCHEMA_VERSION} and kind {', '.join(KINDS)}: schema {truth.get('schema')!r}, "
            f"kind {truth.get('kind')!r}"
        )


def tap_of(truth: Mapping[str, Any], file_name: str) -> str | None:
    """Beside which host a capture of that name was taken; None when the truth names no such file."""
    captures = truth.get("captures", {})
    if file_name == captures.get("initiator"):
        return "initiator"
    names = captures.get("targets", [])
    return _target_tap(names.index(file_name)) if file_name in names else None


def _target_tap(place: int) -> str:
    return "target" if place == 0 else f"target-{place + 1}"


@dataclass(frozen=True)
class Tables:
    """What is known of a capture."""

    connections: Table
    cycles: Table
    parameters: Table
    segments: Table
    packet_count: int


def compare(tables: Tables, truth: Mapping[str, Any], tap: str | None) -> Agreement:
    """Compares the tables of one capture with its truth.

    ``tap`` says where the capture of a simulation or a run in the lab was taken: ``initiator``, ``target``,
    ``target-2`` ... InputInvalid for a tap that the truth does not have, and for a truth that is none.
    """
    check(truth)
    agreement = Agreement(tap)
    try:
        _Comparison(tables, truth, tap, agreement).run()
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputInvalid(f"the truth is damaged: {type(error).__name__}: {error}") from error
    return agreement


class _Comparison:
    def __init__(self, tables: Tables, truth: Mapping[str, Any], tap: str | None, agreement: Agreement) -> None:
        self._truth = truth
        self._kind: str = truth["kind"]
        self._agreement = agreement
        self._has_taps = self._kind in {"simulation", "run"}
        self._target = self._target_of(tap) if self._has_taps else None
        self._tables = tables
        # of a transfer over bare sockets there are no cycles, and no keys
        self._is_socket = truth.get("results", {}).get("mode") == "socket"
        self._connections = [row for row in tables.connections.rows() if bool(row["is_iscsi"]) != self._is_socket]
        self._targets = self._target_numbers()
        self._streams: dict[End, list[int]] = defaultdict(list)
        for row in self._connections:
            self._streams[self._end(row)].append(row["connection"])
        self._ends = self._initiator_ends()

    def _target_of(self, tap: str | None) -> int | None:
        """Place of the target whose tap it is; None at the initiator's."""
        taps = [_target_tap(place) for place in range(len(self._truth["target_ends"]))]
        if tap == "initiator":
            return None
        if tap not in taps:
            raise InputInvalid(f"tap {tap}; the truth has initiator, {', '.join(taps)}")
        return taps.index(tap)

    def _target_numbers(self) -> dict[str, int]:
        """By address, the number of each target of a run in the real world."""
        if self._kind != "run":
            return {}
        targets = self._truth["results"].get("targets", ())
        return {one["address"].rpartition(":")[0].strip("[]"): number for number, one in enumerate(targets)}

    def _end(self, row: Row) -> End:
        return self._targets.get(row["target_address"], 0), row["initiator_port"]

    def _initiator_ends(self) -> dict[int, End]:
        """The initiator's end of each connection of the truth."""
        if self._kind == "simulation":
            numbers = {one["connection"] for one in self._truth["results"]["connections"]}
            return {number: (0, _FIRST_PORT + number) for number in numbers | set(self._truth["cycles"]["connection"])}
        name = "peer_port" if self._kind == "target" else "own_port"
        ends = {
            end["connection"]: (self._targets.get(end["peer_address"], 0), end[name]) for end in self._truth["ends"]
        }
        # a connection may have been too short for its ports to be seen
        if self._kind == "run":
            return ends | self._ends_by_order(ends)
        unknown = set(self._truth["cycles"].get("connection", ())) - set(ends)
        unclaimed = set(self._streams) - set(ends.values())
        if len(unknown) == len(unclaimed) == 1:
            ends[unknown.pop()] = unclaimed.pop()
        return ends

    def _ends_by_order(self, known: Mapping[int, End]) -> dict[int, End]:
        """Of a run's other connections: truth and capture have those to one target in the order of their opening."""
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
        # other people's initiators do not say what they asked for
        if self._truth["cycles"] is not None:
            self._compare_cycles()
        if "results" in self._truth and not self._is_socket:
            self._compare_parameters()

    def _compare_packets(self) -> None:
        found = self._tables.packet_count
        expected = self._truth["packet_counts"][0 if self._target is None else 1 + self._target]
        if found != expected:
            self._agreement.differ("capture", None, f"has {found} packets, {expected} passed the tap")

    def _compare_losses(self) -> None:
        """What a host sent again passes its own tap; of what the other did, some may have been lost on the way."""
        truth = self._truth
        ends = truth["initiator_ends"] if self._target is None else truth["target_ends"][self._target]
        to_target = self._target is None
        column = f"retransmitted_packets_{'to_target' if to_target else 'to_initiator'}"
        resent = _resent_without_bytes(self._tables.segments, to_target)
        found: dict[End, int] = defaultdict(int)
        answers: dict[End, int] = defaultdict(int)
        for row in self._connections:
            syns, fins = resent[row["connection"]]
            found[self._end(row)] += row[column] + syns + fins
            # a SYN that comes twice is answered twice, and that need not be a retransmission
            answers[self._end(row)] += 0 if to_target else syns
        for each in ends:
            number = (each.get("target", 0) if to_target else self._target or 0) if self._targets else 0
            end, expected = (number, each["initiator_port"]), each["retransmitted_segment_count"]
            self._agreement.loss_count += 1
            # what a kernel sends again after its last sample is not in the truth
            least = 0 if self._kind == "run" else found[end] - answers[end]
            if not least <= expected <= found[end]:
                text = f"{column}, with SYN and FIN, is {found[end]}, the truth has {expected}"
                self._agreement.differ("loss", self._stream(end), text)

    def _stream(self, end: End | None) -> int | None:
        streams = self._streams.get(end, []) if end is not None else []
        return streams[0] if streams else None

    def _compare_cycles(self) -> None:
        expected: dict[tuple[End | None, int], list[Row]] = defaultdict(list)
        for truth in self._truth_rows():
            expected[self._ends.get(truth["connection"]), truth["initiator_task_tag"]].append(truth)
        ends = {row["connection"]: self._end(row) for row in self._connections}
        found: dict[tuple[End | None, int], list[Row]] = defaultdict(list)
        names = ["cycle", "connection", "initiator_task_tag", *_FIELDS[self._kind], *INSTANTS]
        for row in self._tables.cycles.rows(names):
            # the log of an initiator has what its workload asked for
            if self._kind not in {"run", "initiator"} or row["operation"] in _WORKLOAD:
                found[ends.get(row["connection"]), row["initiator_task_tag"]].append(row)
        for key in [*expected, *(key for key in found if key not in expected)]:
            self._compare_tag(*key, found.get(key, []), expected.get(key, []))

    def _truth_rows(self) -> Iterator[Row]:
        """The cycles of the truth that passed the tap, with the names of its columns and of the instants."""
        columns = dict(self._truth["cycles"])
        columns.pop("by_initiator", None)
        if self._kind == "target" and columns:
            columns["operation"] = [_operation(command) for command in columns["command"]]
        if self._kind == "simulation":
            at_initiator, at_target = columns.pop("initiator"), columns.pop("at_target")
            columns |= at_initiator if self._target is None else at_target
            blocks = [target["unit"] for target in self._truth["results"]["targets"]]
            lengths = [unit and unit["block_length_bytes"] for unit in blocks]
            columns["block_size_bytes"] = [
                count * lengths[target] if count is not None and target is not None and lengths[target] else None
                for count, target in zip(columns["block_count"], columns["target"], strict=True)
            ]
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            is_elsewhere = self._target is not None and row["target"] != self._target
            if is_elsewhere or (self._kind == "simulation" and row["command_first_ns"] is None):
                continue
            yield row

    def _compare_tag(self, end: End | None, tag: int, found: Sequence[Row], expected: Sequence[Row]) -> None:
        """The cycles of one Initiator Task Tag on one connection follow each other on either side."""
        if self._kind == "simulation" and len(found) != len(expected):
            # some are missing: those that began at the same time are the same
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
        for name, its in _FIELDS[self._kind].items():
            # what the truth does not know is not compared
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
                    # what holds for a session is spoken of on its leading connection
                    is_silent = one["cid"] > 0 and key["source"] == "default"
                    if one["parameters"] and key["key"] in _KEYS and not is_silent:
                        self._compare_parameter(key, one["parameters"])

    def _compare_parameter(self, row: Row, truth: Row) -> None:
        self._agreement.parameter_count += 1
        sides = ("effective_initiator", "effective_target")
        for side, name in zip(sides, _KEYS[row["key"]], strict=True):
            expected = _spelled(truth[name])
            if row[side] is not None and row[side] != expected:
                text = f"{row['key']}, {side.replace('_', ' ')}: {row[side]}, the truth has {expected}"
                self._agreement.differ("parameter", row["connection"], text)


def _resent_without_bytes(segments: Table, to_target: bool) -> dict[int, list[int]]:
    """SYN and FIN sent again in one direction, by connection: they bring no bytes, so no table counts them."""
    is_control = segments.raw("flags") & (_SYN | _FIN) != 0
    resent: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    seen = set()
    for row in segments.select(is_control).rows(("connection", "to_target", "flags", "segment_class")):
        if row["to_target"] is not to_target or row["segment_class"] in {"retransmission", "copy"}:
            continue
        for place, flag in enumerate((_SYN, _FIN)):
            if row["flags"] & flag:
                key = row["connection"], flag
                resent[row["connection"]][place] += key in seen
                seen.add(key)
    return resent


def _spelled(value: object) -> str:
    """A value as the login spells it."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return str(value)


def _operation(command: str) -> str:
    """T10's name of a command, such as READ(10), as the table cycles names operations."""
    return command.partition("(")[0].strip().lower().replace(" ", "_")
