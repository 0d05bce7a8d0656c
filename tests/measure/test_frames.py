"""Facts about frames at the borders of the parts that are computed at a time."""

from __future__ import annotations

import pytest

from iscsitrace.show import sidecar
from tests.support.tables_by_hand import table


@pytest.mark.parametrize("count", [1, 2, 3, 4, 100])
def test_every_packet_but_the_first_has_the_largest_part_of_the_time_before_it(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Packets of connection 1 at 0, 10, 30, 60 and 100, in frames 2, 4, 6, 8 and 10; the last time is not measured."""
    monkeypatch.setattr(sidecar, "_CHUNK_FRAMES", count)
    packets = [{"connection": 1, "frame": 2 * place, "time_ns": at} for place, at in enumerate((0, 10, 30, 60, 100), 1)]
    others = [{"connection": 5, "frame": frame, "time_ns": frame} for frame in (1, 3)]
    parts = ((0, 6, "transfer"), (6, 20, "propagation"), (20, 25, "ack_wait"), (25, 60, "target_service"))
    budget = [
        {"connection": 1, "time_first_ns": first, "time_last_ns": last, "part": part} for first, last, part in parts
    ]
    found = sidecar.facts(
        table("segments", *reversed(packets), *others),
        table("budget", *budget),
        table("window"),
        table("retransmissions"),
        table("violations"),
    )
    # 6 and 4 ns; 10, 5 and 5; 30
    assert [(row["frame"], row["budget_owner"]) for row in found.rows()] == [
        (4, "transfer"),
        (6, "propagation"),
        (8, "target_service"),
    ]
    assert {(row["cwnd_estimate_bytes"], row["loss_class"]) for row in found.rows()} == {(None, None)}


def test_a_frame_has_its_greatest_valid_estimate_and_its_cause() -> None:
    rows = [(7, True, 20), (7, True, 30), (7, False, 99), (8, True, None), (9, True, 10), (7, True, 25)]
    window = [{"frame": frame, "is_valid": valid, "cwnd_estimate_bytes": size} for frame, valid, size in rows]
    again = [{"frame": 3, "cause": "timeout"}, {"frame": 9, "cause": "fast"}]
    found = sidecar.facts(
        table("segments"),
        table("budget"),
        table("window", *window),
        table("retransmissions", *again),
        table("violations"),
    )
    assert [(row["frame"], row["cwnd_estimate_bytes"], row["loss_class"]) for row in found.rows()] == [
        (3, None, "timeout"),
        (7, 30, None),
        (9, 10, "fast"),
    ]
