"""One-way delays between two taps over time, and the losses between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iscsitrace.analysis.curves.decimation import Detail, extremes
from iscsitrace.analysis.curves.marks import Array, Line
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.taps.network import Delays, Network
from iscsitrace.errors import InputInvalid


@dataclass(frozen=True)
class PathCurves:
    """Delays between two neighbouring taps; ns."""

    view: View
    names: tuple[str, str]
    to_target: Line
    to_initiator: Line
    unsure_ns: int
    """Half of what the bounds of the clocks leave open: one direction gains what the other loses."""
    lost_to_target_ns: Array
    """When lost packets passed the sender's tap."""
    lost_to_initiator_ns: Array


def prepare(network: Network, names: tuple[str, str], view: View, detail: Detail) -> PathCurves:
    """The delays of a view; InputInvalid where there are none."""
    out, back = (_line(each, view, detail) for each in (network.to_target, network.to_initiator))
    if not len(out) and not len(back):
        raise InputInvalid("nothing to draw: no packet of the view passed both taps")
    unsure_ns = (network.clock.high_ns - network.clock.low_ns) // 2
    lost_out, lost_back = (_lost(network, view, to_target=way) for way in (True, False))
    return PathCurves(view, names, out, back, unsure_ns, lost_out, lost_back)


def _line(delays: Delays, view: View, detail: Detail) -> Line:
    inside = (delays.time_ns >= view.start_ns) & (delays.time_ns <= view.end_ns)
    times, values = delays.time_ns[inside], delays.delay_ns[inside]
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    edges = detail.edges(len(times), view.start_ns, view.end_ns)
    kept = slice(None) if edges is None else extremes(times, values, edges)
    return Line(times[kept], values[kept])


def _lost(network: Network, view: View, *, to_target: bool) -> Array:
    """On the clock of the first tap."""
    if network.packets is None:
        return np.empty(0, dtype=np.int64)
    losses = network.packets.losses
    which = (losses["verdict"] == "lost_in_network") & (losses.raw("to_target") == to_target)
    times = losses.raw("time_ns")[which]
    if not to_target:
        times = network.clock.to_a(times, times - network.clock.offset_ns)
    return np.sort(times[(times >= view.start_ns) & (times <= view.end_ns)])
