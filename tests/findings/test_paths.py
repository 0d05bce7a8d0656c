"""The finding path_imbalance: on traces by hand, what triggers it and what is only near."""

from __future__ import annotations

import pytest

from iscsitrace.findings.finding import Finding
from tests.support.histories import Told

NAA = "naa.6001405c86130259b4c4d2a9b1b0008a"
OPTIMIZED, NON_OPTIMIZED = "active_optimized", "active_non_optimized"


def two_paths(*states: str) -> Told:
    """Two sessions to one logical unit, in these ALUA states."""
    told = Told()
    for number in range(2):
        told.session(0, 100, isid=f"8{number}")
        unit = {"session": number, "designator": NAA, "peripheral_qualifier": 0, "target_port_group": number + 1}
        told.add("logical_units", time_first_ns=0.0, **unit)
        if states:
            report = {"session": number, "target_port_group": number + 1, "state": states[number]}
            told.add("alua_states", time_ns=0.0, **report)
    return told


def reads(told: Told, pattern: str, first: float = 1.0) -> None:
    """A read of 5 ms on the path of each letter, one after another."""
    for place, path in enumerate(pattern):
        told.read("ab".index(path), first + place * 0.005, first + (place + 1) * 0.005)


def found(told: Told) -> Finding | None:
    findings = [each for opinion in told.diagnosis().sessions.values() for each in opinion.findings]
    return next((each for each in findings if each.name == "path_imbalance"), None)


def test_io_over_a_non_optimized_path_beside_an_optimized_one() -> None:
    told = two_paths(OPTIMIZED, NON_OPTIMIZED)
    # 30 of 120 reads of 16 KiB
    reads(told, "aaab" * 30)
    finding = found(told)
    assert finding
    assert (finding.share, finding.severity, finding.sessions, finding.luns) == (0.25, "warning", (0, 1), (0,))
    assert finding.text == (
        "25 % of the bytes of LUN 0 of iqn.t (0.5 MB) went over a non-optimized path while an optimized path was in "
        "service: session 0 (active/optimized) 1.5 MB; session 1 (active/non-optimized) 0.5 MB."
    )
    assert "prio alua" in finding.advice[0]
    assert finding.leads


def test_it_is_found_in_every_session_of_the_volume() -> None:
    told = two_paths(OPTIMIZED, NON_OPTIMIZED)
    reads(told, "b" * 120)
    opinions = told.diagnosis().sessions
    assert all("path_imbalance" in [each.name for each in opinions[number].findings] for number in (0, 1))


@pytest.mark.parametrize("states", [(), (OPTIMIZED, OPTIMIZED)])
def test_paths_that_carry_unequal_load(states: tuple[str, ...]) -> None:
    told = two_paths(*states)
    reads(told, "aaaab" * 40)
    finding = found(told)
    assert finding
    # 160 and 40 of 200: the mean is 100
    assert finding.share == pytest.approx(1 - 100 / 160)
    assert finding.text.startswith("The initiator uses the paths to LUN 0 of iqn.t unequally: session 0")
    assert "--iops 1" in finding.advice[0]
    # which says more than that connections are used unevenly
    names = {each.name for opinion in told.diagnosis().sessions.values() for each in opinion.findings}
    assert "uneven_connections" not in names


@pytest.mark.parametrize("pattern", ["ab" * 100, "aabab" * 40, "a" * 150 + "b" * 30 + "a" * 20])
def test_round_robin_is_no_imbalance(pattern: str) -> None:
    told = two_paths(OPTIMIZED, OPTIMIZED)
    reads(told, pattern)
    assert found(told) is None


def test_a_spare_path_is_a_note_and_by_design_nothing() -> None:
    told = two_paths(OPTIMIZED, OPTIMIZED)
    reads(told, "a" * 120)
    finding = found(told)
    assert finding
    assert (finding.severity, finding.leads) == ("info", False)
    assert finding.text.startswith("Session 1 carried no I/O of LUN 0 of iqn.t, like a spare path")
    for state in (NON_OPTIMIZED, "standby"):
        told = two_paths(OPTIMIZED, state)
        reads(told, "a" * 120)
        assert found(told) is None


def test_a_path_that_the_target_took_out_of_use_is_a_note() -> None:
    told = two_paths(OPTIMIZED, "unavailable")
    reads(told, "a" * 120)
    finding = found(told)
    assert finding
    assert (finding.severity, finding.leads) == ("info", False)
    assert finding.text.startswith("Session 1 cannot reach LUN 0 of iqn.t")


def test_failover_after_a_loss_is_no_imbalance() -> None:
    told = two_paths(OPTIMIZED, NON_OPTIMIZED)
    reads(told, "a" * 120)
    # the optimized path is lost at 60 s
    told.rows["sessions"][0] |= {"time_last_ns": told.rows["sessions"][0]["time_first_ns"] + 60_000_000_000}
    told.rows["sessions"][0] |= {"end": "reset"}
    reads(told, "b" * 120, 65.0)
    assert found(told) is None


def test_after_the_optimized_path_came_back_the_initiator_has_time_to_notice() -> None:
    for later, expected in ((10.0, None), (25.0, pytest.approx(0.5))):
        told = two_paths(OPTIMIZED, NON_OPTIMIZED)
        reads(told, "a" * 120)
        told.rows["sessions"][0] |= {"time_last_ns": told.rows["sessions"][0]["time_first_ns"] + 60_000_000_000}
        told.session(63, 100, isid="80", replaces=0)
        told.add("logical_units", session=2, time_first_ns=63.1, peripheral_qualifier=0)
        reads(told, "b" * 120, 63.0 + later)
        finding = found(told)
        assert (finding and finding.share) == expected


def test_a_state_that_the_target_changes_counts_from_then_on() -> None:
    told = two_paths(NON_OPTIMIZED, OPTIMIZED)
    # path a becomes the optimized one at 10 s, and the initiator stays on path b
    told.add("alua_states", session=1, time_ns=10.0, target_port_group=1, state=OPTIMIZED)
    told.add("alua_states", session=1, time_ns=10.0, target_port_group=2, state=NON_OPTIMIZED)
    reads(told, "b" * 120, 12.0)
    assert found(told) is None
    reads(told, "b" * 120, 40.0)
    finding = found(told)
    assert finding
    assert finding.share == 0.5


def test_few_commands_and_two_volumes_are_no_paths_to_compare() -> None:
    told = two_paths(OPTIMIZED, NON_OPTIMIZED)
    reads(told, "b" * 99)
    assert found(told) is None
    told = two_paths(OPTIMIZED, NON_OPTIMIZED)
    reads(told, "b" * 120)
    told.rows["logical_units"][1]["designator"] = "naa.6001405db2d66f2f1ce474f9cdfa64db"
    assert found(told) is None
