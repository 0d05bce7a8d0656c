"""One block on the sender's line: its bursts with what windows make of them, and how long they take in all."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from iscsitrace.analysis.model.bursts import first_burst_bytes, solicited_bytes
from iscsitrace.analysis.model.line import Burst, Flow, ends_ns
from iscsitrace.analysis.model.setting import Setting
from iscsitrace.analysis.model.transfer import Sender


def flow_of(setting: Setting, sender: Sender, delay_factor: float = 1.0) -> Flow:
    """The bursts of a block: of a read all its data, of a write what goes unasked and what each R2T asks for.

    In slow start the window of a burst is that at the start of the block and all that was acknowledged since.
    """
    is_read = setting.operation == "read"
    sizes = (setting.block_bytes,) if is_read else (first_burst_bytes(setting), *solicited_bytes(setting))
    window, bursts = setting.start_window_bytes or inf, []
    for size in sizes:
        stall_ns, window = sender.stall_ns(size, window)
        bursts.append(Burst(sender.line_ns(size), stall_ns))
    outstanding = setting.solicitation.max_outstanding_r2t
    return Flow(bursts[0], tuple(bursts[1:]), 2 * setting.delay_ns * delay_factor, outstanding)


def without_stalls(flow: Flow) -> Flow:
    """The same with windows that are never in the way."""
    solicited = tuple(replace(burst, stall_ns=0.0) for burst in flow.solicited)
    return replace(flow, first=replace(flow.first, stall_ns=0.0), solicited=solicited)


def line_ns(flow: Flow) -> float:
    """What the line takes for all of it."""
    return flow.first.line_ns + sum(burst.line_ns for burst in flow.solicited)


def stall_ns(setting: Setting, flow: Flow, sender: Sender) -> float:
    """How much later its last byte leaves the line for windows that wait."""
    stalled_ns = ends_ns((flow,))[0]
    if flow.outstanding > 1 and len(flow.solicited) > 1:
        # bursts that go at once share the window: no sooner than as one burst
        first, rest = flow.first, sum(solicited_bytes(setting))
        start = (setting.start_window_bytes or inf) + first_burst_bytes(setting)
        at_once_ns = line_ns(flow) + first.stall_ns + sender.stall_ns(rest, start)[0]
        stalled_ns = max(stalled_ns, flow.round_trip_ns + at_once_ns)
    return stalled_ns - ends_ns((without_stalls(flow),))[0]
