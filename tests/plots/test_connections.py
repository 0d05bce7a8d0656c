"""The plot of connections over time: its arrays by hand, and what is on the Axes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from iscsitrace.errors import InputInvalid
from iscsitrace.plots import style
from iscsitrace.plots.kinds import connections
from iscsitrace.plots.view import View
from iscsitrace.tables.table import Table
from tests.measure.test_connection_counts import reads
from tests.support.tables_by_hand import MS, table

LONG = 2_400
VIEW = View(origin_ns=0, start_ns=0, end_ns=LONG * MS, connections=(0, 1), session=0)
CYCLES = reads((0, 0, LONG, 10), (1, 1_200, LONG, 20))
"""One connection with a read of 1000 bytes each 10 ms; from 1.2 s on another with half as many."""


def resent(*rows: tuple[int, int, int]) -> Table:
    """Connection, ms and payload of each retransmission."""
    return table(
        "retransmissions",
        *({"connection": number, "time_ns": at * MS, "payload_bytes": size} for number, at, size in rows),
    )


def computed(cycles: Table = CYCLES, again: Table | None = None, view: View = VIEW) -> connections.Connections:
    return connections.compute(cycles, again, view)


def test_the_steps_have_throughput_latency_and_fairness() -> None:
    found = computed()
    assert found.counts.tolist() == [1, 2]
    assert found.changes_ns.tolist() == [0, 1_200 * MS, LONG * MS]
    half = (len(found.edges_ns) - 1) // 2
    assert found.bytes_per_s[:half] == pytest.approx(100_000, rel=0.3)
    assert found.bytes_per_s.sum() / len(found.bytes_per_s) == pytest.approx(125_000)
    assert set(found.median_ns[:half]) == {10 * MS}
    assert set(found.high_ns[half + 1 :]) == {20 * MS}
    assert np.isnan(found.jain[:half]).all()
    # of 2 and 1: 9 / (2 * 5)
    assert np.nanmean(found.jain) == pytest.approx(0.9, abs=0.05)
    assert found.measured is not None
    assert [each.connections for each in found.measured.counts] == [1, 2]


def test_a_short_view_has_a_dozen_steps() -> None:
    short = View(origin_ns=0, start_ns=0, end_ns=100 * MS, connections=(0,))
    assert len(computed(reads((0, 0, 100, 10)), view=short).edges_ns) == 13


def test_retransmissions_are_a_share_of_the_data_of_their_step() -> None:
    # one of another connection, and one after the view
    found = computed(again=resent((0, 5, 500), (7, 5, 9_000), (0, LONG + 1, 9_000)))
    assert found.resent_share is not None
    first = found.bytes_per_s[0] * (found.edges_ns[1] - found.edges_ns[0]) / 1e9
    assert found.resent_share[0] == pytest.approx(500 / first)
    assert np.nansum(found.resent_share[1:]) == 0
    assert computed().resent_share is None


def test_the_memory_of_many_connections_grows_with_them_and_not_with_their_square() -> None:
    count = 2_000
    cycles = reads(*((number, number, number + 30, 10) for number in range(count)))
    tracemalloc.start()
    counts = connections._in_use(cycles)[1]
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counts.max() == 30
    assert peak_bytes < count**2


def test_nothing_to_draw_is_one_line() -> None:
    with pytest.raises(InputInvalid, match="no complete read or write"):
        computed(table("cycles"))


def drawn(found: connections.Connections) -> tuple[Figure, list[Any]]:
    with style.applied():
        figure = style.new_figure()
        connections.draw(figure, found)
    return figure, list(figure.axes)


def test_the_panels_have_labels_and_the_legend_each_mark() -> None:
    figure, (number, rate, latency, even) = drawn(computed(again=resent((0, 5, 500))))
    assert [axes.get_ylabel() for axes in (number, rate, latency, even)] == [
        "connections",
        "KB/s",
        "ms",
        "index, share",
    ]
    legends = [*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()))]
    labels = {text.get_text() for legend in legends for text in legend.get_texts()}
    assert labels == {
        *("connections in use", "throughput of reads and writes", "mean of a number", "latency, p95"),
        *("latency, median", "Jain's fairness index", "share retransmitted"),
    }
    means = [line.get_ydata()[0] for line in rate.get_lines()]
    assert means == pytest.approx([100, 150], rel=0.02)


def test_one_connection_without_retransmissions_says_so() -> None:
    _, (*_, even) = drawn(computed(reads((0, 0, LONG, 10))))
    assert "fewer than two connections" in even.texts[0].get_text()


def test_the_notes_say_what_more_connections_bring() -> None:
    step, best = connections.notes(computed())
    assert "a command counts in the step in which it ends" in step
    assert best == "The largest number tried is the fastest: 0.1 MB/s with 2 connections"
    alike = reads((0, 0, 1_200, 10), (0, 1_200, LONG, 20), (1, 1_200, LONG, 20))
    assert connections.notes(computed(alike))[1] == "0.1 MB/s with 1 connection; more bring nothing"
    assert len(connections.notes(computed(reads((0, 0, LONG, 10))))) == 1
