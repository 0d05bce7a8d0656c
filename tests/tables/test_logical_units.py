"""Logical units and reservations: against what sg3-utils printed of them, and against tshark."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from tests.support import tshark
from tests.support.recordings import captures_folder, description_of, recorded_captures

VECTORS = sorted((Path(__file__).parents[1] / "vectors" / "guests").glob("*/*.pcapng.gz"))
FIELDS = tuple(name for name in tshark.PACKET_FIELDS if name.startswith("scsi."))


def variety() -> Path:
    """The capture of many SCSI commands, whose description has the output of each program."""
    for file in recorded_captures():
        if "command-variety" in file.name:
            return file
    pytest.skip("no recorded captures")


def printed(file: Path) -> dict[str, str]:
    """What each program of a capture printed, by its command without the device."""
    description = description_of(file)
    assert description is not None
    steps = json.loads(description.read_text())["io"]
    return {step["cmd"].replace(" /dev/sda", ""): "\n".join(step.get("output") or ()) for step in steps}


def found_in(text: str, pattern: str) -> str:
    """The only group of a pattern."""
    match = re.search(pattern, text)
    assert match, pattern
    return match[1].strip()


def test_a_logical_unit_is_as_sg3_utils_show_it() -> None:
    file = variety()
    output = printed(file)
    (row,) = iscsitrace.read(file, tables=()).logical_units.rows()
    inquiry, page, capacity = output["sg_inq -l 37"], output["sg_vpd -p 0x83"], output["sg_readcap -l"]
    assert row["vendor"] == found_in(inquiry, r"Vendor identification: (.*)")
    assert row["product"] == found_in(inquiry, r"Product identification: (.*)")
    assert row["revision"] == found_in(inquiry, r"Product revision level: (.*)")
    assert (row["peripheral_qualifier"], row["device_type"]) == (0, 0)
    assert row["tpgs"] == int(found_in(inquiry, r"TPGS=(\d)"))
    assert row["designator"] == "naa." + found_in(page, r"0x(6[0-9a-f]{31})")
    assert row["relative_target_port"] == int(found_in(page, r"Relative target port: (0x\w+)"), 16)
    assert row["target_port_group"] == int(found_in(page, r"Target port group: (0x\w+)"), 16)
    assert row["unit_serial_number"] == found_in(page, r"vendor specific: FILEIO:(.*)")
    assert row["block_count"] == int(found_in(capacity, r"Number of logical blocks=(\d+)"))
    assert row["block_bytes"] == int(found_in(capacity, r"Logical block length=(\d+)"))
    exponent = int(found_in(capacity, r"physical block exponent=(\d+)"))
    assert row["physical_block_bytes"] == row["block_bytes"] << exponent
    assert row["lowest_aligned_lba"] == int(found_in(capacity, r"Lowest aligned LBA=(\d+)"))
    limits = output["sg_vpd -p 0xb0"]
    assert row["optimal_granularity_blocks"] == int(found_in(limits, r"transfer length granularity: (\d+) blocks"))


def test_persistent_reservations_are_as_sg_persist_made_them() -> None:
    file = variety()
    cycles = iscsitrace.read(file, tables=()).cycles
    columns = ("operation", "service_action", "reservation_type")
    rows = [row for row in cycles.rows(columns) if "persistent_reserve" in str(row["operation"])]
    # register, reserve (Write Exclusive: 1), clear; read keys, read reservation
    outs = [(row["service_action"], row["reservation_type"]) for row in rows if row["reservation_type"] is not None]
    ins = [row["service_action"] for row in rows if row["reservation_type"] is None]
    programs = [command for command in printed(file) if command.startswith("sg_persist -o")]
    assert [re.findall(r"-([GRC])\b", command) for command in programs] == [["G"], ["R"], ["C"]]
    assert list(dict.fromkeys(outs)) == [(0, 0), (1, 1), (3, 0)]
    assert list(dict.fromkeys(ins)) == [0, 1]


def test_only_operation_codes_with_a_service_action_have_one() -> None:
    file = variety()
    for row in iscsitrace.read(file, tables=()).cycles.rows(("cdb_opcode", "service_action")):
        assert (row["service_action"] is not None) == (row["cdb_opcode"] in {0x5E, 0x5F, 0x9E, 0xA3}), row


def by_tshark(packets: list[dict[str, str]]) -> dict[int, dict[str, set[str]]]:
    """By tcp.stream: every value of each field."""
    found: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for packet in packets:
        for name in FIELDS:
            values = [value for value in packet[name].split("|") if value]
            found[int(packet["tcp.stream"])][name] |= {value.strip("\0 ").replace(":", "") for value in values}
    return found


@pytest.mark.parametrize("file", [*VECTORS, *recorded_captures()], ids=lambda file: f"{file.parent.name}/{file.name}")
def test_identities_are_among_those_that_tshark_shows(file: Path, tshark_packets: tshark.Packets) -> None:
    trace = iscsitrace.read(file, tables=())
    expected = by_tshark(tshark_packets(file))
    streams = defaultdict(set)
    for row in trace.connections.rows(("connection", "session")):
        streams[row["session"]].add(row["connection"])
    for unit in trace.logical_units.rows():
        shown: dict[str, set[str]] = defaultdict(set)
        for stream in streams[unit["session"]]:
            for name, values in expected[stream].items():
                shown[name] |= values
        for column, name in (("vendor", FIELDS[0]), ("product", FIELDS[1]), ("revision", FIELDS[2])):
            assert unit[column] is None or not shown[name] or unit[column] in shown[name], column
        if shown[FIELDS[3]] and unit["unit_serial_number"] is not None:
            assert unit["unit_serial_number"].replace(":", "") in shown[FIELDS[3]]
        if unit["designator"] is not None and shown[FIELDS[5]]:
            digits = unit["designator"].removeprefix("naa.")
            assert int(digits[1:7], 16) in {int(number, 0) for number in shown[FIELDS[4]]}
            assert digits[16:] in shown[FIELDS[5]]
        # what tshark reads of the one logical unit of a session is not missed
        if len([other for other in trace.logical_units.rows() if other["session"] == unit["session"]]) == 1:
            assert (unit["vendor"] is not None) >= bool(shown[FIELDS[0]])


def test_most_recorded_captures_name_their_logical_units() -> None:
    if not captures_folder().is_dir():
        pytest.skip("no recorded captures")
    units: list[dict[str, Any]] = [
        row for file in recorded_captures() for row in iscsitrace.read(file, tables=()).logical_units.rows()
    ]
    named = [row for row in units if row["designator"] is not None]
    assert len(named) > 30
    assert {str(row["vendor"]) for row in named} >= {"LIO-ORG", "IET"}
    assert all(re.fullmatch(r"naa\.[0-9a-f]{32}", str(row["designator"])) for row in named)
