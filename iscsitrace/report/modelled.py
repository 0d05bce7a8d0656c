"""The model in a report: the fit to the steady commands of a session, and what changes would gain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from iscsitrace.findings.acknowledgments import STATUS_IN_DATA
from iscsitrace.findings.concurrency import deeper
from iscsitrace.findings.distance import blocks
from iscsitrace.findings.line import TWICE_AS_FAST
from iscsitrace.findings.transport import NO_LOSSES
from iscsitrace.findings.writes import MAX_BURST_BYTES
from iscsitrace.fit import gain
from iscsitrace.fit.gain import OF_A_CONNECTION, OF_R2TS, Change, WhatIf
from iscsitrace.fit.points import Fit, of_operation
from iscsitrace.fit.regression import fit
from iscsitrace.fit.situation import Situation
from iscsitrace.fit.steady import NEEDED, survey
from iscsitrace.measure.grouping import Grouping
from iscsitrace.show import model_fit
from iscsitrace.show.document import Grid, Section
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import sentences

__all__ = ["NEEDED", "of_session"]

TITLE: Final = "Model and predicted gains"
DEPTHS: Final = (8, 32)
BLOCKS: Final = (256 << 10, 1 << 20, 4 << 20)
_WORTH: Final = 1.05
"""Smallest gain that is shown."""


def of_session(trace: TraceTables, session: int, name: str, *, has_others: bool = False) -> Section:
    """The model of a session's steady commands in the capture of this name, and what changes would gain; else why there
    is none. Of a story that ``has_others`` the session is named.
    """
    found = survey(trace.table, name, session)
    own = of_operation([point for point in found.points if point.session == session])
    if not own:
        why = "; ".join(each.why for each in found.missing if each.session == session) or "no steady commands"
        return Section(TITLE, (sentences.sentence(f"No model of session {session}: {why}"),), "model")
    fitted, gains = fit(own), _gains(gain.of_session(Grouping(trace.table).sessions[session]))
    sentence = _sentence(fitted)
    first = f"Session {session}: {sentence[:1].lower()}{sentence[1:]}" if has_others else sentence
    return Section(TITLE, (first, *([gains] if gains else []), *model_fit.blocks(fitted)), "model")


def _sentence(found: Fit) -> str:
    setting = found.setting
    terms = [f"{found.k.value:.2f} x {wording.time(found.d_ns.value)}"]
    if found.s_ns.value > 0:
        terms.append(f"{wording.time(found.s_ns.value)} service")
    if found.c_bytes_per_s:
        passing_ns = setting.block_bytes / found.c_bytes_per_s.value * 1e9
        terms.append(f"{wording.time(passing_ns)} for {wording.size(setting.block_bytes)} on the line")
    if setting.ack_delay_ns:
        terms.append(f"{wording.time(setting.ack_delay_ns)}")
    formula = "k·d + s + B/C" + (" + ACK delay" if setting.ack_delay_ns else "")
    return f"One {setting.operation} takes {formula} = {' + '.join(terms)}."


def _gains(asked: WhatIf | None) -> Grid | None:
    """Predicted gains of one change each, as findings have them; None if the model does not describe the session."""
    if asked is None:
        return None
    found = [own for change in _changes(asked.measured.situation) if (own := asked.gain(change))]
    rows = tuple(
        (own.change, f"{own.throughput_factor:.1f}", f"{own.low:.1f}", f"{own.high:.1f}")
        for own in found
        if own.throughput_factor >= _WORTH
    )
    columns = ("change", "times as fast", "low", "high")
    return Grid("Predicted gains of one change", columns, rows) if rows else None


HALF_THE_RTT: Final = Change(
    "half the RTT",
    lambda situation: situation.with_setting(delay_ns=situation.setting.delay_ns / 2),
    OF_A_CONNECTION,
)


def _changes(situation: Situation) -> Iterator[Change]:
    setting = situation.setting
    yield from deeper(situation)
    for block in BLOCKS:
        if block > setting.block_bytes:
            yield replace(blocks(block), words=f"I/O size {wording.size(block)}")
    if setting.is_status_held:
        yield STATUS_IN_DATA
    if setting.operation == "write":
        yield Change("InitialR2T=No", partial(Situation.with_keys, is_initial_r2t=False), OF_R2TS)
        long = partial(
            Situation.with_keys,
            is_initial_r2t=False,
            first_burst_bytes=MAX_BURST_BYTES,
            max_burst_bytes=MAX_BURST_BYTES,
        )
        yield Change("InitialR2T=No, bursts as long as the I/O", long, OF_R2TS)
    if setting.window_bytes is not None:
        wide = partial(Situation.with_setting, window_bytes=4 * setting.window_bytes)
        yield Change("receive window 4 times as large", wide, ("receive_window",))
    yield NO_LOSSES
    half = partial(Situation.without, name="target_service", share=0.5)
    yield Change("half the service time", half, ("target_service",))
    yield HALF_THE_RTT
    if setting.c_bytes_per_s:
        yield TWICE_AS_FAST
