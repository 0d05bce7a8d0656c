"""What holds for every capture holds for captures whose clock runs backwards; and what breaks is noticed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import le
from pathlib import Path
from typing import Any

import pytest

from iscsitrace.events import tables as event_tables
from iscsitrace.findings.finding import Finding
from iscsitrace.show import diagnose, summary
from iscsitrace.tables import phases
from tests.consistency.test_consistency import sample
from tests.support import invariants
from tests.support.capture_file import Record, read_records, write_pcapng
from tests.support.recordings import captures_folder
from tools.damage import damaged

ATTACKS = captures_folder().parent / "attack"
READ = sample("sequential-read-4ms")


def backwards(source: Path, file: Path, is_early: Callable[[int], bool], by_ns: int) -> Path:
    """The capture with some records dated earlier, in the same order."""
    records, link_type = read_records(source)
    moved = [
        Record(each.time_ns - by_ns, each.data, each.original_length) if is_early(number) else each
        for number, each in enumerate(records)
    ]
    return write_pcapng(file, moved, link_type)


@pytest.mark.parametrize("by_ns", [1_000, 2_000_000, 400_000_000, 7_200_000_000_000])
@pytest.mark.parametrize("name", ["sequential-read-4ms", "write-r2t-rounds", "task-abort-storage-hang"])
def test_no_time_is_negative_where_the_clock_runs_backwards(name: str, by_ns: int, tmp_path: Path) -> None:
    for number, is_early in enumerate((lambda place: place % 3 == 0, lambda place: place > 60)):
        made = backwards(sample(name), tmp_path / f"{number}.pcapng", is_early, by_ns)
        assert invariants.of_capture(made) == []


@pytest.mark.parametrize("file", sorted(ATTACKS.glob("inv_*.pcap")), ids=lambda file: file.stem)
def test_a_capture_that_once_broke_them(file: Path) -> None:
    assert invariants.of_capture(file) == []


def test_a_login_that_ends_before_it_begins(tmp_path: Path) -> None:
    """Its cost was negative, and the target closed the connection -2412941000 ns after the Login Response."""
    source = captures_folder() / "16_login_refused_tgt_digest-mismatch.pcap"
    for first in range(1, len(read_records(source)[0])):
        made = backwards(source, tmp_path / f"{first}.pcapng", partial(le, first), 5_000_000_000)
        assert invariants.of_capture(made) == []


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is noticed in a sample after something was made to answer otherwise."""

    def found(owner: Any, name: str, other: Callable[..., Any]) -> str:
        assert invariants.of_capture(READ) == []
        right = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *arguments: other(right(*arguments)))
        return "\n".join(invariants.of_capture(READ))

    return found


def test_a_span_that_ends_before_it_begins_is_noticed(broken: Any) -> None:
    assert "which ends before it begins" in broken(
        Finding, "as_dict", lambda found: found | {"spans": [[last, first - 1] for first, last in found["spans"]]}
    )


def test_a_frame_that_does_not_exist_is_noticed(broken: Any) -> None:
    assert "is 1000000, of" in broken(Finding, "as_dict", lambda found: found | {"frames": [1_000_000]})


def test_a_negative_amount_in_a_sentence_is_noticed(broken: Any) -> None:
    assert "says '-7 ms'" in broken(Finding, "as_dict", lambda found: found | {"text": "It took -7 ms."})


def test_parts_that_do_not_add_up_are_noticed(broken: Any) -> None:
    def longer(document: dict[str, Any]) -> dict[str, Any]:
        rows = [row | {"jobs_ns": row["jobs_ns"] + 1} for row in document["sessions"] if row.get("jobs_ns")]
        return document | {"sessions": rows}

    assert "busy_budget adds up to" in broken(diagnose, "as_dict", longer)


def test_a_negative_latency_is_noticed(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "percentiles" in broken(
        summary, "totals", lambda found: found | {"latency": [{"p50": 5, "p95": 4, "p99": 3, "max": 2}]}
    )
    monkeypatch.undo()
    right = phases._no_less_than_0
    monkeypatch.setattr(phases, "_no_less_than_0", lambda found: right(found)._replace(data=found.data - 10**12))
    assert "cycles.latency_ns is -" in "\n".join(invariants.of_capture(READ))


def test_events_out_of_order_are_noticed(broken: Any) -> None:
    assert "not in order of time" in broken(event_tables, "_table", lambda found: found.select(slice(None, None, -1)))


def test_harmful_characters_are_found() -> None:
    assert invariants.harmful("plain text, µs, é, 漢字\n") == ""
    assert invariants.harmful("\x1b\u202e\u200b\u2028\x9b") == "U+001B U+009B U+200B U+2028 U+202E"


@pytest.mark.parametrize("case", range(40))
def test_damaged_samples(case: int, tmp_path: Path) -> None:
    names = ("mid-session", "task-abort-storage-hang", "medium-error", "chap-refused-then-accepted")
    source, other = (sample(name) for name in (names[case % 4], names[(case + 1) % 4]))
    made = tmp_path / "damaged"
    made.write_bytes(damaged(source.read_bytes(), case, other.read_bytes()))
    assert invariants.of_capture(made) == []


@pytest.mark.parametrize(
    ("case", "name", "other"),
    [
        # recoveries that overlap at the tap; a full window whose ACKs are long on their way; a PDU whose last packet
        # has an earlier time; a compressed file that is cut short behind blocks that Wireshark numbers
        (7_600_538, "reordering", "reordering"),
        (7_604_233, "mid-session", "medium-error"),
        (7_601_507, "two-connections-one-session", "login-not-authorized"),
        (7_602_430, "write-r2t-rounds", "snaplen-128"),
    ],
)
def test_damage_that_once_broke_them(case: int, name: str, other: str, tmp_path: Path) -> None:
    made = tmp_path / "damaged"
    made.write_bytes(damaged(sample(name).read_bytes(), case, sample(other).read_bytes()))
    assert invariants.of_capture(made) == []
