"""Events of TCP connections: opened, refused, unanswered, reset, closed, silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from iscsitrace.events.capture import LONG_NS, Batch, EventSource, texts
from iscsitrace.measure.path import is_reset_of_a_device
from iscsitrace.relate.portals import written
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Array, Table
from iscsitrace.wording import amounts

_PLACES: Final = ("initiator_address", "target_address", "target_port")
_NEVER: Final = np.iinfo(np.int64).max


def events(capture: EventSource) -> Iterator[Batch]:
    """All of them, for connections that carry iSCSI or try to reach a portal."""
    yield _opened(capture)
    yield _refused(capture)
    yield _unanswered(capture)
    yield from _ended(capture)
    yield from _silent(capture)


def _of(capture: EventSource, which: Array) -> dict[str, Array]:
    rows = capture.connections
    return {"session": rows.raw("session")[which], "connection": rows.raw("connection")[which]}


def _opened(capture: EventSource) -> Batch:
    rows = capture.connections
    which = np.flatnonzero(
        capture.is_ours & known(rows, "syn_ack_ns") & known(rows, "syn_ns") & ~rows.raw("is_refused")
    )
    again = rows.raw("retransmitted_syns_to_target")[which]

    def word(initiator: str, target: str, port: int, syns: int) -> str:
        text = f"{initiator} opened a connection to {written(target, port)}"
        return f"{text}, after {syns + 1} SYNs" if syns else text

    return Batch(
        "tcp_open",
        rows.raw("syn_ns")[which],
        texts(word, *(rows.raw(name)[which] for name in _PLACES), again),
        frame=rows.raw("syn_frame")[which],
        end_ns=rows.raw("syn_ack_ns")[which],
        severity=np.where(again > 0, "warning", "info"),
        **_of(capture, which),
    )


def _refused(capture: EventSource) -> Batch:
    rows = capture.connections
    which = np.flatnonzero(capture.is_ours & rows.raw("is_refused") & known(rows, "rst_to_initiator_ns"))

    def word(initiator: str, target: str, port: int) -> str:
        return f"{written(target, port)} refused a connection from {initiator}: RST to the SYN"

    return Batch(
        "tcp_refused",
        rows.raw("rst_to_initiator_ns")[which],
        texts(word, *(rows.raw(name)[which] for name in _PLACES)),
        frame=rows.raw("rst_to_initiator_frame")[which],
        **_of(capture, which),
    )


def _unanswered(capture: EventSource) -> Batch:
    rows = capture.connections
    again = rows.raw("retransmitted_syns_to_target")
    syns = np.where(known(rows, "syn_ns"), rows.raw("syn_ns"), capture.end_ns)
    # where only one direction was captured, the initiator goes on with data
    is_silent = known(rows, "syn_ns") & (rows.raw("packets_to_initiator") == 0) & ~known(rows, "data_last_to_target_ns")
    which = np.flatnonzero(capture.is_ours & is_silent & ((again > 0) | (capture.end_ns - syns >= LONG_NS)))

    def word(initiator: str, target: str, port: int, count: int) -> str:
        tries = f"{count + 1} SYNs" if count else "the SYN"
        return f"{written(target, port)} did not answer {tries} from {initiator}"

    return Batch(
        "tcp_unanswered",
        rows.raw("syn_ns")[which],
        texts(word, *(rows.raw(name)[which] for name in _PLACES), again[which]),
        frame=rows.raw("syn_frame")[which],
        end_ns=rows.raw("time_last_to_target_ns")[which],
        **_of(capture, which),
    )


def _ended(capture: EventSource) -> Iterator[Batch]:
    """Every first RST of a host, and the first FIN where no RST came before it."""
    rows = capture.connections
    is_ours = capture.is_ours & ~rows.raw("is_refused")
    times = {
        name: np.where(known(rows, f"{name}_ns"), rows.raw(f"{name}_ns"), _NEVER)
        for name in ("fin_to_target", "fin_to_initiator", "rst_to_target", "rst_to_initiator")
    }
    first_ns = np.minimum.reduce(list(times.values()))
    severities = _severity_of_end(capture)
    replaced_ns = _replaced_ns(capture)
    for name, sent in times.items():
        what, _, direction = name.partition("_to_")
        side = "initiator" if direction == "target" else "target"
        is_first = sent == first_ns
        if what == "fin":
            # of two FINs at the same time, the initiator's
            is_first &= (side == "initiator") | (times["fin_to_target"] != sent)
            is_first &= np.minimum(times["rst_to_target"], times["rst_to_initiator"]) != sent
        which = np.flatnonzero(is_ours & (sent != _NEVER) & (is_first if what == "fin" else True))
        loss = np.where(severities == "target", "warning" if side == "target" else "info", severities)
        is_after = sent > replaced_ns
        loss[is_after] = "info"
        if what == "fin":
            closed = f"the {side} closed the connection"
            of_replaced = f"{closed} of the session that was replaced"
            text: Array | str = np.where(is_after[which], of_replaced, closed).astype(object)
        else:
            text = _of_reset(rows, name, side)[which] + np.where(is_first[which], "", " after it was closed").astype(
                object
            )
        yield Batch(
            "tcp_closed" if what == "fin" else "tcp_reset",
            sent[which],
            text,
            frame=rows.raw(f"{name}_frame")[which],
            severity=np.where(is_first[which], loss[which], "info"),
            **_of(capture, which),
        )


def _replaced_ns(capture: EventSource) -> Array:
    """For each connection when another session took the place of its own: what comes later follows from that."""
    found = capture.replacements
    own = capture.connections.raw("session").tolist()
    return np.array([found[each].at_ns if each in found else _NEVER for each in own], dtype=np.int64)


def _of_reset(rows: Table, name: str, side: str) -> Array:
    """For each connection who reset it: the side, or a device in its name."""
    direction = name.removeprefix("rst_")
    columns = (f"rst_hop_limit_{direction}", f"hop_limit_{direction}", f"time_last_{direction}_ns")
    is_device = is_reset_of_a_device(*(rows.raw(each).astype(np.int64) for each in (*columns, f"{name}_ns")))
    is_device &= np.logical_and.reduce([known(rows, each) for each in columns])
    device = f"a device between the hosts reset the connection in the {side}'s name"
    return np.where(is_device, device, f"the {side} reset the connection").astype(object)


def _severity_of_end(capture: EventSource) -> Array:
    """For each connection what its end is, if it comes before a logout; ``target``: a warning if the target did it.

    Many programs end a session without a logout when they have nothing in flight. A target does not.
    """
    rows, sessions, cycles = capture.connections, capture.table("sessions"), capture.table("cycles")
    is_lost = np.isin(sessions["end"].astype(str), ("closed", "reset", "reinstated"))
    is_lost &= sessions.raw("session_type") != CATEGORIES["session_type"].index("discovery")
    lost = sessions.raw("session")[is_lost]
    replaced = sessions.raw("replaces")[known(sessions, "replaces")]
    own = rows.raw("session")
    severities = np.where(np.isin(own, lost), "target", "info")
    severities = np.where(np.isin(own, lost) & np.isin(own, replaced), "warning", severities)
    open_commands = capture.is_open & ~cycles.raw("is_aborted")
    return np.where(np.isin(rows.raw("connection"), cycles.raw("connection")[open_commands]), "error", severities)


def _silent(capture: EventSource) -> Iterator[Batch]:
    """Hosts that sent nothing more, while the other one retransmitted."""
    rows, again = capture.connections, capture.table("retransmissions")
    for side, direction in (("target", "to_target"), ("initiator", "to_initiator")):
        answers = "to_initiator" if side == "target" else "to_target"
        is_known = known(rows, f"time_last_{direction}_ns") & known(rows, f"time_last_{answers}_ns")
        last = np.where(is_known, rows.raw(f"time_last_{answers}_ns"), 0)
        until = np.where(is_known, rows.raw(f"time_last_{direction}_ns"), 0)
        is_candidate = capture.is_ours & is_known & (until - last >= LONG_NS)
        if not is_candidate.any():
            continue
        own = again.select(again.raw("to_target") == (direction == "to_target"))
        own = own.select(np.isin(own.raw("connection"), rows.raw("connection")[is_candidate]))
        own = own.select(own.raw("time_ns") > capture.of_connection(f"time_last_{answers}_ns", own.raw("connection")))
        numbers, counts = np.unique(own.raw("connection"), return_counts=True)
        which = np.flatnonzero(is_candidate & np.isin(rows.raw("connection"), numbers))
        of_row = counts[np.searchsorted(numbers, rows.raw("connection")[which])]

        def word(count: int, side: str = side) -> str:
            return f"the {side} fell silent: {amounts.count(count, 'retransmission')} without an answer"

        yield Batch(
            "tcp_silent",
            last[which],
            texts(word, of_row),
            end_ns=until[which],
            **_of(capture, which),
        )
