"""Faults of guests as they are typed, and when they begin and end; with effects that only note their calls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from bench.scenarios import scenarios
from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.lab.fault_catalogue import GUESTS, names_in, parse
from iscsitrace.lab.faults.fault import Details, Fault, FaultImpossible, FaultKind, InGuests, fault
from iscsitrace.lab.guests import faults
from iscsitrace.lab.guests.faults import Hosts, Occurrence, capture_limits
from iscsitrace.lab.places import Finished

_S = 1_000_000_000


class _Guest:
    """A guest whose disk counts one I/O more each time that it is asked."""

    def __init__(self, *, is_idle: bool = False) -> None:
        self._count, self._step = 0, int(not is_idle)

    def run(self, *argv: str) -> Finished:
        assert argv[-1] == "/dev/sda"
        return Finished(0, "  8:0  \n", "")

    def read(self, path: str) -> bytes:
        assert path == "/sys/dev/block/8:0/stat"
        self._count += self._step
        return f"{self._count} 0 0 0 0 0 0 0 0 0 0".encode()


def _hosts(*, is_idle: bool = False) -> Hosts:
    guests: dict[str, Any] = {"initiator": _Guest(is_idle=is_idle)}
    return Hosts(guests, {}, {}, "lio", [], ExitStack(), device="/dev/sda")


def _noting(notes: list[str], name: str, lasts: str | None = "50ms", error: Exception | None = None) -> Fault:
    @contextmanager
    def effect(_: Hosts, __: Details) -> Iterator[None]:
        if error is not None:
            raise error
        notes.append(f"{name} begins")
        yield
        notes.append(f"{name} ends")

    return fault(FaultKind(name, "", "target", lasts=lasts, guests=InGuests(effect)), {"at": "0s"} if lasts else {})


def test_the_details_that_are_not_typed_have_their_defaults() -> None:
    found = parse("black-out,for=3s,on=target-2")

    details = {"at": _S, "for": 3 * _S, "direction": "both"}
    assert found.as_dict() == {"name": "black-out", "host": "target-2", "details": details}
    assert parse("storage-slow,by=20ms").details["by"] == 20_000_000
    assert parse("snaplen").host == "initiator"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("blackout", "no fault is named 'blackout'; there are ack-loss, black-out"),
        ("rst,when=1s", "rst has no detail when; it has on, at, for"),
        ("rst,1s", "rst: '1s' is not like NAME=VALUE; it has on, at, for"),
        ("rst,at=soon", "rst: at=soon is not "),
        ("snaplen,at=1s", "snaplen has no detail at; it has on, bytes"),
    ],
)
def test_what_is_typed_wrong_is_named_with_what_there_is(typed: str, message: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        parse(typed)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_fault_of_a_host_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputInvalid, match="there is no host 'target-2'; there are initiator, target"):
        faults.require_possible([parse("black-out,on=target-2")], ["initiator", "target"], "lio")


def test_a_fault_that_a_target_cannot_show_is_refused() -> None:
    fault = [parse("unreachable-portal")]
    faults.require_possible(fault, ["initiator", "target"], "lio")
    with pytest.raises(InputInvalid, match="unreachable-portal: only with lio, not with tgt"):
        faults.require_possible(fault, ["initiator", "target"], "tgt")


def test_faults_of_the_capture_limit_that_of_their_host() -> None:
    found = [parse("snaplen,bytes=96"), parse("capture-drops,buffer=64K,on=target"), parse("rst")]

    assert capture_limits(found, "initiator") == {"snaplen_bytes": 96}
    assert capture_limits(found, "target") == {"buffer_kib": 64}


def test_a_timed_fault_begins_after_the_first_io_and_ends_in_its_time() -> None:
    notes: list[str] = []
    occurrence = Occurrence(_noting(notes, "fault"))
    started_ns = time.time_ns()
    with faults.timed(_hosts(), [occurrence]):
        time.sleep(0.5)
        notes.append("the I/O is over")

    assert notes == ["fault begins", "fault ends", "the I/O is over"]
    assert occurrence.began_ns is not None
    assert occurrence.ended_ns is not None
    assert started_ns <= occurrence.began_ns <= occurrence.ended_ns - 50_000_000


def test_a_timed_fault_ends_with_the_io_at_the_latest() -> None:
    notes: list[str] = []
    with faults.timed(_hosts(), [Occurrence(_noting(notes, "fault", "60s"))]):
        time.sleep(0.5)
        notes.append("the I/O is over")

    assert notes == ["fault begins", "the I/O is over", "fault ends"]


def test_without_an_io_no_timed_fault_begins() -> None:
    notes: list[str] = []
    occurrence = Occurrence(_noting(notes, "fault"))
    with faults.timed(_hosts(is_idle=True), [occurrence]):
        time.sleep(0.3)

    assert notes == []
    assert (occurrence.began_ns, occurrence.ended_ns) == (None, None)


def test_a_fault_that_cannot_be_set_up_ends_the_run_in_a_line() -> None:
    broken = _noting([], "fault", error=ToolMissing("no dmsetup"))
    with pytest.raises(FaultImpossible, match=r"^fault: no dmsetup$"), faults.timed(_hosts(), [Occurrence(broken)]):
        time.sleep(0.3)


def test_lasting_faults_begin_before_the_block_and_end_after_it_in_reverse() -> None:
    notes: list[str] = []
    occurrences = [Occurrence(_noting(notes, name, None)) for name in ("one", "two")]
    with faults.lasting(_hosts(), [*occurrences, Occurrence(_noting(notes, "timed"))]):
        notes.append("login")

    assert notes == ["one begins", "two begins", "login", "two ends", "one ends"]


def test_the_scenarios_have_every_fault_both_targets_and_six_healthy_workloads() -> None:
    found = scenarios().values()
    named = {each.kind.name for scenario in found for each in scenario.programs().faults}

    assert named == set(names_in(GUESTS))
    assert len(found) >= 30
    assert {each.target for each in found} == {"lio", "tgt"}
    assert sum(not each.faults for each in found) >= 6
