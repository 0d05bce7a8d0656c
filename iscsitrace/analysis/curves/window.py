"""Bytes in flight of a sender, and their bounds: windows and losses.

Times are those at the sender, as in the table ``window``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from iscsitrace.analysis.curves import tasks
from iscsitrace.analysis.curves.decimation import Detail, LineMaker, chunks, extremes
from iscsitrace.analysis.curves.marks import Array, Line, Spans
from iscsitrace.analysis.curves.view import View
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Table, null_value

_NULL = null_value("int64")
RECOVERY_LIMIT = 300
"""Recoveries beyond which those less than a pixel apart are joined."""


@dataclass(frozen=True)
class Window:
    """The curves of one sender."""

    view: View
    change_count: int
    """Rows of the table in the view."""
    is_decimated: bool
    owin: Line
    pipe: tuple[Line, ...]
    """Only where it differs from owin: a line for each stretch."""
    rwnd: tuple[Line, ...]
    """A line for each stretch in which it is known."""
    cwnd: tuple[Line, ...]
    """The estimated congestion window: a line for each stretch in which it is valid."""
    valid_share: float
    """Share of the view's time in which the estimate is valid."""
    kernel_cwnd: Line = field(default_factory=Line)
    """The congestion window of the kernel's TCP_INFO, where there are samples of the sender's host."""
    kernel_ssthresh: Line = field(default_factory=Line)
    """Its slow start threshold, where it has one."""
    retransmissions: dict[str, Line] = field(default_factory=dict)
    """By cause: when, and owin at that time."""
    recoveries: Spans = field(default_factory=Spans)
    tasks: tasks.Tasks = field(default_factory=tasks.Tasks)


def prepare(
    window: Table,
    retransmissions: Table,
    recoveries: Table,
    cycles: Table,
    view: View,
    detail: Detail | None = None,
    tcp_info: Table | None = None,
) -> Window:
    """The curves of the view's connection and direction; InputInvalid without data in the view or before it."""
    detail = detail or Detail()
    rows = _rows(window, view)
    times = window.raw("time_ns")[rows]
    # from the row that is valid at the start of the view to the last one in it
    first, last = np.searchsorted(times, [view.start_ns, view.end_ns + 1]).tolist()
    if not last:
        raise InputInvalid(
            f"nothing to draw: connection {view.connection} has no bytes in flight in the view, or before it"
        )
    rows = slice(rows.start + max(0, first - 1), rows.start + last)
    edges = detail.edges(last - first, view.start_ns, view.end_ns)
    owin = _line(window, "owin_bytes", rows, view, edges)
    cwnd, valid_ns = _runs(window, "cwnd_estimate_bytes", window.raw("is_valid")[rows], rows, view, edges)
    is_apart = window.raw("pipe_bytes")[rows] != window.raw("owin_bytes")[rows]
    return Window(
        view=view,
        change_count=last - first,
        is_decimated=edges is not None,
        owin=owin,
        pipe=_runs(window, "pipe_bytes", is_apart, rows, view, edges)[0],
        rwnd=_runs(window, "rwnd_bytes", np.ones(len(is_apart), dtype=bool), rows, view, edges)[0],
        cwnd=cwnd,
        valid_share=valid_ns / (view.end_ns - view.start_ns),
        kernel_cwnd=_kernel_line(tcp_info, "cwnd_segments", view, detail),
        kernel_ssthresh=_kernel_line(tcp_info, "ssthresh_segments", view, detail),
        retransmissions=_retransmissions(retransmissions, owin, view, edges),
        recoveries=_recoveries(recoveries, view),
        tasks=tasks.of_view(cycles, view),
    )


def _rows(table: Table, view: View) -> slice:
    """The rows of the view's connection and direction, which are adjacent and in order of time."""
    is_wanted = view.is_of(table)
    first = int(np.append(is_wanted, True).argmax())
    return slice(first, first + int(is_wanted.sum()))


def _line(window: Table, name: str, rows: slice, view: View, edges_ns: Array | None) -> Line:
    maker = LineMaker(view.start_ns, view.end_ns, edges_ns)
    times, values = window.raw("time_ns")[rows], window.raw(name)[rows]
    for part in chunks(len(times)):
        is_known = values[part] != _NULL
        maker.add(times[part][is_known], values[part][is_known])
    return maker.line()


def _kernel_line(samples: Table | None, name: str, view: View, detail: Detail) -> Line:
    """A window of TCP_INFO in bytes: the kernel counts it in segments."""
    if samples is None:
        return Line()
    own = samples.select(view.is_of(samples) & view.covers(samples.raw("time_ns")))
    values, sizes, times = own[name], own["segment_bytes"], own.raw("time_ns")
    is_known = ~(np.ma.getmaskarray(values) | np.ma.getmaskarray(sizes))
    maker = LineMaker(view.start_ns, view.end_ns, detail.edges(int(is_known.sum()), view.start_ns, view.end_ns))
    maker.add(times[is_known], np.ma.getdata(values)[is_known].astype(np.int64) * np.ma.getdata(sizes)[is_known])
    return maker.line()


def _runs(
    window: Table, name: str, is_wanted: Array, rows: slice, view: View, edges_ns: Array | None
) -> tuple[tuple[Line, ...], int]:
    """A line for each run of wanted rows with a value, held until the row that ends it; and their total time."""
    times, values = window.raw("time_ns")[rows], window.raw(name)[rows]
    is_valid = is_wanted & (values != _NULL)
    if not is_valid.any():
        return (), 0
    change = np.flatnonzero(np.diff(is_valid, prepend=False, append=False))
    starts, ends = change[::2], change[1::2]
    until_ns = np.append(times, view.end_ns)[ends]
    since_ns = np.maximum(times[starts], view.start_ns)
    valid_ns = int(np.maximum(until_ns - since_ns, 0).sum())
    if edges_ns is None:
        kept = np.flatnonzero(is_valid)
    else:
        places = np.flatnonzero(is_valid)
        kept = places[extremes(times[places], values[places], edges_ns)]
    run = np.searchsorted(starts, kept, side="right") - 1
    lines = []
    for chosen in np.split(kept, np.flatnonzero(np.diff(run)) + 1):
        number = run[np.searchsorted(kept, chosen[0])]
        held_ns = np.append(np.maximum(times[chosen], view.start_ns), until_ns[number])
        lines.append(Line(held_ns, np.append(values[chosen], values[chosen[-1]])))
    return tuple(lines), valid_ns


def _retransmissions(retransmissions: Table, owin: Line, view: View, edges_ns: Array | None) -> dict[str, Line]:
    times = retransmissions.raw("time_ns")
    is_here = view.is_of(retransmissions) & view.covers(times)
    causes = retransmissions["cause"]
    found = {}
    for cause in retransmissions.words("cause"):
        at = times[is_here & (causes == cause)]
        if len(at):
            place = np.maximum(np.searchsorted(owin.times_ns, at, side="right") - 1, 0)
            maker = LineMaker(view.start_ns, view.end_ns, edges_ns)
            maker.add(at, owin.values[place])
            found[cause] = maker.points()
    return found


def _recoveries(recoveries: Table, view: View) -> Spans:
    starts, ends = recoveries.raw("time_first_ns"), recoveries.raw("time_last_ns")
    # a loss without an end lasts to the end of the view
    ends = np.where(ends == _NULL, view.end_ns, ends)
    is_here = view.is_of(recoveries) & (starts <= view.end_ns) & (ends >= view.start_ns)
    if is_here.sum() > RECOVERY_LIMIT:
        return tasks.union(starts[is_here], ends[is_here], view)
    return Spans(starts[is_here], ends[is_here])
