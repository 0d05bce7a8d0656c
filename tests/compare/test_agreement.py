"""A capture beside the truth of a run: connections found by their ends, commands by tag, losses and parameters.

Tables and truths are made by hand; captures of simulated runs are compared in tests/lab/test_simulate.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.compare import truth as truth_files
from iscsitrace.compare.agreement import Agreement, Tables, compare
from iscsitrace.errors import InputInvalid
from tests.support.tables_by_hand import table

FIRST, SECOND = "10.0.0.2", "fd00::2"


def connection(number: int, port: int, address: str = FIRST, **columns: Any) -> dict[str, Any]:
    row = {"connection": number, "is_iscsi": True, "initiator_port": port, "target_address": address}
    return row | columns


def cycle(number: int, on: int, tag: int, **columns: Any) -> dict[str, Any]:
    row = {"cycle": number, "connection": on, "initiator_task_tag": tag, "operation": "read"}
    return row | {"lba": 8, "block_count": 4, "bytes": 2_048, "status": 0} | columns


def tables(rows: dict[str, list[dict[str, Any]]], packets: int = 0) -> Tables:
    connections, cycles, parameters = (
        table(name, *rows.get(name, [])) for name in ("connections", "cycles", "parameters")
    )
    return Tables(connections, cycles, parameters, packets)


def commands(*rows: tuple[int, int], **columns: list[Any]) -> dict[str, list[Any]]:
    """Commands of the truth, by connection and tag."""
    count = len(rows)
    same = {"operation": "read", "lba": 8, "block_count": 4, "bytes": 2_048, "status": 0, "target": 0}
    found = {"connection": [row[0] for row in rows], "initiator_task_tag": [row[1] for row in rows]}
    return found | {name: [value] * count for name, value in same.items()} | columns


def real_run(**parts: Any) -> dict[str, Any]:
    """Two targets; the initiator's tap saw 10 packets, the targets' 6 and 4."""
    return {
        "schema": 1,
        "kind": "run",
        "results": {"targets": [{"address": f"{FIRST}:3260"}, {"address": f"[{SECOND}]:3260"}], "connections": []},
        "ends": [],
        "packet_counts": [10, 6, 4],
        "initiator_ends": [],
        "target_ends": [[], []],
        "cycles": None,
    } | parts


def told(found: Agreement) -> list[tuple[str, int | None, str]]:
    return [(each.subject, each.connection, each.text) for each in found.differences]


@pytest.mark.parametrize(("tap", "packets"), [("initiator", 10), ("target", 6), ("target-2", 4)])
def test_each_tap_has_its_own_count_of_packets(tap: str, packets: int) -> None:
    assert told(compare(tables({}, packets), real_run(), tap)) == []
    text = f"has {packets + 1} packets, {packets} passed the tap"
    assert told(compare(tables({}, packets + 1), real_run(), tap)) == [("capture", None, text)]


def test_a_tap_that_is_not_there_is_said() -> None:
    with pytest.raises(InputInvalid, match=r"^unknown tap target-3; the truth has initiator, target, target-2$"):
        compare(tables({}), real_run(), "target-3")


LOSSES = {
    "connections": [
        # to the target 2 with bytes, a SYN and two FINs
        connection(
            5,
            50_000,
            retransmitted_packets_to_target=2,
            retransmitted_packets_to_initiator=1,
            retransmitted_syns_to_target=1,
            retransmitted_fins_to_target=2,
        ),
        connection(
            6,
            50_000,
            SECOND,
            retransmitted_packets_to_target=1,
            retransmitted_packets_to_initiator=4,
            retransmitted_syns_to_initiator=1,
        ),
    ],
}


def end(count: int, target: int = 0) -> dict[str, int]:
    return {"initiator_port": 50_000, "target": target, "retransmitted_segment_count": count}


def test_a_kernel_may_retransmit_more_than_it_has_told_but_not_less() -> None:
    def losses(tap: str, *counts: int) -> list[tuple[str, int | None, str]]:
        ends = [end(count, target) for target, count in enumerate(counts)]
        parts = {"initiator_ends": ends, "target_ends": [ends[:1], ends[1:]]}
        found = compare(tables(LOSSES), real_run(**parts, packet_counts=[0, 0, 0]), tap)
        assert found.loss_count == (2 if tap == "initiator" else 1)
        return told(found)

    column = "retransmitted_packets_to_target, with SYN and FIN, is"
    # 2 with bytes, one SYN and two FINs again
    assert losses("initiator", 5, 1) == losses("initiator", 0, 0) == []
    assert losses("initiator", 6, 2) == [
        ("loss", 5, f"{column} 5, the truth has 6"),
        ("loss", 6, f"{column} 1, the truth has 2"),
    ]
    assert losses("target", 1, 99) == losses("target-2", 99, 5) == []
    assert [each[1] for each in losses("target", 2, 0) + losses("target-2", 0, 6)] == [5, 6]


@pytest.mark.parametrize(("count", "is_alike"), [(3, False), (4, True), (5, True), (6, False)])
def test_a_simulation_counts_all_losses_but_second_answers_to_a_syn(count: int, is_alike: bool) -> None:
    """At the target: four with bytes, and a SYN twice, whose second answer need not be a retransmission."""
    rows = {
        "connections": [connection(6, 50_000, retransmitted_packets_to_initiator=4, retransmitted_syns_to_initiator=1)],
    }
    nothing: dict[str, Any] = {"connection": [], "target": [], "block_count": [], "initiator": {}, "at_target": {}}
    truth = {
        "schema": 1,
        "kind": "simulation",
        "results": {"targets": [], "connections": []},
        "packet_counts": [0, 0],
        "initiator_ends": [],
        "target_ends": [[end(count)]],
        "cycles": nothing,
    }
    assert (told(compare(tables(rows), truth, "target")) == []) is is_alike


def initiator(**parts: Any) -> dict[str, Any]:
    ends = [{"connection": 0, "peer_address": FIRST, "own_port": 50_000, "peer_port": 3_260}]
    return {"schema": 1, "kind": "initiator", "ends": ends, "cycles": commands((0, 7), (0, 8))} | parts


def test_commands_are_found_by_port_and_tag_in_order() -> None:
    capture = tables(
        {
            "connections": [connection(5, 50_000), connection(6, 50_001)],
            "cycles": [cycle(0, 5, 8), cycle(1, 5, 7), cycle(2, 5, 9, operation="inquiry"), cycle(3, 5, 7)],
        }
    )
    truth = initiator(cycles=commands((0, 7), (0, 7), (0, 8), lba=[8, 8, 16]))
    found = compare(capture, truth, None)
    assert told(found) == [("cycle", 5, "cycle 0: lba is 8, the truth has 16")]
    # of five values each
    assert (found.cycle_count, found.value_count, found.parameter_count, found.loss_count) == (3, 15, 0, 0)


def test_a_command_that_one_side_lacks_is_named() -> None:
    capture = tables(
        {"connections": [connection(5, 50_000)], "cycles": [cycle(0, 5, 7), cycle(1, 5, 7), cycle(2, 5, 0x1F)]}
    )
    truth = initiator(cycles=commands((0, 7), (0, 8), (3, 9), (4, 9), operation=["read", "write", None, "read"]))
    assert told(compare(capture, truth, None)) == [
        ("cycle", 5, "cycle 1, Initiator Task Tag 0x00000007: not in the truth"),
        ("cycle", 5, "Initiator Task Tag 0x00000008, write: not in the capture (initiator's port 50000)"),
        (
            "cycle",
            None,
            "Initiator Task Tag 0x00000009, no operation of the workload: not in the capture "
            "(a connection without known ports)",
        ),
        (
            "cycle",
            None,
            "Initiator Task Tag 0x00000009, read: not in the capture (a connection without known ports)",
        ),
        ("cycle", 5, "cycle 2, Initiator Task Tag 0x0000001f: not in the truth"),
    ]


def test_values_that_the_truth_lacks_are_not_compared() -> None:
    capture = tables({"connections": [connection(5, 50_000)], "cycles": [cycle(0, 5, 7)]})
    found = compare(capture, initiator(cycles=commands((0, 7), lba=[None], status=[None])), None)
    assert (told(found), found.value_count) == ([], 3)


def test_the_only_connection_without_known_ports_is_the_only_one_left() -> None:
    capture = tables(
        {"connections": [connection(5, 50_000), connection(6, 50_001)], "cycles": [cycle(0, 5, 7), cycle(1, 6, 8)]}
    )
    truth = initiator(cycles=commands((0, 7), (1, 8)))
    assert told(compare(capture, truth, None)) == []
    more = tables(
        {
            "connections": [connection(number, 50_000 + number - 5) for number in (5, 6, 7)],
            "cycles": [cycle(0, 5, 7), cycle(1, 6, 8)],
        }
    )
    assert len(told(compare(more, truth, None))) == 2
    # which of two belongs to which is unknown
    both = initiator(cycles=commands((0, 7), (1, 8), (2, 8)))
    assert len(told(compare(more, both, None))) == 3


def test_a_target_names_commands_as_t10_does_and_knows_its_peer_s_port() -> None:
    cycles = commands((0, 7), command=["READ(10)"]) | {
        "expected_data_transfer_length": [2_048],
        "transferred_bytes": [2_048],
        "r2t_count": [0],
    }
    del cycles["operation"]
    ends = [{"connection": 0, "peer_address": "10.0.0.1", "own_port": 3_260, "peer_port": 50_000}]
    capture = tables({"connections": [connection(5, 50_000)], "cycles": [cycle(0, 5, 7, data_bytes=2_048)]})
    found = compare(capture, {"schema": 1, "kind": "target", "ends": ends, "cycles": cycles}, None)
    assert (told(found), found.value_count) == ([], 7)
    assert truth_files._operation("TEST UNIT READY") == "test_unit_ready"


PARAMETERS = {names[0]: 8_192 for names in truth_files.KEYS.values()} | {
    "target_max_recv_data_segment_length": 4_096,
    "initial_r2t": True,
    "immediate_data": False,
}


def parameter(on: int, key: str, one: str | None, other: str | None, source: str = "negotiated") -> dict[str, Any]:
    return {"connection": on, "key": key, "effective_initiator": one, "effective_target": other, "source": source}


def test_parameters_are_spelled_as_in_a_login() -> None:
    opened = [
        {"connection": 0, "target": 0, "cid": 0, "parameters": PARAMETERS},
        {"connection": 1, "target": 0, "cid": 1, "parameters": PARAMETERS},
        {"connection": 2, "target": 1, "cid": 0, "parameters": PARAMETERS},
    ]
    results = real_run()["results"] | {"connections": opened}
    capture = tables(
        {
            "connections": [connection(5, 50_000), connection(6, 50_001), connection(7, 50_000, SECOND)],
            "parameters": [
                parameter(5, "MaxRecvDataSegmentLength", "8192", "4096", "declared"),
                parameter(5, "InitialR2T", "Yes", "Yes"),
                parameter(5, "ImmediateData", "No", None),
                parameter(5, "MaxBurstLength", "8192", "8193"),
                parameter(5, "TargetName", "a", "b"),
                # negotiated on the leading connection
                parameter(6, "MaxBurstLength", "1", "1", "default"),
                parameter(6, "FirstBurstLength", "1", "8192"),
                # not beside the first target
                parameter(7, "MaxBurstLength", "1", "1"),
            ],
        },
        packets=6,
    )
    found = compare(capture, real_run(results=results), "target")
    assert told(found) == [
        ("parameter", 5, "MaxBurstLength, effective target: 8193, the truth has 8192"),
        ("parameter", 6, "FirstBurstLength, effective initiator: 1, the truth has 8192"),
    ]
    assert found.parameter_count == 5


def test_connections_of_a_run_without_ports_are_in_order_of_opening() -> None:
    opened = [
        {"connection": number, "target": target, "cid": 0, "parameters": None}
        for number, target in ((2, 0), (0, 0), (1, 1))
    ]
    results = real_run()["results"] | {"connections": opened}
    capture = tables(
        {
            "connections": [connection(5, 50_007, SECOND), connection(6, 50_009), connection(7, 50_003)],
            "cycles": [cycle(0, 5, 1), cycle(1, 6, 2), cycle(2, 7, 3), cycle(3, 7, 4, operation="inquiry")],
        },
        packets=10,
    )
    truth = real_run(results=results, cycles=commands((1, 1), (0, 2), (2, 3), target=[1, 0, 0]))
    assert told(compare(capture, truth, "initiator")) == []
    # the commands of the other target did not pass this tap
    beside_first = tables(
        {
            "connections": [connection(6, 50_009), connection(7, 50_003)],
            "cycles": [cycle(1, 6, 2), cycle(2, 7, 3)],
        },
        packets=6,
    )
    assert told(compare(beside_first, truth, "target")) == []


def simulation(starts: list[int | None], **columns: list[Any]) -> dict[str, Any]:
    """Reads of tag 7 on connection 0; at the target every instant is 5 ns later."""
    count = len(starts)
    cycles = commands(*[(0, 7)] * count, data_pdu_count=[1] * count, r2t_count=[0] * count) | columns
    at = {
        name: {
            instant: [None if start is None else start + later + place for start in starts]
            for place, instant in enumerate(truth_files.INSTANTS)
        }
        for name, later in (("initiator", 0), ("at_target", 5))
    }
    return {
        "schema": 1,
        "kind": "simulation",
        "results": {"targets": [{"unit": {"block_length_bytes": 512}}], "connections": []},
        "packet_counts": [0, 0],
        "initiator_ends": [],
        "target_ends": [[]],
        "cycles": cycles | at,
    }


def simulated_cycle(number: int, start: int, **columns: Any) -> dict[str, Any]:
    instants = {name: start + place for place, name in enumerate(truth_files.INSTANTS)}
    return cycle(number, 5, 7, data_bytes=2_048, data_pdu_count=1) | instants | columns


def test_of_a_simulation_every_instant_is_equal_at_its_tap() -> None:
    def found(tap: str, *starts: int, **columns: Any) -> Agreement:
        cycles = [simulated_cycle(number, start, **columns) for number, start in enumerate(starts)]
        capture = tables({"connections": [connection(5, truth_files.FIRST_PORT)], "cycles": cycles})
        return compare(capture, simulation([100, 200, 300]), tap)

    agreed = found("initiator", 100, 200, 300)
    # eight fields and seven instants of each
    assert (told(agreed), agreed.cycle_count, agreed.value_count) == ([], 3, 45)
    assert told(found("target", 105, 205, 305)) == []
    late = [each[2] for each in told(found("initiator", 100, 200, 300, status_ns=106))]
    assert late == [
        "cycle 1: status_ns is 106, the truth has 206",
        "cycle 2: status_ns is 106, the truth has 306",
    ]
    # one is missing: the others are still found by their time
    (missing,) = told(found("initiator", 100, 300))
    assert missing == ("cycle", 5, "Initiator Task Tag 0x00000007, read: not in the capture (initiator's port 40000)")
    both = found("initiator", 100, 300)
    assert (both.cycle_count, both.value_count) == (2, 30)
    wrong = found("initiator", 100, 300, status=2)
    assert [each[2] for each in told(wrong)][:2] == [
        "cycle 0: status is 2, the truth has 0",
        "cycle 1: status is 2, the truth has 0",
    ]
    (added,) = told(found("initiator", 100, 150, 200, 300))
    assert added == ("cycle", 5, "cycle 1, Initiator Task Tag 0x00000007: not in the truth")


def test_connections_of_a_simulation_have_ports_in_order() -> None:
    truth = simulation([100, 200], connection=[0, 2])
    connections = [connection(5, truth_files.FIRST_PORT), connection(6, truth_files.FIRST_PORT + 2)]
    cycles = [simulated_cycle(0, 100), simulated_cycle(1, 200) | {"connection": 6}]
    found = compare(tables({"connections": connections, "cycles": cycles}), truth, "initiator")
    assert (told(found), found.cycle_count) == ([], 2)


def test_commands_that_did_not_pass_the_tap_and_sizes_without_a_unit_are_not_compared() -> None:
    truth = simulation([100, None], block_count=[4, None])
    capture = tables({"connections": [connection(5, 40_000)], "cycles": [simulated_cycle(0, 100)]})
    assert told(compare(capture, truth, "initiator")) == []
    without_unit = truth | {"results": {"targets": [{"unit": None}], "connections": []}}
    found = compare(capture, without_unit, "initiator")
    assert (told(found), found.value_count) == ([], 14)


@pytest.mark.parametrize("truth", [{"schema": 2, "kind": "run"}, {"schema": 1, "kind": "other"}, {}])
def test_what_is_no_truth_is_said(truth: dict[str, Any]) -> None:
    with pytest.raises(InputInvalid, match="not a truth of schema 1 and kind simulation, run, initiator, target: "):
        compare(tables({}), truth, None)


def test_a_damaged_truth_is_said() -> None:
    with pytest.raises(InputInvalid, match=r"^the truth is damaged: KeyError: 'ends'$"):
        compare(tables({}), {"schema": 1, "kind": "initiator", "cycles": {}}, None)


def test_the_tap_of_a_capture_is_that_of_its_name() -> None:
    truth = {"captures": {"initiator": "a.pcap", "targets": ["b.pcap", "c.pcap"]}}
    names = ("a.pcap", "b.pcap", "c.pcap", "d.pcap")
    assert [truth_files.tap_of(truth, name) for name in names] == ["initiator", "target", "target-2", None]
    assert truth_files.tap_of({}, "a.pcap") is None


MS = 1_000_000


def called(*rows: tuple[str, int, int, int], **parts: Any) -> dict[str, Any]:
    """A run of a program: operation, offset, bytes and latency in ms of each call, in the order of completion."""
    names = ("operation", "offset", "bytes", "latency_ns")
    columns = {
        name: [row[place] * (MS if name == "latency_ns" else 1) for row in rows] for place, name in enumerate(names)
    }
    return real_run(commands={"block_bytes": 512, **columns}, **parts)


def took(number: int, lba: int, size: int, ms: float, **columns: Any) -> dict[str, Any]:
    return cycle(number, 0, number, lba=lba, bytes=size, command_first_ns=0, status_ns=int(ms * MS), **columns)


def test_a_program_waits_at_least_as_long_as_its_command_takes() -> None:
    rows = [took(0, 0, 1024, 4), took(1, 2, 1024, 5), took(2, 4, 1024, 6, operation="write")]
    capture = tables({"connections": [connection(0, 50_000)], "cycles": rows}, 10)
    found = compare(
        capture, called(("read", 0, 1024, 5), ("read", 1024, 1024, 5), ("write", 2048, 1024, 5)), "initiator"
    )
    assert told(found) == [("cycle", 0, "cycle 2 takes 6000000 ns, the program waited 5000000 ns")]
    assert (found.cycle_count, found.value_count) == (3, 3)
    # from the last one on
    assert found.host_times_ns == [-MS, 0, MS]


def test_a_call_may_be_several_commands_after_others_at_the_same_place() -> None:
    # the kernel looks for partitions first
    rows = [took(0, 0, 4096, 50), took(1, 0, 1024, 4), took(2, 2, 1024, 5)]
    capture = tables({"connections": [connection(0, 50_000)], "cycles": rows}, 10)
    assert told(compare(capture, called(("read", 0, 2048, 6)), "initiator")) == []
    found = compare(capture, called(("read", 0, 3072, 6)), "initiator")
    assert told(found) == [("cycle", None, "read of 3072 bytes at byte 0: not in the capture")]


def test_a_command_of_the_whole_call_is_its_own() -> None:
    # another initiator looks for partitions meanwhile
    rows = [took(0, 0, 2048, 4), took(1, 0, 1024, 50)]
    capture = tables({"connections": [connection(0, 50_000)], "cycles": rows}, 10)
    assert told(compare(capture, called(("read", 0, 2048, 6)), "initiator")) == []


def test_at_a_target_and_of_an_array_no_latency_is_compared() -> None:
    capture = tables({"connections": [connection(0, 50_000)], "cycles": [took(0, 0, 1024, 4)]}, 6)
    found = compare(capture, called(("read", 0, 1024, 1)), "target")
    assert (told(found), found.cycle_count, found.value_count, found.host_times_ns) == ([], 1, 0, [])
    of_array = called(("read", 9999, 1024, 1))
    of_array["commands"]["block_bytes"] = None
    assert compare(capture, of_array, "target").cycle_count == 0


def test_a_kernel_does_not_report_every_key() -> None:
    keys = [
        {"connection": 5, "key": key, "source": "negotiated", "effective_initiator": value, "effective_target": value}
        for key, value in (("MaxBurstLength", "262144"), ("DefaultTime2Wait", "2"))
    ]
    one = {"connection": 0, "cid": 0, "target": 0, "parameters": {"max_burst_length": 65_536}}
    targets = [{"address": f"{FIRST}:3260"}, {"address": f"[{SECOND}]:3260"}]
    truth = real_run(
        results={"targets": targets, "connections": [one]},
        ends=[{"connection": 0, "peer_address": FIRST, "own_port": 50_000}],
    )
    capture = tables({"connections": [connection(5, 50_000)], "parameters": keys}, 10)
    found = compare(capture, truth, "initiator")
    assert told(found) == [
        ("parameter", 5, f"MaxBurstLength, effective {side}: 262144, the truth has 65536")
        for side in ("initiator", "target")
    ]
    assert found.parameter_count == 2
