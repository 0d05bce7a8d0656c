"""The finding duplicate_initiator: on traces by hand, and on a recording of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from tests.support.histories import SECOND, Told

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"


def found(diagnosis: Diagnosis) -> Finding | None:
    findings = [
        each for opinion in diagnosis.stories for each in opinion.findings if each.name == "duplicate_initiator"
    ]
    return findings[0] if findings else None


def names(diagnosis: Diagnosis) -> set[str]:
    return {each.name for opinion in diagnosis.stories for each in opinion.findings}


def taken(*addresses: str, is_alive: bool = True, how: dict[str, float] | None = None) -> Told:
    """Sessions of 3 s from these addresses, each ended by the login of the next, and 5 ms reads in each.

    The target closes the old connection with the new login, and its initiator closes it in turn, if it is alive.
    """
    told = Told()
    for number, address in enumerate(addresses):
        first = 3.0 * number
        is_last = number + 1 == len(addresses)
        login = first + 3.01
        ends = {"fin_to_initiator_ns": login - 0.0005} | ({"fin_to_target_ns": login + 0.002} if is_alive else {})
        ends = ends if how is None else {name: first + 3.0 + value for name, value in how.items()}
        told.session(
            first,
            20 if is_last else login + 0.01,
            end="open" if is_last else "reinstated",
            replaces=number - 1 if number else None,
            initiator_address=address,
            **({} if is_last else ends),
        )
        told.reads(number, first + 0.1, 20)
    return told


def test_two_hosts_in_turn() -> None:
    diagnosis = taken("10.0.0.1", "10.0.0.9", "10.0.0.1", "10.0.0.9").diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.text.startswith(
        "10.0.0.1 and 10.0.0.9 log in with the same InitiatorName iqn.i and ISID 80: 3 times from 3.01 s to 9.01 s "
        "a login of one ended the healthy session of the other. 10.0.0.1 had no session for 3.0 s, 10.0.0.9 for 3.0 s."
    )
    assert (finding.severity, finding.sessions) == ("error", (0, 1, 2, 3))
    assert finding.points_to == "10.0.0.1 and 10.0.0.9"
    # from the close 0.5 ms before the login of the other one at 3.01 s until the own login was finished, 3 s later;
    # 10.0.0.9 is out from then on until its own next login, and 10.0.0.1 from then on does not come back
    assert finding.cost_ns == pytest.approx(6 * SECOND, rel=0.01)
    assert "connection_lost" not in names(diagnosis)
    assert diagnosis.headline
    assert diagnosis.headline.name == "duplicate_initiator"


def test_two_initiators_behind_one_address() -> None:
    finding = found(taken(*["10.0.0.1"] * 4).diagnosis())
    assert finding
    assert finding.text.startswith("Two initiators behind 10.0.0.1 log in with the same InitiatorName")
    assert finding.text.endswith("The first had no session for 3.0 s, the second for 3.0 s.")
    assert finding.cost_ns == pytest.approx(6 * SECOND, rel=0.01)


def test_a_host_that_never_comes_back_is_out_for_no_known_time() -> None:
    """It may not want to: a clone that was switched off."""
    finding = found(taken("10.0.0.1", "10.0.0.9", "10.0.0.1").diagnosis())
    assert finding
    assert finding.text.endswith("10.0.0.1 had no session for 3.0 s.")
    assert finding.cost_ns == pytest.approx(3 * SECOND, rel=0.01)


NEAR_MISSES: dict[str, Told] = {
    "one takeover": taken("10.0.0.1", "10.0.0.9"),
    "addresses that never come back": taken("10.0.0.1", "10.0.0.7", "10.0.0.9"),
    "hosts that are gone when their session is taken": taken("10.0.0.1", "10.0.0.9", "10.0.0.1", is_alive=False),
    # the kernel has forgotten the connection
    "a RST alone": taken(*["10.0.0.1"] * 3, how={"fin_to_initiator_ns": 0.0095, "rst_to_target_ns": 0.012}),
    "initiators that close before they log in again": taken(*["10.0.0.1"] * 3, how={"fin_to_target_ns": -0.5}),
    "a target that closes before the login": taken(
        *["10.0.0.1"] * 3, how={"fin_to_initiator_ns": -0.5, "fin_to_target_ns": -0.4}
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str) -> None:
    diagnosis = NEAR_MISSES[name].diagnosis()
    assert found(diagnosis) is None
    assert "connection_lost" in names(diagnosis)


def test_sessions_whose_commands_waited_were_not_healthy() -> None:
    """A host behind a dead path logs in again, and its old FIN arrives after all."""
    told = taken(*["10.0.0.1"] * 3)
    told.read(0, 1.0, None)
    told.read(1, 4.0, None)
    assert found(told.diagnosis()) is None
    # issued less than a second before: the other host ended it
    busy = taken(*["10.0.0.1"] * 3)
    busy.read(0, 2.9, None)
    busy.read(1, 5.9, None)
    assert found(busy.diagnosis())


def test_two_sessions_of_one_host_with_different_isids() -> None:
    told = Told()
    for number in range(4):
        told.session(0.1 * number, 20, isid=f"8{number}")
        told.reads(number, 1.0, 20)
    assert found(told.diagnosis()) is None


def one_side(tsihs: tuple[int, ...], **columns: Any) -> Told:
    """Sessions of one host: the target closes each after 3 s, and the next login 2 s later is accepted."""
    told = Told()
    for number, tsih in enumerate(tsihs):
        first, is_last = 5.0 * number, number + 1 == len(tsihs)
        close = {"fin_to_initiator_ns": first + 3, "fin_to_target_ns": first + 3.001}
        end = "open" if is_last else "reinstated"
        told.session(first, first + 3.1, end=end, replaces=number - 1 if number else None, **({} if is_last else close))
        told.rows["sessions"][-1]["tsih"] = tsih
        told.reads(number, first + 0.1, 20)
    return told


def test_one_side_of_it_is_a_suspicion() -> None:
    diagnosis = one_side((1, 3, 5)).diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.severity == "warning"
    assert finding.points_to == "a second initiator of this name, which the capture does not show"
    assert finding.text.startswith("A second host may use the InitiatorName iqn.i and ISID 80 of sessions 0 to 2")
    assert "This capture shows only one host" in finding.text
    assert diagnosis.headline
    assert diagnosis.headline.name == "duplicate_initiator"


@pytest.mark.parametrize("tsihs", [(1, 2, 3), (1, 1, 1), (1, 3), (9, 1, 3)])
def test_a_target_that_numbers_no_others_is_no_suspicion(tsihs: tuple[int, ...]) -> None:
    """A target that starts again, or closes connections for another reason."""
    assert found(one_side(tsihs).diagnosis()) is None


def test_a_target_that_refuses_a_connect_between_is_down_not_taken() -> None:
    told = one_side((1, 3, 5))
    told.connection(4.0, 4.1, syn_ns=4.0, is_refused=True, rst_to_initiator_ns=4.1)
    told.connection(9.0, 9.1, syn_ns=9.0, is_refused=True, rst_to_initiator_ns=9.1)
    assert found(told.diagnosis()) is None


def test_a_target_that_announces_the_end_is_no_suspicion() -> None:
    told = one_side((1, 3, 5))
    told.add("asyncs", connection=0, time_ns=2.9, frame=9, event=1)
    assert found(told.diagnosis()) is None


@pytest.mark.parametrize(("tap", "words"), [("target", "10.71.0.1 and 10.71.0.200 log in"), ("initiator", "may use")])
def test_a_recording_of_kernels(tap: str, words: str) -> None:
    trace = iscsitrace.read(VECTORS / "duplicate-initiator-lio" / f"{tap}.pcapng.gz", tables=NEEDED)
    diagnosis = examine(trace.table)
    assert diagnosis.headline
    assert diagnosis.headline.name == "duplicate_initiator"
    assert words in diagnosis.headline.text
    assert "connection_lost" not in names(diagnosis)
    if tap == "target":
        # it retried every 2 s, and LIO takes another second to end the old session: twice 3 s; the other one once 2 s
        assert diagnosis.headline.text.endswith("10.71.0.1 had no session for 6.1 s, 10.71.0.200 for 2.0 s.")
