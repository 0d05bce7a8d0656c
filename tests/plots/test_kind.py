"""What every kind of plot says of the time that it leaves out, and of captures with nothing to draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.errors import InputInvalid
from iscsitrace.plots import kinds, style
from iscsitrace.plots.marks import Detail
from iscsitrace.plots.view import Zoom
from iscsitrace.tables.trace import TraceTables
from tests.support.capture_file import write_pcap
from tests.support.conversation import Conversation, Session

SECOND = 1_000_000_000


def read(folder: Path, conversation: Conversation) -> TraceTables:
    capture = write_pcap(folder / "a.pcap", conversation.run().packets, 1)
    every = [kinds.load(kind) for kind in kinds.NAMES]
    names = tuple(dict.fromkeys(table for kind in every for table in (*kind.tables, *kind.zoomed_tables)))
    return iscsitrace.read(capture, tables=names)


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> TraceTables:
    """A login, 3 s in which nothing is asked for, and 40 reads within less than a second."""
    conversation = Conversation()
    conversation.session(Session()).login().pause(3 * SECOND).read(count=40).pause(2 * SECOND).logout()
    return read(tmp_path_factory.mktemp("late"), conversation)


def drawing(trace: TraceTables, kind: str, **zoom: Any) -> Any:
    origin_ns = trace.inputs[0]["time_first_ns"]
    times = {name: origin_ns + value for name, value in zoom.items()}
    return kinds.load(kind).drawing(trace, Zoom(**times), origin_ns, Detail())


@pytest.mark.parametrize("kind", ["sequence", "window"])
def test_a_connection_is_drawn_while_it_reads_and_says_what_it_leaves_out(late: TraceTables, kind: str) -> None:
    found = drawing(late, kind)
    start_ns, end_ns = late.cycles.raw("command_first_ns").min(), late.cycles["status_ns"].max()
    assert start_ns - found.view.start_ns == found.view.end_ns - end_ns == int(0.04 * (end_ns - start_ns))
    before, after = (f"{ns / SECOND:.3g} s" for ns in found.view.left_out_ns)
    until_s = -(-(late.inputs[0]["time_last_ns"] - late.inputs[0]["time_first_ns"]) // SECOND)
    assert (
        f"only the time of the commands: {before} before and {after} after left out (--from 0s --to {until_s}s shows "
        "all)" in found.notes
    )
    whole = drawing(late, kind, time_from_ns=0)
    assert whole.view.start_ns == late.inputs[0]["time_first_ns"]
    assert not any("left out" in note for note in whole.notes)


def test_commands_leave_out_what_is_longer_than_they_are_and_say_so(late: TraceTables) -> None:
    """40 reads of less than a second: 3 s before them, and 2 s after."""
    found = drawing(late, "latency")
    before_ns, after_ns = found.view.left_out_ns
    assert found.view.start_ns - before_ns == late.inputs[0]["time_first_ns"]
    assert found.view.end_ns + after_ns == late.inputs[0]["time_last_ns"]
    assert any("3 s before and 2 s after left out (--from 0s --to 6s shows all)" in note for note in found.notes)
    asked = drawing(late, "latency", time_from_ns=0)
    assert asked.view.left_out_ns == (0, 0)


@pytest.mark.parametrize("kind", kinds.NAMES)
def test_a_capture_without_commands_says_in_a_sentence_why_nothing_is_drawn(tmp_path: Path, kind: str) -> None:
    conversation = Conversation()
    conversation.session(Session()).login().logout()
    trace = read(tmp_path, conversation)
    if kind in ("sequence", "window", "events"):
        # the packets of the login, and its events
        with style.applied():
            drawing(trace, kind).draw(style.new_figure())
        return
    with pytest.raises(InputInvalid, match=r"^nothing to draw: [^\n]+$"):
        drawing(trace, kind)
