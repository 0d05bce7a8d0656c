"""Plots of tables made by hand: the data on their Axes, labels with units, legends, notes, bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from iscsitrace.errors import InputInvalid
from iscsitrace.plots import ladder_columns, marks, picture, style, view
from iscsitrace.plots import ladder_columns as ladder_curves
from iscsitrace.plots.kinds import cycles, ladder, latency, sequence, streams, throughput, time_breakdown, window
from iscsitrace.plots.kinds import cycles as cycle_curves
from iscsitrace.plots.kinds import latency as latency_curves
from iscsitrace.plots.kinds import sequence as sequence_curves
from iscsitrace.plots.kinds import streams as stream_curves
from iscsitrace.plots.kinds import throughput as throughput_curves
from iscsitrace.plots.kinds import time_breakdown as budget_curves
from iscsitrace.plots.kinds import window as window_curves
from iscsitrace.plots.marks import Bars, Detail, Series, Spans
from iscsitrace.plots.view import View, Zoom
from iscsitrace.tables.coverage import measure
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.taps.places import Place, TimePlaces
from iscsitrace.wording.parts import PARTS
from tests.support import xplot_file
from tests.support.tables_by_hand import MS, TRACE, table, with_waits

ACK, SYN, FIN = 16, 2, 1
VIEW = View(0, 0, 200 * MS, (1,), None, to_target=False)
ALL = View(0, 0, 200 * MS, (1,), cycles=range(3))

CONNECTION = {
    "connection": 1,
    "session": 0,
    "is_iscsi": True,
    "initiator_address": "10.0.0.1",
    "initiator_port": 40_000,
    "target_address": "10.0.0.2",
    "target_port": 3260,
    "time_first_ns": 0,
    "time_last_ns": 200 * MS,
    "rtt_to_target_min_ns": 8 * MS,
    "rtt_to_initiator_min_ns": 2 * MS,
    "captured_bytes_to_target": 100,
    "captured_bytes_to_initiator": 9000,
    "stream_bytes_to_target": 100,
    "explained_bytes_to_target": 100,
    "stream_bytes_to_initiator": 10_000,
    "explained_bytes_to_initiator": 9000,
    "pdu_count_to_target": 3,
    "pdu_count_to_initiator": 3,
}
OTHER = CONNECTION | {"connection": 2, "captured_bytes_to_initiator": 5000, "initiator_port": 40_001}


def segment(time_ms: float, to_target: bool, **row: Any) -> dict[str, Any]:
    kind = "new" if row.get("payload_bytes") else "empty"
    made = {"connection": 1, "to_target": to_target, "time_ns": int(time_ms * MS), "flags": ACK, "segment_class": kind}
    return made | {"window_bytes": 5000, "ack_offset_bytes": 0} | row


SEGMENTS = [
    segment(1, True, flags=SYN, ack_offset_bytes=None, stream_offset_bytes=-1),
    segment(2, False, flags=SYN | ACK, stream_offset_bytes=-1),
    segment(10, True, payload_bytes=48),
    segment(20, False, payload_bytes=1000, stream_offset_bytes=0, ack_offset_bytes=48),
    segment(21, False, payload_bytes=1000, stream_offset_bytes=2000, ack_offset_bytes=48),
    segment(22, True, ack_offset_bytes=1000, stream_offset_bytes=48),
    segment(23, True, ack_offset_bytes=1000, stream_offset_bytes=48),
    segment(24, False, payload_bytes=1000, stream_offset_bytes=1000, segment_class="retransmission"),
    segment(25, False, payload_bytes=1000, stream_offset_bytes=1000, segment_class="copy"),
    segment(30, True, ack_offset_bytes=3000, window_bytes=0, stream_offset_bytes=48),
    segment(40, True, flags=FIN | ACK, ack_offset_bytes=3000, stream_offset_bytes=48),
    # of another connection: not shown
    segment(20, False, connection=2, payload_bytes=7000, stream_offset_bytes=0),
]
SACKS = [
    {"connection": 1, "to_target": False, "time_ns": 23 * MS, "left_offset_bytes": 2000, "right_offset_bytes": 3000},
    {
        "connection": 1,
        "to_target": False,
        "time_ns": 26 * MS,
        "left_offset_bytes": 1000,
        "right_offset_bytes": 2000,
        "is_duplicate": True,
    },
]
PDUS = [
    {"connection": 1, "to_target": True, "opcode": 0x01, "time_first_ns": 10 * MS, "time_last_ns": 10 * MS},
    {
        "connection": 1,
        "opcode": 0x25,
        "time_first_ns": 20 * MS,
        "time_last_ns": 24 * MS,
        "data_segment_length": 2952,
        "has_status": True,
    },
    {"connection": 1, "opcode": 0x31, "time_first_ns": 24 * MS, "stream_offset_bytes": 3000, "time_last_ns": 24 * MS},
]
CYCLES = [
    {
        "cycle": 0,
        "session": 0,
        "connection": 1,
        "operation": "read",
        "is_read": True,
        "bytes": 65_536,
        "data_pdu_count": 1,
        "command_first_ns": 10 * MS,
        "data_first_ns": 20 * MS,
        "data_last_ns": 24 * MS,
        "status_ns": 24 * MS,
        "end_ns": 24 * MS,
        "next_command_ns": 27 * MS,
        "queue_depth": 1,
    },
    {
        "cycle": 1,
        "session": 0,
        "connection": 1,
        "operation": "write",
        "is_write": True,
        "bytes": 4096,
        "r2t_count": 1,
        "data_pdu_count": 1,
        "command_first_ns": 27 * MS,
        "r2t_first_ns": 30 * MS,
        "data_first_ns": 31 * MS,
        "data_last_ns": 35 * MS,
        "status_ns": 47 * MS,
        "end_ns": 47 * MS,
        "queue_depth": 1,
    },
    {"cycle": 2, "session": 0, "connection": 1, "operation": "inquiry", "command_first_ns": 60 * MS, "queue_depth": 1},
]
# all of it is busy time
BUDGET = [
    {"session": 0, "connection": 1, "time_first_ns": first * MS, "time_last_ns": last * MS, "part": part}
    | {"in_flight": "data"}
    for first, last, part in (
        (10, 18, "propagation"),
        (18, 20, "target_service"),
        (20, 24, "transfer"),
        (24, 47, "initiator_think"),
    )
]


def drawn(module: Any, curves: Any) -> Figure:
    with style.applied():
        figure = style.new_figure()
        module.draw(figure, curves)
        figure.draw_without_rendering()
    return figure


def lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """The data of each line with a label."""
    return {
        str(line.get_label()): (np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist())
        for line in axes.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def bars(axes: Axes) -> list[list[tuple[float, float]]]:
    found = []
    for collection in axes.collections:
        if isinstance(collection, LineCollection):
            found.append([tuple(point) for path in collection.get_segments() for point in np.asarray(path).tolist()])
    return found


def legends(figure: Figure) -> set[str]:
    return {
        text.get_text() for axes in figure.axes if (made := axes.get_legend()) is not None for text in made.get_texts()
    }


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def sequence_of(a_view: View = VIEW, detail: Detail | None = None, has_pdus: bool = True) -> sequence_curves.Sequence:
    tables = table("segments", *SEGMENTS), table("sacks", *SACKS), table("pdus", *PDUS) if has_pdus else None
    return sequence_curves.compute(*tables, table("cycles", *CYCLES), a_view, detail)


def window_of(a_view: View = VIEW, detail: Detail | None = None) -> window_curves.Window:
    rows = [
        # time, owin, pipe, estimate, rwnd
        (10, 1000, 1000, None, None),
        (20, 3000, 2500, 3000, 9000),
        (30, 4000, 4000, 4000, 9000),
        (40, 0, 0, None, 8000),
        (50, 2000, 2000, 2500, 8000),
    ]
    changes = [
        {
            "connection": 1,
            "time_ns": time * MS,
            "owin_bytes": owin,
            "pipe_bytes": pipe,
            "cwnd_estimate_bytes": cwnd,
            "is_valid": cwnd is not None,
            "rwnd_bytes": rwnd,
        }
        for time, owin, pipe, cwnd, rwnd in rows
    ]
    resent = [
        {"connection": 1, "time_ns": 35 * MS, "cause": "fast"},
        {"connection": 1, "time_ns": 45 * MS, "cause": "timeout"},
        {"connection": 1, "to_target": True, "time_ns": 45 * MS, "cause": "tail_probe"},
    ]
    losses = [{"connection": 1, "time_first_ns": 34 * MS, "time_last_ns": 39 * MS}]
    return window_curves.compute(
        table("window", *changes),
        table("retransmissions", *resent),
        table("recoveries", *losses),
        table("cycles", *CYCLES),
        a_view,
        detail,
    )


def ladder_of(stretches: list[dict[str, Any]] = BUDGET) -> ladder_curves.Ladder:
    return ladder_curves.compute(
        table("connections", CONNECTION),
        table("cycles", *CYCLES),
        table("segments", *SEGMENTS),
        table("pdus", *PDUS),
        table("budget", *stretches),
        View(0, 9 * MS, 30 * MS, (1,), cycles=range(1)),
    )


def throughput_of(stretches: list[dict[str, Any]] = BUDGET) -> throughput_curves.ThroughputCurves:
    edges = np.array([0, 20, 40, 60]) * MS
    a_view = View(0, 0, 60 * MS, (1,))
    return throughput_curves.compute(
        table("segments", *SEGMENTS), table("cycles", *CYCLES), table("budget", *stretches), edges, a_view
    )


def budget_of() -> budget_curves.BudgetCurves:
    edges = np.array([0, 20, 40, 60]) * MS
    return budget_curves.compute(table("budget", *BUDGET), table("cycles"), edges, View(0, 0, 60 * MS, (1,)))


def streams_of() -> stream_curves.Streams:
    owin = [
        {"connection": number, "time_ns": time * MS, "owin_bytes": amount}
        for number, time, amount in ((1, 20, 1000), (1, 30, 0), (2, 20, 7000))
    ]
    both = View(0, 0, 200 * MS, (1, 2), to_target=False)
    return stream_curves.compute(table("segments", *SEGMENTS), table("window", *owin), both)


def latency_of() -> latency_curves.Latency:
    return latency_curves.compute(*with_waits(CYCLES, CONNECTION, OTHER), VIEW)


def waterfall_of() -> cycle_curves.Waterfall:
    return cycle_curves.compute(*with_waits(CYCLES, CONNECTION, OTHER), VIEW)


EVERY: dict[str, tuple[Any, Callable[[], Any]]] = {
    "sequence": (sequence, sequence_of),
    "window": (window, window_of),
    "ladder": (ladder, ladder_of),
    "cycles": (cycles, waterfall_of),
    "latency": (latency, latency_of),
    "throughput": (throughput, throughput_of),
    "time_breakdown": (time_breakdown, budget_of),
    "streams": (streams, streams_of),
}


@pytest.mark.parametrize(
    ("name", "file_format"), [*((name, "svg") for name in EVERY), ("window", "png"), ("window", "pdf")]
)
def test_the_same_arrays_give_the_same_bytes(name: str, file_format: str) -> None:
    module, make = EVERY[name]

    def written() -> bytes:
        stream = io.BytesIO()
        with style.applied():
            figure = style.new_figure()
            curves = make()
            module.draw(figure, curves)
            picture.write_around(figure, module.title(curves), subject_of(), module.notes(curves))
            style.write(figure, stream, file_format)
        return stream.getvalue()

    one = written()
    assert one == written()
    assert not any(word in one for word in (b"CreationDate", b"<dc:date>", b"2026-", b"Matplotlib v"))


@pytest.mark.parametrize("name", EVERY)
def test_every_mark_is_in_the_legend_and_every_axis_has_its_unit(name: str) -> None:
    module, make = EVERY[name]
    figure = drawn(module, make())
    shown = legends(figure)
    labels = {label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]}
    assert labels == shown
    assert shown
    units = ("ms", "s", "KB", "bytes", "MB", "%", "commands", "latency", "KB/s")
    for axes in figure.axes:
        if axes.get_ylabel() and axes.get_ylabel() != "commands":
            assert any(unit in axes.get_ylabel().replace(",", " ").split() for unit in units), axes.get_ylabel()


def test_sequence_has_tcptraces_marks() -> None:
    figure = drawn(sequence, sequence_of())
    axes = figure.axes[1]
    assert axes.get_xlabel() == "ms after the first packet"
    assert axes.get_ylabel() == "sequence offset of data to the initiator, KB"
    found = lines(axes)
    assert found["ACK line"] == ([1, *[10, 22, 23, 30, 40, 200]][1:], [0, 1, 1, 3, 3, 3])
    # the window is closed at 30 ms
    assert found["window line: ACK + receive window"][1] == [5, 6, 6, 3, 8, 8]
    assert found["duplicate ACK"] == ([23], [1])
    assert found["zero window (Z)"] == ([30], [3])
    assert found["retransmission (R)"] == ([24], [2])
    assert found["SACK (S)"] == ([23], [3])
    assert found["D-SACK (D)"] == ([26], [2])
    assert found["PDU start: Data-In, Data-Out"] == ([20], [0])
    assert found["PDU start: R2T"] == ([24], [3])
    assert [(20, 0), (20, 1), (21, 2), (21, 3)] in bars(axes)
    assert [(24, 1), (24, 2)] in bars(axes)
    assert [(23, 2), (23, 3)] in bars(axes)
    assert "SYN" in texts(figure)
    assert {"0", "1"} <= set(texts(figure))


def test_sequence_of_the_other_direction() -> None:
    axes = drawn(sequence, sequence_of(View(0, 0, 200 * MS, (1,), to_target=True))).axes[1]
    assert axes.get_ylabel() == "sequence offset of data to the target, bytes"
    assert [(10, 0), (10, 48)] in bars(axes)
    assert lines(axes)["PDU start: SCSI Command"] == ([10], [0])


def test_a_zoomed_sequence_starts_with_the_previous_ack() -> None:
    zoomed = sequence_of(View(0, 25 * MS, 35 * MS, (1,), to_target=False))
    assert zoomed.acks.times_ns.tolist() == [25 * MS, 30 * MS, 35 * MS]
    assert zoomed.acks.values.tolist() == [1000, 3000, 3000]
    assert len(zoomed.segments["new"]) == 0


def test_a_decimated_sequence_says_so() -> None:
    found = sequence_of(detail=Detail(limit=3, columns=2))
    assert found.is_decimated
    # both segments lie in the first of two columns
    assert (found.segments["new"].lows.tolist(), found.segments["new"].highs.tolist()) == ([0], [3000])
    assert any("11 packets" in note for note in sequence.notes(found))


@pytest.mark.parametrize("detail", [None, Detail(limit=3, columns=40)])
def test_chunks_do_not_change_the_curves(monkeypatch: pytest.MonkeyPatch, detail: Detail | None) -> None:
    zoomed = View(0, 21 * MS, 35 * MS, (1,), to_target=False)
    for make in (sequence_of, window_of):
        whole = make(zoomed, detail)
        monkeypatch.setattr(marks, "CHUNK_ROWS", 1)
        parts = make(zoomed, detail)
        monkeypatch.undo()
        for name in vars(whole):
            np.testing.assert_equal(as_lists(getattr(whole, name)), as_lists(getattr(parts, name)), name)


def as_lists(curves: Any) -> Any:
    """Curves as plain values, to compare."""
    if isinstance(curves, dict):
        return {name: as_lists(each) for name, each in curves.items()}
    if isinstance(curves, Series | Bars | Spans):
        return {name: each.tolist() for name, each in vars(curves).items()}
    if isinstance(curves, tuple):
        return [as_lists(each) for each in curves]
    return str(curves)


def test_xplot_of_a_window() -> None:
    found = xplot_file.parse("\n".join(window_curves.in_xplot(window_of(), "a\ntitle")))
    assert (found.types, found.names["title"]) == (("timeval", "double"), "a title")
    assert found.of("line", "red")[:3] == [
        (Decimal("0.010000"), 1000, Decimal("0.020000"), 1000),
        (Decimal("0.020000"), 1000, Decimal("0.020000"), 3000),
        (Decimal("0.020000"), 3000, Decimal("0.030000"), 3000),
    ]
    assert found.of("atext", "red", "R") == [(Decimal("0.035000"), 4000), (Decimal("0.045000"), 0)]
    assert (Decimal("0.050000"), 2500, Decimal("0.200000"), 2500) in found.of("line", "green")


def test_a_sequence_without_pdus_says_so() -> None:
    assert any("zoomed" in note for note in sequence.notes(sequence_of(has_pdus=False)))


def test_window_draws_the_estimate_only_where_it_is_valid() -> None:
    figure = drawn(window, window_of())
    axes = figure.axes[1]
    assert axes.get_ylabel() == "bytes in flight, KB"
    found = lines(axes)
    assert found["owin: sent, not acknowledged"] == ([10, 20, 30, 40, 50, 200], [1, 3, 4, 0, 2, 2])
    assert found["pipe: estimated in the network, where it differs"] == ([20, 30], [2.5, 2.5])
    assert found["receive window (rwnd)"] == ([20, 30, 40, 50, 200], [9, 9, 8, 8, 8])
    # a gap between 40 and 50 ms
    times, values = found["congestion window (cwnd), estimated"]
    np.testing.assert_array_equal(times, [20, 30, 40, 40, 50, 200])
    np.testing.assert_array_equal(values, [3, 4, 4, np.nan, 2.5, 2.5])
    # the windows are in front of the data
    order = {str(line.get_label()): line.get_zorder() for line in axes.get_lines()}
    assert order["owin: sent, not acknowledged"] < order["congestion window (cwnd), estimated"]
    assert order["congestion window (cwnd), estimated"] < order["receive window (rwnd)"]
    assert found["fast retransmit"] == ([35], [4])
    assert found["timeout"] == ([45], [0])
    assert "tail loss probe" not in found
    (span,) = [patch for patch in axes.patches if patch.get_label() == "loss recovery"]
    assert (span.get_extents().transformed(axes.transData.inverted()).x0) == pytest.approx(34)
    # 20 to 40 and 50 to 200 of 200 ms
    assert window_of().valid_share == pytest.approx(170 / 200)


def test_window_without_an_estimate_says_so() -> None:
    found = window_of(View(0, 41 * MS, 49 * MS, (1,)))
    assert found.cwnd == ()
    assert found.owin.values.tolist() == [0, 0]
    assert any("no estimate" in note for note in window.notes(found))


def test_a_large_window_does_not_flatten_the_plot() -> None:
    rows = [{"connection": 1, "time_ns": MS, "owin_bytes": 1000, "pipe_bytes": 1000, "rwnd_bytes": 900_000}]
    empty = table("retransmissions"), table("recoveries"), table("cycles", *CYCLES)
    found = window_curves.compute(table("window", *rows), *empty, VIEW)
    figure = drawn(window, found)
    assert figure.axes[1].get_ylim()[1] == pytest.approx(1.08)
    assert "\N{UPWARDS ARROW} receive window 900 KB" in texts(figure)
    assert "receive window (rwnd)" not in legends(figure)
    assert "the receive window is above the plot: 900 KB" in window.notes(found)


def test_a_window_without_bytes_in_flight_has_an_axis() -> None:
    rows = [{"connection": 1, "time_ns": MS, "owin_bytes": 0, "pipe_bytes": 0, "rwnd_bytes": 0}]
    empty = table("retransmissions"), table("recoveries"), table("cycles", *CYCLES)
    figure = drawn(window, window_curves.compute(table("window", *rows), *empty, VIEW))
    assert figure.axes[1].get_ylim() == (0, 1)


def test_ladder_puts_packets_between_hosts_and_tap() -> None:
    found = ladder_of()
    assert found.columns[1].place == pytest.approx(0.2)
    figure = drawn(ladder, found)
    (axes,) = figure.axes
    base = 9
    # the command passes the tap at 10 ms: 1 ms after the initiator sent it, 4 ms before the target has it
    assert [(0.0, 9 - base), (0.2, 10 - base), (1.0, 14 - base)] == bars(axes)[1][:3]
    assert {"initiator", "tap", "target", "Command", "status complete"} <= {text.strip() for text in texts(figure)}
    assert any("Data-In 2952" in text for text in texts(figure))
    assert any(text.startswith("8 ms network RTT") for text in texts(figure))
    # every colour of the column is in the legend, also of spans too short for a name
    assert {"transfer", "network RTT", "target service", "initiator idle"} <= legends(figure)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert "command 0 read 64K" in ladder.title(found)
    assert [(stretch.start_ns, stretch.end_ns, stretch.part) for stretch in found.stretches] == [
        (10 * MS, 18 * MS, "propagation"),
        (18 * MS, 20 * MS, "target_service"),
        (20 * MS, 24 * MS, "transfer"),
        (24 * MS, 30 * MS, "initiator_think"),
    ]


def test_a_ladder_has_no_breakdown_where_there_is_none() -> None:
    """The time behind the last command is no transfer."""
    (axes,) = drawn(ladder, ladder_of(BUDGET[:3])).axes
    column = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    # from 10 to 24 ms of a view that lasts to 30
    assert max(patch.get_y() + patch.get_height() for patch in column) == pytest.approx(24 - 9)


def test_a_long_ladder_names_what_it_leaves_out() -> None:
    start, end = 60 * MS, 1_060 * MS
    middle = ladder_curves.Middle(start, end, 312, 1, 40, {"Data-In": 3}, {"congestion_window": 900 * MS})
    long_view = View(0, 0, 1_100 * MS, (1,), cycles=range(1))
    found = replace(ladder_of(), view=long_view, middle=middle)
    (axes,) = drawn(ladder, found).axes
    (text,) = [text for text in texts(drawn(ladder, found)) if "packets with data" in text]
    assert text == (
        "\N{HORIZONTAL ELLIPSIS} 3 Data-In, 312 packets with data, 1 retransmission, 40 ACKs in 1 s "
        "\N{HORIZONTAL ELLIPSIS}\n900 ms congestion window"
    )
    # 100 ms are shown, and the middle as 12 more
    assert abs(axes.get_ylim()[0] - axes.get_ylim()[1]) == pytest.approx(112)
    ticks = dict(zip([label.get_text() for label in axes.get_yticklabels()], axes.get_yticks().tolist(), strict=True))
    # ticks count the time that is left out
    assert ticks["40"] == pytest.approx(40)
    assert ticks["1080"] == pytest.approx(60 + 12 + 20)
    assert not any(60 < float(name) < 1_060 for name in ticks)
    assert any("the middle is left out" in note for note in ladder.notes(found))


def test_a_ladder_of_two_taps_has_true_times_and_losses() -> None:
    """netem dropped the second of the three, whose place in the plot is half way between the taps."""
    columns = (ladder_columns.LadderColumn(0, "initiator", "host"), ladder_columns.LadderColumn(1, "target", "disk"))
    times = np.array([[20, 12], [20, 11], [26, 18]]) * MS
    packets = [ladder_columns.LadderPackets(times[row : row + 1], np.array([False])) for row in range(3)]
    found = replace(
        ladder_of(),
        columns=columns,
        data=packets[0],
        lost=packets[1],
        again=packets[2],
        acks=ladder_columns.LadderPackets(),
        pdus=(),
    )
    figure = drawn(ladder, found)
    (axes,) = figure.axes
    base = 9
    assert bars(axes) == [
        [(0.0, 20 - base), (1.0, 12 - base)],
        [(0.0, 26 - base), (1.0, 18 - base)],
        [(1.0, 11 - base), (0.5, 15.5 - base)],
    ]
    (cross,) = [line for line in axes.lines if line.get_label() == "lost between the taps"]
    assert np.asarray(cross.get_xydata()).tolist() == [[0.5, 6.5]]
    assert {"initiator", "target"} <= {text.strip() for text in texts(figure)}
    assert ladder.notes(found)[0] == (
        "times are those at each tap, on the clock of the first; tap host at the initiator; tap disk at the target"
    )


def test_labels_of_a_ladder_stay_apart_and_within_the_axis() -> None:
    assert ladder._apart([], 1, 0, 10) == []
    assert ladder._apart([2, 2, 5], 1, 0, 10) == [2, 3, 5]
    assert ladder._apart([0, 9.5, 9.9], 1, 0, 10) == [0.5, 9, 10]


def test_ladder_without_budget_shades_nothing() -> None:
    found = ladder_of([])
    assert found.stretches == ()
    assert any("not shaded" in note for note in ladder.notes(found))
    assert "idle span at the tap" not in legends(drawn(ladder, found))


def test_ladder_needs_round_trips() -> None:
    row = CONNECTION | {"rtt_to_target_min_ns": None}
    empty = table("budget")
    with pytest.raises(InputInvalid, match="RTTs of connection 1 are unknown"):
        ladder_curves.compute(
            table("connections", row), table("cycles"), table("segments", *SEGMENTS), table("pdus"), empty, VIEW
        )


def test_cycles_stack_their_phases() -> None:
    found = cycle_curves.compute(*with_waits(CYCLES, CONNECTION), ALL)
    when, where = drawn(cycles, found).axes
    stacked: dict[str, list[tuple[float, float, float]]] = {}
    for container in where.containers:
        stacked[str(container.get_label())] = [
            (patch.get_y() + 0.4, patch.get_x(), patch.get_width()) for patch in container if patch.get_width()
        ]
    # without a status from 60 ms to the last packet of the connection at 200 ms
    assert stacked.pop("no status: in flight") == [(2, 0, 140)]
    assert stacked == {
        "request: command to first data": [(0, 0, 10)],
        "grant: command to first R2T": [(1, 0, 3)],
        "transfer: first to last data": [(0, 10, 4), (1, 3, 5)],
        "service: last write data to status": [(1, 8, 12)],
        "turnaround: status to next command": [(0, 14, 3)],
    }
    assert where.get_xlabel() == "ms since the command"
    assert "no status, in flight 140 ms" in [text.get_text() for text in where.texts]
    assert [label.get_text() for label in when.get_yticklabels()] == ["0  read 64K", "1  write 4K", "2  inquiry"]
    assert any("1 of the commands shown have no status" in note for note in cycles.notes(found))


def test_many_cycles_show_the_slowest_of_each_group() -> None:
    rows = [
        {
            "cycle": n,
            "connection": 1,
            "operation": "read",
            "bytes": 4096,
            "command_first_ns": n * MS,
            "status_ns": (n + 1 + n % 7) * MS,
        }
        for n in range(1000)
    ]
    found = cycle_curves.compute(*with_waits(rows, CONNECTION, OTHER), View(0, 0, 2000 * MS, (1,)))
    assert len(found.cycles) == cycle_curves.ROW_LIMIT
    assert found.latencies_ns.tolist() == [7 * MS] * cycle_curves.ROW_LIMIT
    assert any("1,000 commands" in note for note in cycles.notes(found))


def test_latency_over_time_and_as_a_distribution() -> None:
    found = latency_of()
    over_time, distribution, heat, block_sizes, *_ = drawn(latency, found).axes
    found_lines = lines(over_time)
    times, heights = found_lines.pop("no status (time in flight)")
    assert found_lines == {"read": ([10], [14 * MS]), "write": ([27], [20 * MS])}
    # in a strip at the top, beside it the time from 60 ms to the last packet of the connection at 200 ms
    assert times == [60]
    assert 0.8 < heights[0] < 1
    assert over_time.get_ylim()[1] > 20 * MS
    assert [text.get_text() for text in over_time.texts] == ["140 ms"]
    assert lines(distribution)["read"] == ([14 * MS, 14 * MS], [0, 100])
    assert distribution.get_ylabel() == "% of commands"
    assert found.heat.sum() == 2
    assert heat.get_xlabel() == "ms after the first packet"
    assert [label.get_text() for label in block_sizes.get_xticklabels()] == ["4K", "64K"]
    assert found.block_sizes["write"][4096]["max"] == 20 * MS
    assert any("1 command without a status" in note for note in latency.notes(found))


def test_latency_percentiles_are_those_of_the_commands() -> None:
    rows = [
        {"cycle": n, "connection": 1, "operation": "read", "bytes": 512, "status_ns": n * MS, "queue_depth": 1}
        for n in range(1, 101)
    ]
    found = latency_curves.compute(*with_waits(rows, CONNECTION, OTHER), VIEW)
    assert found.block_sizes == {
        "read": {512: {"n": 100, "p50": 50 * MS, "p95": 95 * MS, "p99": 99 * MS, "max": 100 * MS}}
    }
    values, shares = found.distribution["read"]
    assert (values.tolist(), shares.tolist()) == ([n * MS for n in range(1, 101)], [n / 100 for n in range(1, 101)])


def test_throughput_idle_and_queue_depth_per_step() -> None:
    found = throughput_of()
    # the read's cycle lasts from 10 to 27 ms: 10 of its 17 ms are in the first step of 20 ms, 7 in the second
    first, second = 10 / 17 / 0.02, 7 / 17 / 0.02
    # 2000 new bytes and 1000 retransmitted; the copy was made by the capture
    assert found.to_initiator_bytes_per_s == pytest.approx([2000 * first, 2000 * second, 0])
    assert found.again_bytes_per_s == pytest.approx([1000 * first, 1000 * second, 0])
    assert found.to_target_bytes_per_s == pytest.approx([48 * first, 48 * second, 0])
    assert found.idle_share is not None
    # 4 ms of transfer; the breakdown lasts from 10 to 47 ms
    assert found.idle_share == pytest.approx([1 - 4 / 17, 1 - 4 * 7 / 17 / 20, 1])
    # the read is in flight for 14 ms of its cycle, the write from 27 to 47 ms
    assert found.queue_depth_mean == pytest.approx([14 * 10 / 17 / 20, (14 * 7 / 17 + 13) / 20, 7 / 20])
    assert found.queue_depth_max.tolist() == [1, 1, 1]
    rate, idle, depth = drawn(throughput, found).axes
    assert (rate.get_ylabel(), idle.get_ylabel()) == ("TCP payload, KB/s", "idle, % of I/O time")
    assert depth.get_xlabel() == "ms after the first packet"


def test_retransmissions_are_no_throughput_in_either_direction() -> None:
    rows = [
        segment(at, to_target, payload_bytes=size, segment_class=kind)
        for at, to_target, size, kind in (
            *((1, True, 100, "new"), (2, True, 30, "retransmission"), (3, True, 7, "copy")),
            *((4, False, 500, "new"), (5, False, 60, "retransmission"), (6, False, 9, "reordered")),
        )
    ]
    edges = np.array([0, 10 * MS])
    found = throughput_curves.compute(
        table("segments", *rows), table("cycles"), table("budget"), edges, View(0, 0, 10 * MS, (1,))
    )
    # in 10 ms
    assert found.to_target_bytes_per_s.tolist() == [10_000]
    assert found.to_initiator_bytes_per_s.tolist() == [50_900]
    assert found.again_bytes_per_s.tolist() == [9_000]


def test_a_stream_counts_bytes_since_the_start_of_the_view() -> None:
    rows = [
        segment(at, False, payload_bytes=1_000, stream_offset_bytes=offset)
        for at, offset in ((5, 0), (15, 1_000), (16, 3_000), (17, 2_000), (18, 4_000))
    ]
    view = View(0, 10 * MS, 20 * MS, (1,), to_target=False)
    (stream,) = stream_curves.compute(table("segments", *rows), table("window"), view).streams
    assert stream.passed_bytes == 4_000
    assert stream.passed.times_ns.tolist() == [each * MS for each in (15, 16, 17, 18, 20)]
    # a byte out of order does not move the furthest place
    assert stream.passed.values.tolist() == [1_000, 3_000, 3_000, 4_000, 4_000]


def test_throughput_without_a_budget_says_so() -> None:
    assert "no time breakdown for this view: idle fraction unknown" in texts(drawn(throughput, throughput_of([])))


def test_mean_and_max_against_counting_instants() -> None:
    chance = np.random.default_rng(7)
    for _ in range(50):
        starts = chance.integers(0, 30, 6)
        ends = starts + chance.integers(0, 12, 6)
        edges = np.array([5, 12, 20, 33])
        mean, greatest = throughput_curves.mean_and_max(starts, ends, edges)
        for place, (low, high) in enumerate(pairwise(edges.tolist())):
            counts = [int(((starts <= at) & (at < ends)).sum()) for at in range(low, high)]
            assert mean[place] == pytest.approx(sum(counts) / len(counts))
            assert greatest[place] == max(counts)


def test_the_parts_of_the_breakdown_stack_to_all_of_the_time() -> None:
    found = budget_of()
    assert found.shares.sum(axis=0) == pytest.approx([1, 1, 1])
    over_time, totals = drawn(time_breakdown, found).axes
    assert over_time.get_ylabel() == "% of I/O time"
    widths = [patch.get_width() for container in totals.containers for patch in container]
    assert widths == pytest.approx([4 / 37 * 100, 8 / 37 * 100, 2 / 37 * 100, 23 / 37 * 100])
    assert [label.get_text() for label in totals.get_yticklabels()] == ["connection 1\n37 ms"]
    assert time_breakdown.title(found) == "Time breakdown of connection 1"


def test_the_breakdown_by_place_is_below_that_by_cause() -> None:
    """Of two sessions, one of which is not in the view."""
    shares: dict[Place, float] = {"network": 0.75, "target": 0.2, "initiator": 0.05}
    verdicts = [TimePlaces(number, 3, 10 * MS, {}, shares) for number in (0, 7)]
    rows = [row | {"session": 0} for row in BUDGET]
    edges = np.array([0, 20, 40, 60]) * MS
    view_of_all = View(0, 0, 60 * MS, (1,))
    found = budget_curves.compute(table("budget", *rows), table("cycles"), edges, view_of_all, verdicts)
    assert [each.session for each in found.places] == [0]
    figure = drawn(time_breakdown, found)
    _, totals = figure.axes
    bars_below = [
        patch for patch in totals.patches if isinstance(patch, Rectangle) and round(patch.get_y() + 0.375) == 1
    ]
    assert [(bar.get_x(), bar.get_width()) for bar in bars_below] == [
        pytest.approx(each) for each in ((0, 75), (75, 20), (95, 5))
    ]
    assert [label.get_text() for label in totals.get_yticklabels()] == ["connection 1\n37 ms", "session 0\nby place"]
    assert {"network 75 %", "target 20 %"} <= set(texts(figure))
    assert time_breakdown.notes(found)[0].startswith(
        "session 0 by place: network 75 %, target 20 %, initiator's host 5 % of"
    )
    assert "62 %" in [text.get_text() for text in totals.texts]


def test_every_part_of_the_breakdown_has_a_distinct_look() -> None:
    assert tuple(part.name for part in PARTS) == CATEGORIES["budget_part"]
    assert len({(part.color, part.hatch) for part in PARTS}) == len(PARTS)


def test_parallel_streams() -> None:
    found = streams_of()
    assert [stream.connection for stream in found.streams] == [2, 1]
    passed, outstanding = drawn(streams, found).axes
    # the retransmission fills a hole: the furthest place is 3000 before and after it
    assert lines(passed) == {
        "connection 2": ([20, 200], [7, 7]),
        "connection 1": ([20, 21, 24, 200], [1, 3, 3, 3]),
    }
    assert lines(outstanding) == {"connection 2": ([20, 200], [7, 7]), "connection 1": ([20, 30, 200], [1, 0, 0])}
    assert (passed.get_ylabel(), outstanding.get_ylabel()) == (
        "bytes carried since the start of the view, KB",
        "bytes in flight (owin), KB",
    )


NOTHING = [
    (lambda: sequence_of(View(0, 100 * MS, 110 * MS, (1,))), "connection 1 has no packets in the view"),
    (lambda: window_of(View(0, 0, MS, (1,))), "connection 1 has no bytes in flight in the view, or before it"),
    (
        lambda: cycle_curves.compute(*with_waits([], CONNECTION, OTHER), VIEW),
        "no SCSI command was in flight",
    ),
    (
        lambda: latency_curves.compute(*with_waits(CYCLES[2:3], CONNECTION, OTHER), VIEW),
        "no SCSI command of the view has a status",
    ),
    (lambda: budget_curves.compute(table("budget"), table("cycles"), np.array([0, MS]), VIEW), "no I/O time"),
    (lambda: stream_curves.compute(table("segments"), table("window"), VIEW), "no payload passed the tap"),
    (
        lambda: throughput_curves.compute(table("segments"), table("cycles"), table("budget"), np.array([0, MS]), VIEW),
        "no payload passed the tap",
    ),
]


@pytest.mark.parametrize(("make", "message"), NOTHING)
def test_nothing_to_draw_is_a_one_line_error(make: Any, message: str) -> None:
    with pytest.raises(InputInvalid, match=f"nothing to draw: .*{message}") as raised:
        make()
    assert "\n" not in str(raised.value)


def subject_of(**row: Any) -> picture.PlotSubject:
    connections = table("connections", CONNECTION | row)
    return picture.subject_of_view(["/data/ring/$a_1$.pcap"], connections, measure(connections), VIEW)


def footer_of(about: picture.PlotSubject) -> str:
    return "\n".join(picture.facts(about))


def test_the_footer_has_the_source_of_the_numbers() -> None:
    text = footer_of(subject_of())
    assert "ring/$a_1$.pcap; first packet 1970-01-01T00:00:00.000000000Z" in text
    assert "connection 1: 10.0.0.1:40000 - 10.0.0.2:3260" in text
    assert "tap between initiator and target (minimum RTT: to the initiator 2 ms, to the target 8 ms)" in text
    # 9100 of 10100 bytes, rounded down
    assert "decoded 90 % of bytes" in text
    assert "of PDUs" not in text


@pytest.mark.parametrize(
    ("to_initiator", "to_target", "words"),
    [(MS, 9 * MS, "near the initiator"), (9 * MS, MS, "near the target"), (None, MS, "tap position unknown")],
)
def test_the_footer_has_the_position_of_the_tap(to_initiator: int | None, to_target: int, words: str) -> None:
    about = subject_of(rtt_to_initiator_min_ns=to_initiator, rtt_to_target_min_ns=to_target)
    assert words in footer_of(about)


def test_footer_has_no_coverage_when_all_is_decoded() -> None:
    assert "decoded" not in footer_of(subject_of(explained_bytes_to_initiator=10_000))


def test_a_name_cannot_break_a_plot() -> None:
    connections = table("connections", CONNECTION)
    about = picture.subject_of_view(["evil\n$\\frac{$.pcap\x1b"], connections, measure(connections), VIEW)
    figure = style.new_figure()
    with style.applied():
        picture.write_around(figure, "$\\frac{$", about)
        figure.draw_without_rendering()
    assert "\x1b" not in footer_of(about)


@pytest.fixture
def connections() -> Any:
    return table("connections", CONNECTION, OTHER, {"connection": 3, "is_iscsi": False})


def test_the_busiest_connection_is_shown_in_its_busier_direction(connections: Any) -> None:
    found = view.of_connection(connections, table("cycles", *CYCLES), Zoom(is_whole=True), 0)
    assert (found.connections, found.to_target, found.start_ns, found.end_ns) == ((1,), False, 0, 200 * MS)


def test_a_cycle_selects_its_connection_and_time(connections: Any) -> None:
    rows = [*CYCLES, CYCLES[0] | {"cycle": 3, "connection": 2, "command_first_ns": 100 * MS, "next_command_ns": None,
                                  "status_ns": 150 * MS}]  # fmt: skip
    found = view.of_connection(connections, table("cycles", *rows), Zoom(cycles=range(3, 4)), 0)
    assert found.connections == (2,)
    assert 95 * MS < found.start_ns < 100 * MS < 150 * MS < found.end_ns < 155 * MS


@pytest.mark.parametrize(
    ("zoom", "message"),
    [
        (Zoom(connection=3), "there is no iSCSI connection 3; there are 1, 2"),
        (Zoom(session=7), "there is no session 7; there are 0"),
        (Zoom(cycles=range(9, 10)), "there is no cycle 9; the capture has 3"),
        (Zoom(cycles=range(1), time_from_ns=100 * MS), "outside of --from and --to"),
    ],
)
def test_missing_subjects_are_reported(connections: Any, zoom: Zoom, message: str) -> None:
    with pytest.raises(InputInvalid, match=message):
        view.of_connection(connections, table("cycles", *CYCLES), zoom, 0)


def test_commands_are_shown_from_the_first_command_to_the_last_status(connections: Any) -> None:
    found = view.of_tasks(connections, table("cycles", *CYCLES), Zoom(), 0)
    assert (found.start_ns, found.end_ns, found.connections) == (10 * MS, 60 * MS, (1, 2))
    with pytest.raises(InputInvalid, match="connection 2 has no SCSI commands"):
        view.of_tasks(connections, table("cycles", *CYCLES), Zoom(connection=2), 0)


def test_the_trace_by_hand_can_be_drawn() -> None:
    found = view.of_tasks(table("connections", *TRACE["connections"]), table("cycles", *TRACE["cycles"]), Zoom(), 0)
    assert found.connections == (1,)


@pytest.mark.parametrize(
    ("length_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1 µs"),
        (1_500_000, "1.5 ms"),
        (999_400_000, "999 ms"),
        (999_600_000, "1 s"),
    ],
)
def test_a_duration_has_three_digits_and_no_exponent(length_ns: int, text: str) -> None:
    assert style.duration(length_ns) == text
    assert style.duration(1_234 * 10**9) == "1,230 s"
