"""The arrays of the plots of several taps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.plots import style
from iscsitrace.plots.kind import view_of_commands, view_of_data_commands
from iscsitrace.plots.kinds import legs, load, path
from iscsitrace.plots.ladder_columns import lost_beyond
from iscsitrace.plots.marks import Detail
from iscsitrace.plots.style import duration
from iscsitrace.plots.view import View, Zoom
from iscsitrace.tables.trace import read
from iscsitrace.taps.reading import TappedTables, read_taps

FOLDER = Path(__file__).parents[2] / "samples" / "loss-1-percent"
MS = 1_000_000


@pytest.fixture(scope="module")
def trace() -> TappedTables:
    return read_taps({"host": FOLDER / "capture.pcap.gz", "disk": FOLDER / "target.pcap.gz"})


def test_means_of_legs_add_up_to_the_mean_latency(trace: TappedTables) -> None:
    view = view_of_data_commands(trace, Zoom(), 0)
    found = legs.compute(trace.legs, trace.cycles, view)
    rows = trace.cycles.select(trace.cycles["operation"] == "read")
    assert found.command_count == len(rows)
    for (operation, size), means in found.by_size.items():
        of_size = rows["latency_ns"][rows["bytes"] == size]
        assert operation == "read"
        assert means.sum() == pytest.approx(of_size.mean())
    starts, latencies = rows.raw("command_first_ns"), rows["latency_ns"]
    for number, (start, end) in enumerate(zip(found.edges_ns[:-1], found.edges_ns[1:], strict=True)):
        inside = latencies[(starts >= start) & (starts < end)]
        assert found.over_time[:, number].sum() == pytest.approx(inside.mean() if len(inside) else 0)


def test_the_network_has_both_directions_which_clocks_do_not_change(trace: TappedTables) -> None:
    view = view_of_data_commands(trace, Zoom(), 0)
    ahead = read_taps({"host": FOLDER / "capture.pcap.gz", "disk": FOLDER / "target.pcap.gz"}, are_synchronised=True)
    place = legs.PARTS.index("network")
    one, other = (legs.compute(each.legs, each.cycles, view).over_time[place] for each in (trace, ahead))
    # the clocks differ by 4 ms and more
    assert trace.legs.raw("to_target_ns").tolist() != ahead.legs.raw("to_target_ns").tolist()
    assert one == pytest.approx(other, abs=0.05 * MS)


def test_delays_and_losses(trace: TappedTables) -> None:
    view = view_of_commands(trace, Zoom(), 0)
    found = path.compute(trace.networks[0], ("host", "disk"), view, Detail())
    # netem: 8 ms in each direction, and no loss to the target
    assert found.round_trip_ns is not None
    assert 16 * MS < found.round_trip_ns < 17 * MS
    assert len(found.lost_to_target_ns) == 0
    assert len(found.lost_to_initiator_ns) == 36
    assert (np.diff(found.to_target.times_ns) >= 0).all()
    for line, band in zip((found.to_target, found.to_initiator), found.bands, strict=True):
        # the clocks leave open how both directions share it: the truth is within the band
        assert np.nanmin(band.lows) < 8 * MS < np.nanmin(band.highs)
        assert (np.nanmin(band.lows) <= line.values).all()
        assert (line.values <= np.nanmax(band.highs)).all()
    clock = trace.networks[0].clock
    assert found.unsure_ns == max(clock.high_ns - clock.offset_ns, clock.offset_ns - clock.low_ns)
    assert path.notes(found) == [
        f"both directions together take {duration(found.round_trip_ns)} or more: measured",
        "the split between the directions is estimated: where one is longer by up to "
        f"{duration(found.unsure_ns)}, the other is shorter by as much; how a delay varies is measured",
    ]
    few = path.compute(trace.networks[0], ("host", "disk"), view, Detail(limit=10, columns=20))
    assert len(few.to_target) <= 80
    assert few.to_target.values.max() == found.to_target.values.max()


def test_the_points_have_the_median_of_the_table(trace: TappedTables) -> None:
    (row,) = trace.taps.rows()
    found = path.compute(trace.networks[0], ("host", "disk"), View(0, 0, 1 << 62), Detail(limit=1 << 30))
    for line, name in ((found.to_target, "delay_a_to_b_p50_ns"), (found.to_initiator, "delay_b_to_a_p50_ns")):
        assert np.quantile(line.values, 0.5, method="inverted_cdf") == row[name]


def test_synchronised_clocks_leave_nothing_open() -> None:
    trace = read_taps({"host": FOLDER / "capture.pcap.gz", "disk": FOLDER / "target.pcap.gz"}, are_synchronised=True)
    found = path.compute(trace.networks[0], ("host", "disk"), view_of_commands(trace, Zoom(), 0), Detail())
    assert found.unsure_ns == 0
    assert len(path.notes(found)) == 1
    with style.applied():
        figure = style.new_figure()
        path.draw(figure, found)
    assert [each.get_label() for axes in figure.axes for each in axes.lines] == [
        *("delay to the target", "delay to the initiator", "lost between the taps")
    ]
    assert not any(axes.patches for axes in figure.axes)


def test_one_tap_tells_the_packets_that_were_lost_beyond_it(trace: TappedTables) -> None:
    """Those that the other capture lacks: netem dropped them."""
    packets = trace.networks[0].packets
    assert packets
    lost = packets.losses.raw("frame")[packets.losses["verdict"] == "lost_in_network"]
    kind = load("ladder")
    for name, expected in (("target.pcap.gz", sorted(lost.tolist())), ("capture.pcap.gz", [])):
        one = read(FOLDER / name, tables=kind.tables)
        assert one.segments.raw("frame")[lost_beyond(one.segments, one.retransmissions)].tolist() == expected
    one = read(FOLDER / "target.pcap.gz", tables=kind.tables)
    found = kind.prepare(one, view_of_data_commands(one, Zoom(cycles=range(48, 49)), 0), Detail())
    with style.applied():
        figure = style.new_figure()
        kind.draw(figure, found)
    (axes,) = figure.axes
    (crosses,) = [line for line in axes.lines if line.get_label() == "lost beyond the tap, retransmitted later"]
    places = np.asarray(crosses.get_xdata())
    assert len(places) == len(found.lost) > 0
    # between the initiator and the tap at the target
    assert np.allclose(places, found.columns[1].place / 2)


@pytest.mark.parametrize("kind", ["legs", "path"])
def test_a_single_tap_has_nothing_to_draw(kind: str) -> None:
    one = read(FOLDER / "capture.pcap.gz", tables=load(kind).tables)
    with pytest.raises(InputInvalid, match="two or more captures"):
        load(kind).drawing(one, Zoom(), 0, Detail())
