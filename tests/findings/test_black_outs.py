"""Black-outs of less than a second: how often, how long at least and at most, at each tap; and what is none.

The truth is in the settings of each run, or in the log of the kernels that dropped the packets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.taps.reading import read_taps
from tests.support.capture_file import read_records, write_pcap
from tests.support.recordings import captures_folder
from tests.support.runs import Runs
from tests.support.story import SECOND, Story
from tests.support.tables_by_hand import MS

TAPS: Final = ("initiator", "target")
RECORDED: Final = captures_folder() / "slow" / "64_blackout_300ms.json"
TOLD: Final = re.compile(
    r"I/O waited [\d.]+ s because the path was down, at most [\d.]+ ms at a time\. It was down (\d+) times, about "
    r"every ([\d.]+) s \((?:first )?at [\d., a-z]+ s\), each time for at least ([\d.]+) ms, at most ([\d.]+) ms: "
    r"packets (.*) were lost\.(.*)"
)
EVERY: Final = " ".join(f"--fault black-out,for=300ms,at={at}s" for at in (0.5, 2, 3.5, 5, 6.5))
LINK: Final = "--seconds 8 --one-way-delay 2ms --rate 1Gbit"


@pytest.fixture(scope="module", name="runs")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def _loss(diagnosis: Diagnosis) -> str:
    return next((each.text for each in diagnosis.sessions[0].findings if each.name == "loss"), "")


def _diagnoses(captures: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    for tap, capture in captures.items():
        yield tap, _loss(examine(iscsitrace.read(capture, tables=NEEDED).table))
    yield "both", _loss(examine(read_taps(dict(captures), tables=NEEDED).table))


def _check(text: str, times: int, every_s: float, lasted_ms: float) -> str:
    """The sides to which packets were lost."""
    found = TOLD.fullmatch(text)
    assert found, text
    assert int(found[1]) == times
    assert float(found[2]) == pytest.approx(every_s, abs=0.1)
    assert float(found[3]) <= lasted_ms <= float(found[4]), text
    # a timer of 200 ms shows it within one step
    assert float(found[4]) - float(found[3]) < 300, text
    return found[5]


@pytest.mark.skipif(not RECORDED.exists(), reason="no recorded captures")
@pytest.mark.parametrize("is_late", [False, True], ids=["whole", "late"])
def test_kernels_say_the_same_at_each_tap(is_late: bool, tmp_path: Path) -> None:
    """netem dropped all packets of both directions five times, for 300.2 to 303.9 ms; nine and thirteen packets."""
    captures = {tap: RECORDED.with_name(f"{RECORDED.stem}.{tap}.pcap.gz") for tap in TAPS}
    if is_late:
        for tap, capture in captures.items():
            records, link_type = read_records(capture)
            later = [record for record in records if record.time_ns >= records[0].time_ns + 6 * SECOND]
            captures[tap] = write_pcap(tmp_path / f"{tap}.pcap", later, link_type)
    for tap, text in _diagnoses(captures):
        assert _check(text, 5, 1.6, 300.2) == "in both directions", tap


@pytest.mark.parametrize("operation", ["read --block-size 8K", "write --block-size 64K"])
def test_five_of_300_ms(operation: str, runs: Runs) -> None:
    made = runs(f"{operation} {LINK} {EVERY}")
    for tap, text in _diagnoses({tap: made.capture(tap) for tap in TAPS}):
        assert _check(text, 5, 1.5, 300.0), tap


@pytest.mark.parametrize(("way", "tap"), [("initiator", "initiator"), ("target", "target")])
def test_one_direction_alone_is_not_said_to_be_both(way: str, tap: str, runs: Runs) -> None:
    """Beside the host whose packets arrive, it is silent: what it sends in answer is lost."""
    made = runs(f"read --block-size 8K {LINK} {EVERY.replace('300ms', f'300ms,direction=to-{way}')}")
    text = _loss(examine(iscsitrace.read(made.capture(tap), tables=NEEDED).table))
    assert _check(text, 5, 1.5, 300.0) == f"to the {way}"


@pytest.mark.parametrize(
    "options",
    [
        "read --block-size 8K --loss 1%",
        "write --block-size 8K --loss 5%",
        # the answers to some retransmissions are lost, too
        "read --block-size 8K --set to-target-loss=10%",
        # a single lost packet
        "read --block-size 8K --fault black-out,for=5ms,at=2s",
        # packets that overtake others by 40 ms, with as much jitter
        "write --block-size 8K --set reorder=5%,40ms --set jitter=30ms",
        # a full queue that drops many at once
        "read --block-size 1M --queue-depth 8 --queue 20 --rate 20Mbit",
        # storage that stalls, and storage that is slow
        "read --block-size 8K --fault delayed-status,every=20,by=400ms,operation=read",
        "read --block-size 8K --service-delay 250ms",
        # a program that pauses
        "read --block-size 8K --think-time 250ms",
    ],
)
def test_what_is_none(options: str, runs: Runs) -> None:
    link = LINK.replace(" --rate 1Gbit", "") if "--rate" in options else LINK
    made = runs(f"{options} {link}")
    for tap, text in _diagnoses({tap: made.capture(tap) for tap in TAPS}):
        assert "was down" not in text, (tap, text)


def _told(number: int, **columns: Any) -> str | None:
    """What is said of so many recoveries of 400 ms, one every 2 s; the commands wait for all of them."""
    story = Story().tasks(1, ("transfer", MS))
    for _ in range(number):
        start = story.now
        story.task(("loss_recovery", 400 * MS), ("transfer", 100 * MS)).pause(1_500 * MS)
        story.add(
            "recoveries",
            time_first_ns=start + 200 * MS,
            time_last_ns=start + 400 * MS,
            cause="timeout",
            black_out_first_ns=start - MS,
            black_out_last_ns=start + 395 * MS,
            black_out_least_ns=190 * MS,
            **{"retransmitted_packets": 2, "to_target": True} | columns,
        )
    found = story.found("loss")
    return found.text if found else None


def test_the_side_that_fell_silent_may_have_been_down() -> None:
    lasted = "for at least 190.0 ms, at most 396.0 ms"
    assert _told(3, is_black_out_to_receiver=True) == (
        "I/O waited 1.2 s because the path or the target was down, at most 400.0 ms at a time. It was down 3 times, "
        f"about every 2.0 s (at 1.00, 3.00 and 5.00 s), each time {lasted}: packets to the target were lost."
    )
    # a host that does not number its packets
    silent = _told(3, to_target=False)
    assert silent
    assert silent.endswith(f"(at 1.00, 3.00 and 5.00 s), each time {lasted}: the initiator sent no answer.")
    assert " because the path or the initiator was down, " in silent
    # its own packets were lost on the path
    alone = _told(1, is_black_out_from_receiver=True)
    assert alone == (
        "I/O waited 400.0 ms because the path was down, at most 400.0 ms at a time. "
        f"It was down at 1.00 s {lasted}: packets to the initiator were lost."
    )


def test_many_are_told_by_the_first_and_the_last() -> None:
    many = _told(7)
    assert many
    assert " It was down 7 times, about every 2.0 s (first at 1.00 s, last at 13.00 s), each time " in many


def test_a_host_that_pauses_reports_each_retransmission() -> None:
    assert _told(3, spurious_packets=2) is None
    again = _told(3, spurious_packets=1)
    assert again
    assert "down 3 times" in again


def test_two_losses_in_a_row_are_not_one() -> None:
    assert "down" not in (_told(1, is_black_out_to_receiver=True) or "")


def test_they_explain_most_of_the_waits() -> None:
    """Two black-outs among other losses, which take as long."""
    story = Story().tasks(10, ("loss_recovery", 30 * MS), ("transfer", 100 * MS))
    for _ in range(2):
        start = story.now
        story.task(("loss_recovery", 100 * MS), ("transfer", 100 * MS))
        story.add(
            "recoveries",
            time_first_ns=start,
            time_last_ns=start + 100 * MS,
            retransmitted_packets=2,
            black_out_first_ns=start,
            black_out_last_ns=start + 90 * MS,
            black_out_least_ns=MS,
        )
    found = story.found("loss")
    assert found
    assert "down" not in found.text
