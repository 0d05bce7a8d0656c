"""The chapter on a session: its peers, key figures and parts, from tables made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from iscsitrace.diagnosis.headline import Headline
from iscsitrace.diagnosis.opinions import Opinion
from iscsitrace.diagnosis.subject import of_session
from iscsitrace.findings.finding import Advice, AdviceGain, Finding
from iscsitrace.measure.budget import PARTS, Budget
from iscsitrace.report.chapters import opening
from iscsitrace.show.diagnose import Remedies
from iscsitrace.show.document import Findings, FoundProblem, Opening
from tests.support.tables_by_hand import MS, table

NAMES = {"initiator_name": "host", "target_name": "disk"}


def _told(said: Remedies, finding: Finding, *sessions: int) -> FoundProblem:
    (found,) = said.told([finding], f"session {sessions[0]}", sessions).every
    return found


def test_a_finding_has_a_step_for_each_advice_with_its_gains() -> None:
    first, second = Advice("Do this."), Advice("Do that.")
    problem: Any = SimpleNamespace(name="odd", rank="failure", advice=(first, second))
    gains = (
        AdviceGain("queue depth 8", 2.0, 2.0, 2.2, second),
        AdviceGain("queue depth 9", 5.0, 2.0, 2.21, second),
    )
    said = Remedies()
    lost = Finding(problem, "data_loss", 0.25, "Bytes are missing.", (4, 9), 2.5e9, predict=lambda _: gains)
    found = _told(said, lost, 2)
    assert (found.name, found.severity, found.cost, found.text) == (
        "odd",
        "data loss",
        "2.5 s lost",
        "Bytes are missing.",
    )
    assert [(step.advice, step.notes) for step in found.steps] == [
        ("Do this.", ""),
        ("Do that.", "model: up to 2.0x with queue depth 8, about 5.0x (2.0x to 2.2x) with queue depth 9"),
    ]
    assert found.display_filter == "frame.number in {4, 9}"
    bare = _told(said, Finding(problem, "info", None, "Text.", ()), 3)
    assert (bare.cost, bare.display_filter) == ("", "")
    assert [step.advice for step in bare.steps] == ["See odd of session 2."]


def test_a_share_in_a_story_is_that_of_its_session() -> None:
    def cost(*sessions: int, rank: str = "slowness", whole: tuple[int, ...] = (0, 1)) -> str:
        problem: Any = SimpleNamespace(name="odd", rank=rank, advice=())
        finding = Finding(problem, "info", 0.5, "text", (), 2e9, sessions=sessions)
        return _told(Remedies(), finding, *whole).whole_cost

    assert cost(1) == "50 % of the time of session 1"
    assert cost(0, 1) == cost(1, whole=(1,)) == "50 % of the time"
    assert cost(1, rank="failure") == "2.0 s lost"


def chapter(
    connections: list[dict[str, Any]],
    cycles: list[dict[str, Any]] | None = None,
    senders: list[dict[str, Any]] | None = None,
    time: Budget | None = None,
    names: dict[str, Any] | None = None,
    number: int = 2,
) -> Opening:
    """Of session 2; connections and commands belong to it where they do not say otherwise."""
    addresses = {"initiator_address": "10.0.0.1", "target_address": "10.0.0.2", "target_port": 3260}
    rows = [{"session": 2, "initiator_port": 1_000 + row["connection"]} | addresses | row for row in connections]
    trace: Any = SimpleNamespace(
        connections=table("connections", *rows),
        sessions=table("sessions", {"session": 9}, {"session": number} | (NAMES if names is None else names)),
        cycles=table("cycles", *({"session": 2, "connection": 3} | row for row in cycles or [])),
        senders=table("senders", *senders or []),
        task_management=table("task_management"),
    )
    subject = of_session(Opinion(number, Headline("Slow."), time, Mock(), []))
    return opening(trace, subject, Findings(()))


def facts(*arguments: Any, **options: Any) -> dict[str, tuple[str, str]]:
    return {fact.name: (fact.value, fact.meaning) for fact in chapter(*arguments, **options).facts}


def read(number: int, latency_ms: int, **columns: Any) -> dict[str, Any]:
    """Reads begin 30 ms apart."""
    start = number * 30 * MS
    times = {"command_first_ns": start, "command_last_ns": start, "status_ns": start + latency_ms * MS}
    kind = {"operation": "read", "is_read": True, "bytes": 65_536, "data_bytes": 65_536, "is_complete": True}
    return {"cycle": number, "queue_depth": 1} | times | kind | columns


TWENTY = [read(number, number + 1) for number in range(20)]
"""They take 1 to 20 ms, 210 ms in all."""


def budget(**parts_ns: int) -> Budget:
    """A breakdown whose think time is no busy time."""
    idle_ns = parts_ns.pop("initiator_think", 0)
    return Budget(dict.fromkeys(PARTS, 0) | parts_ns, {"initiator_think": idle_ns}, {"idle": idle_ns})


@pytest.mark.parametrize(("count", "more"), [(2, ""), (3, " and 1 more"), (4, " and 2 more")])
def test_two_connections_are_named_and_the_others_counted(count: int, more: str) -> None:
    found = chapter([{"connection": number} for number in range(count)] + [{"connection": 9, "session": 1}])
    ends = "10.0.0.1:1000 to 10.0.0.2:3260, 10.0.0.1:1001 to 10.0.0.2:3260"
    assert found.peers == f"host to disk ({ends}{more})"
    assert (found.label, found.headline) == ("session 2", "Slow.")


def test_a_name_that_the_login_left_open() -> None:
    unknown = {"initiator_name": None, "target_name": None}
    assert chapter([], names=unknown).peers == "names unknown: the login was not captured"
    assert chapter([], names=NAMES | {"initiator_name": None}).peers == "- to disk"


def test_without_commands_and_time_there_are_no_figures() -> None:
    assert facts([{"connection": 3}]) == {}
    assert chapter([{"connection": 3}], time=budget()).breakdowns == ()
    # the time is all idle gaps
    assert facts([{"connection": 3}], time=budget(initiator_think=MS)) == {}


def test_throughput_is_that_of_the_time_with_commands() -> None:
    own = facts([{"connection": 3}], [*TWENTY, read(20, 9, session=1)])
    # 20 x 64 KiB in 210 ms
    assert own["Throughput"] == ("6.2 MB/s read", "while I/O is in flight")
    write = {"operation": "write", "is_read": False, "is_write": True}
    both = facts([{"connection": 3}], [read(0, 10), read(1, 10, **write | {"data_bytes": 200_000})])
    assert both["Throughput"] == ("3.3 MB/s read, 10.0 MB/s written", "while I/O is in flight")


def test_commands_of_no_session_are_those_of_none() -> None:
    for number in (0, 1):
        assert facts([{"connection": 3, "session": number}], [read(0, 10, session=None)], number=number) == {}


def test_the_line_rate_is_that_of_the_direction_with_most_bytes() -> None:
    connections = [
        {"connection": 3, "stream_bytes_to_target": 5, "stream_bytes_to_initiator": 6},
        {"connection": 4, "stream_bytes_to_target": 9, "stream_bytes_to_initiator": 1},
        {"connection": 5, "session": 1, "stream_bytes_to_target": 99},
    ]
    rates = {(3, True): 10, (3, False): 20, (4, True): 30, (4, False): 40, (5, True): 50}
    senders = [
        {"connection": number, "to_target": to_target, "line_bytes_per_s": rate * 1_000_000}
        for (number, to_target), rate in rates.items()
    ]
    assert facts(connections, TWENTY, senders)["Throughput"][1] == "line rate 30.0 MB/s"
    assert facts(connections[:1], TWENTY, senders)["Throughput"][1] == "line rate 20.0 MB/s"


def test_idle_is_the_busy_time_without_data() -> None:
    time = budget(transfer=25, propagation=75, initiator_think=900)
    found = chapter([{"connection": 3}], time=time)
    assert [(fact.name, fact.value) for fact in found.facts] == [("Line idle", "75 %")]
    (parts,) = found.breakdowns
    assert [(part.name, part.share, part.is_limiter) for part in parts.parts] == [
        ("transfer", 0.25, False), ("network RTT", 0.75, True),
    ]  # fmt: skip
    assert [row[2:] for row in parts.grid.rows] == [("0.000", "25"), ("0.000", "75")]
    assert [row[1:] for row in parts.short.rows] == [("0.000", "25"), ("0.000", "75")]
    (line,) = chapter([], time=budget(transfer=51, propagation=49)).breakdowns
    assert [part.is_limiter for part in line.parts] == [True, False]


def test_sizes_are_those_of_complete_transfers_and_all_count() -> None:
    others = [
        read(0, 1, is_complete=False), read(0, 1, data_bytes=0), read(0, 1, operation="inquiry", is_read=False),
    ]  # fmt: skip
    found = facts([{"connection": 3}], TWENTY + others)
    assert found["Workload"] == ("64 KiB reads", "queue depth 1, medians by bytes; 22 reads and writes")
    # nearest rank: the 10th, the 19th and the 20th; of 20 the 99th percentile is the maximum
    assert found["Latency"] == (
        "10.0 ms p50",
        "p95 19.0 ms, max 20.0 ms; 20 of 22 reads and writes: the others are not complete in the capture",
    )  # fmt: skip
    # one without a status, sent at 3 s, when the connection was closed at 4 s
    closed = {"connection": 3, "time_last_ns": 4_000 * MS, "fin_to_target_ns": 4_000 * MS}
    hung = facts([closed], [*TWENTY, read(100, 0, status_ns=None, is_complete=False, data_bytes=0)])
    assert hung["Latency"] == ("11.0 ms p50", "p95 20.0 ms, max > 1.0 s; n 21")


def test_retransmissions_of_both_directions_are_a_share_of_all_packets() -> None:
    connections = [
        {"connection": 3, "retransmitted_packets_to_target": 1, "packets_to_target": 30, "packets_to_initiator": 50},
        {"connection": 4, "retransmitted_packets_to_initiator": 4, "packets_to_target": 15, "packets_to_initiator": 5},
    ]
    assert facts(connections)["Retransmissions"] == ("5 packets", "5 % of packets")
    assert facts(connections[:1])["Retransmissions"] == ("1 packet", "1 % of packets")


@pytest.mark.parametrize(
    ("to_initiator_ms", "to_target_ms", "shown"),
    [
        (0, 8, ("8.0 ms", "minimum; tap near the initiator")),
        (7, 1, ("8.0 ms", "minimum; tap near the target")),
        (3, 5, ("8.0 ms", "minimum; tap between the hosts")),
        (None, 8, None),
        (8, None, None),
    ],
)
def test_the_round_trip_and_the_tap(
    to_initiator_ms: int | None, to_target_ms: int | None, shown: tuple[str, str] | None
) -> None:
    sides = {"rtt_to_initiator_min_ns": to_initiator_ms, "rtt_to_target_min_ns": to_target_ms}
    row = {name: None if time_ms is None else time_ms * MS for name, time_ms in sides.items()}
    assert facts([{"connection": 3} | row]).get("RTT") == shown


def test_the_round_trip_is_that_of_the_connection_with_most_bytes() -> None:
    def connection(number: int, rtt_ms: int, to_target: int, to_initiator: int) -> dict[str, Any]:
        carried = {"stream_bytes_to_target": to_target, "stream_bytes_to_initiator": to_initiator}
        return {"connection": number, "rtt_to_initiator_min_ns": 0, "rtt_to_target_min_ns": rtt_ms * MS} | carried

    assert facts([connection(3, 1, 9, 0), connection(4, 2, 5, 5), connection(5, 3, 0, 8)])["RTT"][0] == "2.0 ms"
    assert facts([connection(3, 1, 5, 5), connection(4, 2, 9, 2)])["RTT"][0] == "2.0 ms"
