"""Captures of one traffic at two taps, with faults of clocks and captures, and the true legs of each command.

The simulation stamps both taps with one clock, so each fault added here is known exactly. The truth has the instants of
a command at both taps, and of its R2Ts those of the first.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.support.capture_file import Record, read_records, write_pcapng
from tests.support.tap_rewrites import COOKED_LINK_TYPE, IPV4_AT, doubled, merged, through_proxy

SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Fault:
    """What is wrong with one of the two captures."""

    shift_ns: int = 0
    """Its clock less the true time, at the first packet."""
    drift_ppm: float = 0.0
    step_ns: int = 0
    """Its clock is set by this much, after ``step_after`` of the packets."""
    step_after: float = 0.5
    dropped: float = 0.0
    """Share of the packets that the capture lacks."""
    snaplen: int = 0
    first: float = 0.0
    last: float = 1.0
    """Which part of the packets it has."""
    is_translated: bool = False
    """Behind NAT: the initiator has another address and port."""
    sequence_shift: int = 0
    """Behind a proxy that terminates TCP: its sequence numbers are its own."""
    is_recut: bool = False
    """Behind a proxy that cuts segments and data PDUs anew."""
    is_merged: bool = False
    """Offload: successive segments are one packet."""
    is_doubled: bool = False
    """From the ``any`` device of a bridge: every packet twice."""
    seed: int = 1


@lru_cache(maxsize=4)
def _records_of(source: Path) -> tuple[list[Record], int]:
    """Read once for the many faults of a run."""
    return read_records(source)


def with_fault(source: Path, file: Path, fault: Fault) -> Path:
    """The capture with that fault."""
    records, link_type = _records_of(source)
    if fault.is_recut:
        records = through_proxy(records)
    if fault.is_merged:
        records = merged(records)
    begin = records[0].time_ns
    chance = random.Random(fault.seed)  # noqa: S311 (repeatable, not secret)
    kept = []
    for place, record in enumerate(records):
        share = place / len(records)
        if not fault.first <= share <= fault.last or chance.random() < fault.dropped:
            continue
        time_ns = clock_of(fault, record.time_ns, begin, has_step=share >= fault.step_after)
        data = translated(record.data) if fault.is_translated else record.data
        data = renumbered(data, fault.sequence_shift) if fault.sequence_shift else data
        kept.append(Record(time_ns, data[: fault.snaplen] if fault.snaplen else data, record.original_length))
    if fault.is_doubled:
        kept, link_type = doubled(kept), COOKED_LINK_TYPE
    return write_pcapng(file, kept, link_type)


def clock_of(fault: Fault, time_ns: int, begin_ns: int, *, has_step: bool) -> int:
    """What a clock with that fault shows at a true time."""
    drift = round((time_ns - begin_ns) * fault.drift_ppm / 1e6)
    return time_ns + fault.shift_ns + drift + (fault.step_ns if has_step else 0)


def translated(data: bytes) -> bytes:
    """The packet behind NAT: the initiator is 203.0.113.7, its port 1000 higher.

    Checksums are not made again: captures of hosts that leave them to the network card have wrong ones, too.
    """
    changed = bytearray(data)
    head = IPV4_AT + (data[IPV4_AT] & 15) * 4
    for address, port in ((IPV4_AT + 12, head), (IPV4_AT + 16, head + 2)):
        number = struct.unpack_from(">H", data, port)[0]
        if number != 3260:
            changed[address : address + 4] = bytes((203, 0, 113, 7))
            struct.pack_into(">H", changed, port, number + 1000)
    return bytes(changed)


def renumbered(data: bytes, shift: int) -> bytes:
    """The packet with other sequence numbers: to the target by ``shift``, to the initiator by twice as much."""
    changed = bytearray(data)
    head = IPV4_AT + (data[IPV4_AT] & 15) * 4
    own, other = (shift, 2 * shift) if struct.unpack_from(">H", data, head + 2)[0] == 3260 else (2 * shift, shift)
    sequence, acknowledged = struct.unpack_from(">II", data, head + 4)
    struct.pack_into(">II", changed, head + 4, (sequence + own) % (1 << 32), (acknowledged + other) % (1 << 32))
    return bytes(changed)


@dataclass(frozen=True)
class TrueLegs:
    """The legs of one command with one R2T at most."""

    initiator_ns: int
    to_target_ns: int
    target_ns: int
    to_initiator_ns: int


def true_legs(folder: Path) -> list[TrueLegs | None]:
    """The legs of each command of a simulated run, in the order of issue; None where the truth does not have them."""
    cycles = json.loads((folder / "truth.json").read_text())["cycles"]
    return [_legs(each) for each in _rows(cycles)]


def _rows(cycles: dict[str, Any]) -> Iterator[dict[str, Any]]:
    flat = {name: values for name, values in cycles.items() if not isinstance(values, dict)}
    for place in range(len(flat["operation"])):
        row = {name: values[place] for name, values in flat.items()}
        for side in ("initiator", "at_target"):
            row[side] = {name: values[place] for name, values in cycles[side].items()}
        yield row


def _legs(row: dict[str, Any]) -> TrueLegs | None:
    near, far = row["initiator"], row["at_target"]
    if near["status_ns"] is None or row["r2t_count"] > 1:
        return None
    back = near["status_ns"] - far["status_ns"]
    command = far["command_last_ns"] - near["command_last_ns"]
    sent = near["command_last_ns"] - near["command_first_ns"]
    if row["operation"] != "write" or near["data_last_ns"] is None:
        return TrueLegs(sent, command, far["status_ns"] - far["command_last_ns"], back)
    data = far["data_last_ns"] - near["data_last_ns"]
    service = far["status_ns"] - far["data_last_ns"]
    if row["r2t_count"] == 0:
        return TrueLegs(near["data_last_ns"] - near["command_first_ns"], data, service, back)
    granted = far["r2t_first_ns"] - far["command_last_ns"]
    return TrueLegs(
        sent + near["data_last_ns"] - near["r2t_first_ns"],
        command + data,
        granted + service,
        back + near["r2t_first_ns"] - far["r2t_first_ns"],
    )
