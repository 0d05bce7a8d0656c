"""The finding ack_loss: on traces by hand, on a simulated path that drops ACKs alone, and on recordings without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from tests.support.histories import SECOND, Told, at
from tests.support.recordings import captures_folder


def found(diagnosis: Diagnosis, name: str = "ack_loss") -> Finding | None:
    """The finding of a story or of the first session."""
    told = [*(each.findings for each in diagnosis.stories), diagnosis.sessions[0].findings]
    return next((each for findings in told for each in findings if each.name == name), None)


def stalled(length: float, *, ack_loss: str | None = "before_tap", part: str = "loss_recovery", **columns: Any) -> Told:
    """Reads of 5 ms, and one whose data TCP repeats after a timer: it waits from 1 s on, this long."""
    told = Told()
    told.session(0, 20)
    told.reads(0, 0, 100)
    told.time(0, 1.0, 1.0 + length, part)
    told.read(0, 1.0 + length, 1.005 + length)
    times = {"time_first_ns": 1.0 + 0.8 * length, "time_last_ns": 1.0 + length, "frame_first": 81, "frame_last": 82}
    counts = {"retransmitted_packets": 3, "spurious_packets": 1, "ack_loss": ack_loss, "cause": "timeout"}
    told.add("recoveries", connection=0, **times | counts | columns)
    return told


def test_a_stall_of_less_than_a_second_is_slowness() -> None:
    finding = found(stalled(0.4).diagnosis())
    assert finding
    # from the last packet before the timer to the end of the recovery
    assert (finding.spans, finding.cost_ns, finding.frames) == (((at(1.0), at(1.4)),), 0.4 * SECOND, (81, 82))
    assert (finding.rank, finding.points_to) == ("slowness", "the path between the initiator and the tap")
    assert finding.text == (
        "Session 0: because ACKs of the initiator were lost, the target retransmitted 3 packets that had arrived (1 "
        "recovery after a timer) and stalled for 400.0 ms. The ACKs never reached the tap: they were lost between the "
        "initiator and the tap. No data was lost: the initiator reported it as received twice (D-SACK)."
    )
    assert found(stalled(0.4).diagnosis(), "loss") is None


def test_a_recovery_while_nothing_is_in_flight_stalls_nothing() -> None:
    told = Told()
    told.session(0, 20)
    told.reads(0, 0, 100)
    counts = {"retransmitted_packets": 1, "spurious_packets": 1, "ack_loss": "beyond_tap", "cause": "tail_probe"}
    times = {"time_first_ns": 2.0, "time_last_ns": 6.0, "frame_first": 81, "frame_last": 82}
    told.add("recoveries", connection=0, **times, **counts)
    assert found(told.diagnosis()) is None


def test_where_the_acks_were_lost() -> None:
    finding = found(stalled(0.4, ack_loss="beyond_tap", to_target=True).diagnosis())
    assert finding
    assert "The ACKs passed the tap: they were lost between the tap and the initiator." in finding.text
    assert finding.points_to == "the path between the tap and the initiator"
    told = stalled(0.4)
    told.add("recoveries", connection=0, ack_loss="beyond_tap", time_first_ns=1.3, time_last_ns=1.35)
    finding = found(told.diagnosis())
    assert finding
    assert "They were lost on both sides of the tap." in finding.text
    assert finding.points_to == "the path on both sides of the tap"


def test_of_several_taps_the_sentences_name_the_one_beside_the_sender() -> None:
    def tap_of(connection: int, *, to_target: bool) -> str:
        return f"tap {'a' if to_target else 'b'}"

    for to_target, expected in (
        (True, "the path between the target and the tap a"),
        (False, "the path between the initiator and the tap b"),
    ):
        finding = found(examine(stalled(0.4, to_target=to_target).source(), tap_of=tap_of))
        assert finding
        assert finding.points_to == expected
        assert (
            f"The ACKs never reached the {expected[-5:]}: they were lost {expected.removeprefix('the path ')}."
            in finding.text
        )


@pytest.mark.parametrize(("length", "rank"), [(0.999, "slowness"), (1.0, "failure")])
def test_a_stall_of_a_second_is_a_failure(length: float, rank: str) -> None:
    finding = found(stalled(length).diagnosis())
    assert finding
    assert finding.rank == rank


def test_the_outage_that_it_causes_is_told_as_such() -> None:
    diagnosis = stalled(3.0, part="outage", time_first_ns=1.4).diagnosis()
    finding = found(diagnosis)
    assert finding
    # until the first data
    assert (finding.spans, finding.severity) == (((at(1.0), at(4.005)),), "error")
    assert diagnosis.headline
    assert diagnosis.headline.name == "ack_loss"
    assert found(diagnosis, "io_outage") is None


def test_a_first_retransmission_long_after_its_timer_is_no_lost_ack() -> None:
    """A card that was down: the retransmissions before it were lost, too, so that data was."""
    diagnosis = stalled(3.0, part="outage", time_first_ns=2.0).diagnosis()
    assert found(diagnosis) is None
    assert diagnosis.headline
    assert diagnosis.headline.name == "io_outage"


def test_a_loss_of_data_is_a_loss() -> None:
    diagnosis = stalled(0.4, ack_loss=None).diagnosis()
    assert found(diagnosis) is None
    loss = found(diagnosis, "loss")
    assert loss
    assert loss.cost_ns == 0.4 * SECOND


def test_losses_of_both_kinds_are_told_apart() -> None:
    told = stalled(0.4)
    told.time(0, 5.0, 5.1, "loss_recovery")
    told.read(0, 5.1, 5.2)
    told.add("recoveries", connection=0, retransmitted_packets=1, time_first_ns=5.0, time_last_ns=5.1)
    diagnosis = told.diagnosis()
    own, loss = found(diagnosis), found(diagnosis, "loss")
    assert own
    assert loss
    assert (own.cost_ns, loss.cost_ns) == (0.4 * SECOND, 0.1 * SECOND)
    assert loss.text.startswith(
        "I/O waited 100.0 ms for retransmissions, at most 100.0 ms at a time. Packets to the initiator were lost once "
    )


# --- a simulated path, whose link drops packets without data, or with data

WAN = "--one-way-delay 4ms --rate 320Mbit"
NEAR_MISSES = {
    "black-out": "read --block-size 2M --queue-depth 2 --seconds 4 --fault black-out,for=600ms",
    "data lost": "read --block-size 2M --queue-depth 2 --seconds 3 --fault black-out,for=300ms,direction=to-initiator",
    "commands lost": "read --block-size 16K --seconds 3 --fault black-out,for=300ms,direction=to-target",
    "reordering": "read --block-size 256K --bytes 8M --queue-depth 4 --set reorder=5%,3ms",
    "loss": "read --block-size 256K --bytes 8M --queue-depth 4 --set to-initiator-loss=1%",
}


def diagnoses(directory: Path, line: str) -> list[Diagnosis]:
    """Of both taps."""
    words = ["simulate", *line.split(), *WAN.split(), "-o", str(directory)]
    assert CliRunner().invoke(main, words, catch_exceptions=False).exit_code in (0, 1)
    files = [directory / f"{tap}.pcapng" for tap in ("initiator", "target")]
    return [examine(iscsitrace.read(file, tables=NEEDED).table) for file in files]


def test_a_path_that_drops_acks(tmp_path: Path) -> None:
    at_initiator, at_target = diagnoses(
        tmp_path, "read --block-size 2M --queue-depth 2 --seconds 4 --fault ack-loss,for=700ms"
    )
    for diagnosis, place in (
        (at_initiator, "between the tap and the target"),
        (at_target, "between the initiator and"),
    ):
        finding = found(diagnosis)
        assert finding
        assert place in finding.text
        # ACKs are dropped for 0.7 s; the timer of 0.2 s doubles, and fires at most once after that
        assert 0.6 * SECOND < (finding.cost_ns or 0) < 1.4 * SECOND


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_no_loss_of_acks_alone(tmp_path: Path, name: str) -> None:
    assert [found(diagnosis) for diagnosis in diagnoses(tmp_path, NEAR_MISSES[name])] == [None, None]


RECORDINGS = (
    # 84 of its ACKs were lost: others came in time, and no timer fired for them
    "04_read_ackloss5pct_delay04ms.pcapng.gz",
    "04_read_reorder_delay08ms.target.pcap.gz",
    "04_read_loss1pct_delay08ms.target.pcap.gz",
    # its initiator heard the target, and the target did not hear it: commands were lost with the ACKs
    "15_reconnect_blackhole_delay04ms.pcap.gz",
)


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_without_it(name: str) -> None:
    file = captures_folder() / name
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    assert found(examine(iscsitrace.read(file, tables=NEEDED).table)) is None
