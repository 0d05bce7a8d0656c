"""The verdicts of sessions by initiator, target, LUN, volume and hour: by hand, and sums that must be kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.cli.options import COMMAND_ATTRIBUTES, SESSION_ATTRIBUTES
from iscsitrace.diagnosis import verdict_groups
from iscsitrace.diagnosis.examination import examine
from iscsitrace.diagnosis.verdict_groups import ELSEWHERE, Group, VerdictGroups
from iscsitrace.findings import NEEDED
from iscsitrace.relate.loads import NAMES
from tests.relate.test_volumes import NAA, Host
from tests.support.capture_file import write_pcap
from tests.support.conversation import Conversation, Session
from tests.support.histories import SECOND
from tests.support.pdu import Task
from tests.support.tables_by_hand import MS
from tests.support.transport import ETHERNET
from tests.support.transport import Path as Link

HOUR_S = 2600.0
"""The start of the second hour: the capture begins 1,000 s after a full hour."""


def found_by(name: str, host: Host, sessions: tuple[int, ...] = ()) -> VerdictGroups:
    return verdict_groups.find(name, host.source(), host.diagnosis().stories, sessions)


def by_label(found: VerdictGroups) -> dict[str, Group]:
    return {each.label: each for each in found.groups}


def lost(host: Host, first: float, *, until: float, **names: Any) -> None:
    """A session that reads, is reset while a read waits, and is replaced at ``until``; it is another than before."""
    number = host.session(first, first + 3, end="reset", rst_to_initiator_ns=first + 3, **names)
    host.reads(number, first + 1, 40)
    host.read(number, first + 2, None)
    host.time(number, first + 2, first + 3, "outage")
    new = host.session(until, until + 5, end="logout", replaces=number, **names)
    host.reads(new, until + 1, 40)


def three_initiators() -> Host:
    host = Host()
    host.reads(host.session(0, 30, initiator_name="iqn.well", isid="81"), 1.0, 400)
    lost(host, 2.0, until=9.0, initiator_name="iqn.lost", isid="82", initiator_address="10.0.0.2")
    lost(host, 2.0, until=20.0, initiator_name="iqn.worst", target_name="iqn.u", initiator_address="10.0.0.3")
    return host


def test_the_names_are_those_of_the_command_line() -> None:
    assert sorted(verdict_groups.NAMES) == sorted(SESSION_ATTRIBUTES)
    assert sorted(NAMES) == sorted(COMMAND_ATTRIBUTES)


def test_the_group_that_lost_most_is_the_first() -> None:
    host = three_initiators()
    found = found_by("initiator", host)
    assert [each.label for each in found.groups] == ["iqn.worst", "iqn.lost", "iqn.well"]
    worst, second, well = found.groups
    assert [each.session_count for each in found.groups] == [2, 2, 1]
    # from 2 s after its start until its replacement had logged in; two sessions lost it once
    assert 17 * SECOND <= worst.lost_ns < 19 * SECOND
    assert 5 * SECOND <= second.lost_ns < 8 * SECOND
    assert (worst.worst, well.worst) == ("sessions 3 and 4", "session 0")
    (tally,) = worst.tallies
    assert tally.session_count == 2
    assert well.lost_ns < SECOND
    assert well.busy_ns == 400 * 5 * MS
    assert (found.has_shared, found.absent_count) == (False, 0)


@pytest.mark.parametrize("name", verdict_groups.NAMES)
def test_no_time_is_lost_twice_or_forgotten(name: str) -> None:
    host = three_initiators()
    verdicts = host.diagnosis().stories.verdicts
    groups = found_by(name, host).groups
    assert sum(each.lost_ns for each in groups) == pytest.approx(sum(each.cost_ns or 0.0 for each in verdicts))
    assert sum(each.busy_ns for each in groups) == pytest.approx(sum(each.jobs_ns for each in verdicts))
    assert sum(each.session_count for each in groups) == 5


def test_only_the_sessions_that_were_named() -> None:
    found = found_by("initiator", three_initiators(), (0, 4))
    assert [each.label for each in found.groups] == ["iqn.worst", "iqn.well"]


def test_equal_verdicts_are_counted() -> None:
    host = Host()
    for number in range(5):
        host.reads(host.session(0, 30, isid=f"8{number}"), 1.0, 40)
    (group,) = found_by("target", host).groups
    (tally,) = group.tallies
    assert (tally.session_count, group.session_count, group.as_dict()["label"]) == (5, 5, "iqn.t")
    assert group.as_dict()["headlines"] == [{"name": tally.name, "limiter": "propagation", "session_count": 5}]


def test_a_connection_without_a_session_belongs_to_the_only_target_at_its_address() -> None:
    host = Host()
    host.reads(host.session(0, 30), 1.0, 40)
    for second in range(40, 50):
        host.connection(second, second + 0.5, is_iscsi=False, syn_ns=second, is_refused=True)
    (group,) = found_by("target", host).groups
    assert (group.label, group.session_count) == ("iqn.t", 1)
    # a second target at the same portal: the address is all that is known
    host.reads(host.session(0, 30, isid="81", target_name="iqn.u"), 1.0, 40)
    assert set(by_label(found_by("target", host))) >= {"iqn.t", "iqn.u"}


def broken_lun() -> Host:
    """LUN 0 works, reads of LUN 1 take a second each and end in a medium error."""
    host = Host()
    host.session(0, 30)
    host.unit(0, 0, designator=NAA).unit(0, 1)
    host.reads(0, 1.0, 40)
    sense = {"status": 2, "sense_key": 3, "asc": 0x11, "ascq": 0, "data_bytes": 0}
    for second in range(6, 10):
        host.read(0, second, second + 1, lun=1, **sense)
    return host


@pytest.mark.parametrize("name", ["lun", "volume"])
def test_a_lun_that_the_failure_did_not_hit_lost_nothing(name: str) -> None:
    host = broken_lun()
    (verdict,) = host.diagnosis().stories.verdicts
    assert (verdict.is_failure, verdict.luns) == (True, (1,)), "a failure of LUN 1 alone"
    found = found_by(name, host)
    groups = by_label(found)
    hit, other = groups["LUN 1 of iqn.t"], groups["LUN 0 of iqn.t"]
    assert (hit.lost_ns, other.lost_ns) == (verdict.cost_ns or 0.0, 0.0)
    assert [each.name for each in hit.tallies] == [verdict.name]
    assert [each.name for each in other.tallies] == [ELSEWHERE]
    assert found.has_shared
    # each was busy with its own commands
    assert hit.busy_ns == 4 * SECOND
    assert other.busy_ns == 40 * 5 * MS
    assert (hit.as_dict().get("initiator") == "iqn.i") == (name == "volume")


@pytest.mark.parametrize("name", ["lun", "volume"])
@pytest.mark.parametrize("fast_ms", [1, 8], ids=["slow_lun", "slow_target"])
@pytest.mark.parametrize("tap", [0.0, 1.0], ids=["initiator", "target"])
def test_of_a_slow_and_a_fast_lun_only_the_slow_one_is(tap: float, fast_ms: int, name: str, tmp_path: Path) -> None:
    """Reads of LUN 0 and LUN 1 in turn; LUN 1 takes 22 ms: far above the other, or the target is slow there alone."""
    conversation = Conversation(Link(tap=tap))
    tasks = [Task("read", number * 128, 128, number % 2, 0, (fast_ms, 22)[number % 2] * MS) for number in range(80)]
    conversation.session(Session()).login().tasks(tasks).logout()
    trace = iscsitrace.read(write_pcap(tmp_path / "two.pcap", conversation.run().packets, ETHERNET), tables=NEEDED)
    diagnosis = examine(trace.table)
    assert diagnosis.headline
    assert diagnosis.headline.kind == "problem"
    assert diagnosis.headline.luns == (1,)
    slow, fast = verdict_groups.find(name, trace.table, diagnosis.stories).groups
    assert (slow.label[:5], fast.label[:5]) == ("LUN 1", "LUN 0")
    assert [each.name for each in slow.tallies] == ["slow_lun" if fast_ms == 1 else "slow_target"]
    assert [each.name for each in fast.tallies] == [ELSEWHERE]
    # forty reads, each with a round trip of 1 ms and half a millisecond of data at least
    assert slow.lost_ns == pytest.approx(40 * 22 * MS, rel=0.02)
    assert fast.lost_ns == 0.0
    assert 40 * 22 * MS < slow.busy_ns < 40 * 24 * MS
    assert 40 * fast_ms * MS < fast.busy_ns < 40 * (fast_ms + 2) * MS


def test_a_session_without_data_has_no_lun() -> None:
    host = Host()
    host.session(0, 30)
    found = found_by("lun", host)
    assert (found.groups, found.absent_count) == ([], 1)


def test_busy_time_is_cut_at_the_hour() -> None:
    host = Host()
    host.session(0, HOUR_S + 100)
    for place in range(20):
        host.read(0, HOUR_S - 10.25 + place, HOUR_S - 9.25 + place)
    first, second = sorted(found_by("hour", host).groups, key=lambda each: each.label)
    assert (first.label, second.label) == ("1970-01-01 00:00", "1970-01-01 01:00")
    assert (first.busy_ns, second.busy_ns) == (10.25 * SECOND, 9.75 * SECOND)
    assert first.lost_ns * 9.75 == pytest.approx(second.lost_ns * 10.25)


def test_a_failure_is_in_the_hour_in_which_it_was() -> None:
    host = Host()
    host.reads(host.session(0, HOUR_S + 500, initiator_name="iqn.well", isid="81"), HOUR_S + 100, 40)
    number = host.session(0, HOUR_S + 103, end="reset", rst_to_initiator_ns=HOUR_S + 103)
    host.reads(number, 100.0, 400)
    host.read(number, HOUR_S + 101, None)
    host.time(number, HOUR_S + 101, HOUR_S + 103, "outage")
    host.reads(host.session(HOUR_S + 120, HOUR_S + 130, end="logout", replaces=number), HOUR_S + 121, 40)
    worst, quiet = found_by("hour", host).groups
    assert (worst.label, quiet.label) == ("1970-01-01 01:00", "1970-01-01 00:00")
    assert worst.lost_ns > 15 * SECOND
    assert quiet.lost_ns == 0.0
    assert [(each.name, each.session_count) for each in quiet.tallies] == [(ELSEWHERE, 2)]
    assert quiet.busy_ns == 400 * 5 * MS


def test_a_failure_over_the_hour_is_shared_by_its_time() -> None:
    host = Host()
    number = host.session(HOUR_S - 50, HOUR_S - 8, end="reset", rst_to_initiator_ns=HOUR_S - 8)
    host.reads(number, HOUR_S - 40, 400)
    host.read(number, HOUR_S - 10, None)
    host.time(number, HOUR_S - 10, HOUR_S - 8, "outage")
    host.reads(host.session(HOUR_S + 30, HOUR_S + 40, end="logout", replaces=number), HOUR_S + 31, 40)
    (verdict,) = host.diagnosis().stories.verdicts
    ((first_ns, last_ns),) = verdict.spans
    assert verdict.cost_ns
    groups = by_label(found_by("hour", host))
    hour_ns = 3_600 * SECOND
    for label, own_ns in (("1970-01-01 00:00", hour_ns - first_ns), ("1970-01-01 01:00", last_ns - hour_ns)):
        assert groups[label].lost_ns == pytest.approx(verdict.cost_ns * own_ns / (last_ns - first_ns))
