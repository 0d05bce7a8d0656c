"""The headline of a failure stays the same where the capture is damaged, as long as it still shows the failure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from tests.support.capture_file import Record, read_records, thin, write_pcapng

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"
_SEED = 7
_SNAPLEN = 128
_COPY_NS = 2_000
_JITTER_NS = 20_000


def _late(records: Sequence[Record]) -> list[Record]:
    start_ns = records[0].time_ns + (records[-1].time_ns - records[0].time_ns) // 10
    return [record for record in records if record.time_ns >= start_ns]


def _early(records: Sequence[Record]) -> list[Record]:
    end_ns = records[-1].time_ns - (records[-1].time_ns - records[0].time_ns) // 10
    return [record for record in records if record.time_ns <= end_ns]


def _copied(records: Sequence[Record]) -> list[Record]:
    chance = random.Random(_SEED)  # noqa: S311 (repeatable, not secret)
    copies = [replace(each, time_ns=each.time_ns + _COPY_NS) for each in records if chance.random() < 0.01]
    return sorted((*records, *copies), key=lambda record: record.time_ns)


def _disordered(records: Sequence[Record]) -> list[Record]:
    """As the queues of two directions write them."""
    chance = random.Random(_SEED)  # noqa: S311 (repeatable, not secret)
    moved = [replace(each, time_ns=each.time_ns + chance.randrange(_JITTER_NS)) for each in records]
    return sorted(moved, key=lambda record: record.time_ns)


DAMAGES: dict[str, Callable[[Sequence[Record]], list[Record]]] = {
    "drops": lambda records: thin(records, 0.01, _SEED),
    "snaplen": lambda records: [replace(record, data=record.data[:_SNAPLEN]) for record in records],
    "starts late": _late,
    "stops early": _early,
    "copies": _copied,
    "disorder": _disordered,
}

RECORDINGS = (
    *("black-out-lio", "lun-reset-lio", "reservation-held-lio", "rst-target-tgt", "storage-errors-lio"),
    *("stuck-command-lio", "target-paused-tgt", "target-restart-lio", "unreachable-portal-lio"),
)

CHANGES: dict[tuple[str, str], tuple[str, str]] = {
    # what the damaged capture shows, and why it is another headline
    ("black-out-lio", "drops"): ("connection_lost", "of the last read the status may be what the capture misses"),
    ("reservation-held-lio", "stops early"): ("none", "the conflict comes after the end"),
    ("unreachable-portal-lio", "snaplen"): ("none", "the answer to SendTargets is cut before the portal's port"),
}


def _headline(file: Path) -> str | None:
    headline = examine(iscsitrace.read(file, tables=NEEDED).table).headline
    return headline.name if headline else None


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_damaged_capture_has_the_same_headline(tmp_path: Path, name: str) -> None:
    file = VECTORS / name / "initiator.pcapng.gz"
    whole = _headline(file)
    records, link_type = read_records(file)
    found = {
        damage: _headline(write_pcapng(tmp_path / "damaged.pcapng", change(records), link_type))
        for damage, change in DAMAGES.items()
    }
    assert found == {damage: CHANGES.get((name, damage), (whole,))[0] for damage in DAMAGES}
