"""A live pass: what the core is asked, and what it gives."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables import passes
from iscsitrace.tables.passes import Live, Pace, Settings
from tests.support.tables_by_hand import OPERATIONS, CoreError, Pass

MILLISECOND = 1_000_000


class Core:
    """Stands for the core's live pass."""

    def __init__(self, source: Any, **options: Any) -> None:
        if source == "bad":
            raise CoreError("no capture")
        self.asked: list[Any] = [(source, options)]
        self.pace = {"lag_ns": 1, "waiting_bytes": 2, "is_reduced": True, "is_leaving_out": False}
        self.pace |= {"left_out_packets": 3}
        self.inputs = [{"name": "a"}]
        self.change = "replaced"
        self.row_count = 9

    def advance(self, patience_ns: int) -> str:
        self.asked.append(("advance", patience_ns))
        if patience_ns == 0:
            raise CoreError("cut")
        return "look"

    def stop(self, is_abrupt: bool) -> None:
        self.asked.append(("stop", is_abrupt))

    def recent(self) -> Pass:
        return Pass({"budget": [{"session": 0}]})

    def look(self) -> dict[str, Any]:
        amounts = {"from_ns": 1, "to_ns": 2, "now": [], "late_count": 3, "settled_ns": 4}
        arrays = {"turnaround_operation": [2], "turnaround_ns": [5]}
        return amounts | arrays | {"pass": Pass({"cycles": [{"cycle": 7}]}), "forgotten": Pass({})}

    finish = look


@pytest.fixture
def _core(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(Live=Core, CaptureError=CoreError, OPERATIONS=OPERATIONS, share_heap=lambda: None)
    monkeypatch.setattr(passes, "_core", made, raising=False)
    monkeypatch.setattr(passes, "_core_missing", None)


pytestmark = pytest.mark.usefixtures("_core")


def asked(live: Live) -> list[Any]:
    found: list[Any] = vars(live)["_core"].asked
    return found


def test_a_view_per_second_a_quarter_of_a_second_late_keeps_ten_seconds() -> None:
    assert asked(Live(Path("a.pcap"), name="b")) == [
        (
            "a.pcap",
            {
                "name": "b",
                "interval_ns": 1_000 * MILLISECOND,
                "settle_ns": 250 * MILLISECOND,
                "keep_ns": 10_000 * MILLISECOND,
                "capture_filter": None,
                "packet_limit": None,
                "has_dynamics": True,
                "clock_after_ns": 2_000 * MILLISECOND,
                "buffer_bytes": 268_435_456,
                "lag_max_ns": None,
            },
        )
    ]


def test_a_view_has_what_the_core_gives() -> None:
    live = Live("a", Settings(packet_limit=5))
    for view in (live.look(), live.finish()):
        assert (view.from_ns, view.to_ns, view.late_count, view.settled_ns, view.now) == (1, 2, 3, 4, [])
        assert (view.turnaround_operation.tolist(), view.turnaround_ns.tolist()) == ([2], [5])
        assert view.trace.table("cycles").raw("cycle").tolist() == [7]
        assert len(view.forgotten.table("connections")) == 0
    recent = live.recent()
    assert len(recent.table("budget")) == 1
    assert recent.options["packet_limit"] == 5
    with pytest.raises(InputInvalid, match="only on request"):
        recent.table("segments")


def test_the_pass_goes_on_for_a_time_and_ends_when_asked() -> None:
    live = Live("a")
    assert live.advance(0.25) == "look"
    live.stop()
    live.stop(is_abrupt=True)
    assert asked(live)[1:] == [("advance", 250 * MILLISECOND), ("stop", False), ("stop", True)]
    assert live.pace == Pace(lag_ns=1, waiting_bytes=2, is_reduced=True, is_leaving_out=False, left_out_packets=3)
    assert (live.inputs, live.change, live.row_count) == ([{"name": "a"}], "replaced", 9)


def test_what_cannot_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CaptureUnreadable, match=r"^no capture$"):
        Live("bad")
    live = Live("a")
    with pytest.raises(CaptureUnreadable, match=r"^cut$"):
        live.advance(0)
    monkeypatch.setattr(passes, "_core_missing", ImportError("gone"))
    with pytest.raises(InputInvalid, match="the compiled core is missing, build it with 'maturin develop': gone"):
        Live("a")
