"""Outages: times of a second or more in which commands are in flight and nothing completes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from iscsitrace.findings import statuses
from iscsitrace.findings.connection_loss import CONNECTION_LOST
from iscsitrace.findings.failures import NOP_TIMEOUT
from iscsitrace.findings.finding import NEXT_LOGIN, Advice, Observation, Problem
from iscsitrace.findings.history import History
from iscsitrace.findings.recipes import LAN
from iscsitrace.findings.session_loss import SessionLoss, losses
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.session import Session
from iscsitrace.relate.outages import OUTAGE_MIN_NS, Outage
from iscsitrace.tables.nulls import known
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital

BESIDE: Final = 8
"""A tap is beside a host if the RTT to it is less than this part of the path's (docs/method.md, section 4)."""

_TOLERANT: Final = (
    Advice(
        "Decide how long I/O may wait. open-iscsi: node.conn[0].timeo.noop_out_interval and noop_out_timeout "
        "until a dead connection is dropped, node.session.timeo.replacement_timeout until its commands fail. With"
        " multipath use a short replacement_timeout (5 to 15 s) and no_path_retry or queue_if_no_path; without, "
        "keep 120 s.",
        touches=NEXT_LOGIN,
    ),
    Advice(
        "ESXi: esxcli iscsi adapter param set (NoopOutInterval, NoopOutTimeout, RecoveryTimeout). Windows, "
        "after a restart: LinkDownTime, MaxRequestHoldTime and SrbTimeoutDelta of the iSCSI initiator.",
        touches=NEXT_LOGIN,
    ),
)
PATH: Final = Advice(
    "Find what dropped the packets at that time: link and port counters (ethtool -S), switch logs, spanning tree,"
    " a failover of a bond or of a virtual IP, firewall state."
)
_TARGET: Final = Advice(
    "Check the target at that time: it acknowledged the commands and did not answer. Look for a stalled disk or "
    "pool, a suspended process, a failover of controllers (its log, iostat -x)."
)


def of_history(history: History) -> list[Outage]:
    """The outages of a story, without the consequences of losses: those that began less than a second before a loss, or
    while a session was lost. A connection that fell silent, and that nobody closed, is lost by the outage.
    """
    if not history.outages:
        return []
    lost = [each for each in losses(history) if each.end is not None]
    lost_ns = np.sort([each.lost_ns for each in lost])
    spans = np.array(sorted((each.from_ns, each.until_ns) for each in lost), dtype=np.int64).reshape(-1, 2)
    spans[:, 1] = np.maximum.accumulate(spans[:, 1])
    starts = np.array([each.from_ns for each in history.outages], dtype=np.int64)
    is_begun_by = np.searchsorted(lost_ns, starts) < np.searchsorted(lost_ns, starts + OUTAGE_MIN_NS)
    place = np.searchsorted(spans[:, 0], starts, "right") - 1
    is_within = (place >= 0) & (starts < spans[np.maximum(place, 0), 1]) if len(spans) else np.zeros(len(starts), bool)
    return [each for each, is_loss in zip(history.outages, is_begun_by | is_within, strict=True) if not is_loss]


def _outages(history: History) -> Observation | None:
    found = of_history(history)
    if not found:
        return None
    longest = max(found, key=lambda each: each.length_ns)
    total_ns = sum(each.length_ns for each in found)
    evidence = _Evidence(history, longest)
    start = history.start_ns
    # a session that took the place of one that waited lost nothing
    sessions = tuple(dict.fromkeys(number for each in found for number in each.sessions))
    label = history.label_of(sessions)
    when = f"from {wording.seconds(longest.from_ns - start)} to {wording.seconds(longest.to_ns - start)}"
    if len(found) > 1:
        text = (
            f"{label} had no I/O {len(found):,} times, {wording.time(total_ns)} in total; the longest lasted "
            f"{wording.time(longest.length_ns)}, {when}"
        )
    else:
        text = f"{label} had no I/O for {wording.time(longest.length_ns)}, {when}"
    tcp, *others = evidence.facts()
    # what a headline leaves out comes last
    unresumed = [] if longest.is_over else ["I/O did not resume in the capture."]
    facts = [f"{evidence.commands} waited.", tcp, *unresumed, *others, *evidence.end()]
    return Observation(
        " ".join((f"{capital(text)}:", *facts)),
        evidence.frames(),
        float(total_ns),
        spans=tuple((each.from_ns, each.to_ns) for each in found),
        sessions=sessions,
        luns=evidence.luns,
        is_final=not longest.is_over,
        advice=(PATH if evidence.is_network else _TARGET, *_TOLERANT),
        points_to=evidence.side,
    )


class _Unanswered(NamedTuple):
    """Packets to the target without an answer, until it answered the SYN of a new connection."""

    first_ns: int
    last_ns: int
    """The last one that is known to have had none."""
    answer_ns: int
    connection: dict[str, Any]
    """The new one, a row of ``connections``."""

    def in_words(self) -> str:
        """``for at least 6.0 s and at most 13.2 s``; the rest of the outage is the new login."""
        least, most = wording.time(self.last_ns - self.first_ns), wording.time(self.answer_ns - self.first_ns)
        return f"for at least {least} and at most {most}"


class _Evidence:
    """What the packets show of one outage."""

    def __init__(self, history: History, outage: Outage) -> None:
        self.history = history
        self.outage = outage
        self.waiting = history.in_flight(outage.from_ns, outage.to_ns)
        again = history.rows("retransmissions")
        is_within = (again.raw("time_ns") > outage.from_ns) & (again.raw("time_ns") <= outage.to_ns)
        self._arrived = again.select(is_within & again.raw("is_spurious"))
        # for nothing, because ACKs were lost: one soon after the last data would be so without an outage
        is_late = self._arrived.raw("time_ns") >= (outage.from_ns + outage.to_ns) // 2
        self._for_nothing = self._arrived.select(is_late)
        self._again = again.select(is_within & ~again.raw("is_spurious"))

    @property
    def commands(self) -> str:
        """``3 READ and 1 WRITE commands``."""
        return statuses.in_words(self.waiting)

    @property
    def luns(self) -> tuple[int, ...]:
        """The logical units of the commands that waited."""
        return tuple(np.unique(self.waiting.raw("lun")[known(self.waiting, "lun")]).tolist())

    @property
    def is_network(self) -> bool:
        """Whether TCP had no answers, either: the path, or a host that is gone."""
        return len(self._again) + len(self._for_nothing) > 0

    @property
    def side(self) -> str | None:
        """Whose side it points to; None where the packets cannot tell."""
        to_target, to_initiator = self._retransmitted(to_target=True), self._retransmitted(to_target=False)
        if to_target and to_initiator:
            return "the path"
        if to_target or to_initiator:
            return f"the path or the {'target' if to_target else 'initiator'}"
        if len(self._for_nothing):
            return "the path"
        if not len(self.waiting):
            return None
        return "the target, or the initiator's link" if self._may_be_initiator else "the target"

    @cached_property
    def _tap(self) -> str:
        # commands and NOPs are those of the tap nearest to the initiator
        return self.history.source.tap_of(self.history.story.connections[0]["connection"], to_target=True)

    @cached_property
    def _may_be_initiator(self) -> bool:
        """Whether the initiator may have been down itself: beside it, a tap sees none of what it could not send.

        If it sends anything within the first half, a command without an ACK is retransmitted in the second: the timer
        doubles.
        """
        members = [self.history.members[number] for number in self.outage.sessions if number in self.history.members]
        if not any(_is_beside_initiator(member) for member in members):
            return False
        nops, from_ns = self.history.rows("nops"), self.outage.from_ns + OUTAGE_MIN_NS
        sent = (
            self.history.cycles.raw("command_first_ns"),
            nops.raw("request_ns")[nops.raw("is_from_initiator") & known(nops, "request_ns")],
            self.history.rows("task_management").raw("request_ns"),
        )
        half_ns = (self.outage.from_ns + self.outage.to_ns) // 2
        return not any(((times >= from_ns) & (times <= half_ns)).any() for times in sent)

    def facts(self) -> Iterator[str]:
        """What TCP and the NOPs show, as sentences."""
        to_target, to_initiator = self._retransmitted(to_target=True), self._retransmitted(to_target=False)
        how_long = f" {self._unanswered.in_words()}" if self._unanswered else ""
        if to_target and to_initiator:
            yield (
                f"TCP retransmitted in both directions ({to_target} packets to the target, {to_initiator} to the "
                f"initiator): packets were lost in both directions{how_long}."
            )
        elif to_target or to_initiator:
            side = "target" if to_target else "initiator"
            count = self._count(to_target or to_initiator)
            if self._was_up(is_target=bool(to_target)):
                why = f", though packets of the {side} arrived: those to it were lost on the path or dropped by it"
            else:
                why = f": the path or the {side} was down"
            yield f"TCP retransmitted {count} to the {side} and got no ACK{why}{how_long}."
        elif len(self._for_nothing):
            count = wording.count(len(self._for_nothing), "packet")
            yield f"TCP retransmitted {count} that had arrived: their ACKs did not come back."
        elif not len(self.waiting):
            yield (
                f"TCP retransmitted nothing, and no command passed the {self._tap}: the capture does not show which "
                "side was down."
            )
        else:
            but = f", unless the initiator's link, next to the {self._tap}, was down" if self._may_be_initiator else ""
            yield f"TCP retransmitted nothing: the target acknowledged the commands and did not answer them{but}."
        outage = self.outage
        small = [
            one.bytes
            for one in self.history.blocked
            # small packets the other way were lost as well
            if not self._retransmitted(to_target=not one.to_target)
            and one.from_ns <= outage.to_ns
            and outage.from_ns <= one.to_ns
        ]
        if small:
            yield (
                f"Packets of less than {min(small):,} bytes got through, so the cause may also be a path MTU that is "
                "too small."
            )
        pings = self.history.rows("nops")
        silent = pings.raw("is_ping") & known(pings, "request_ns")
        silent &= (pings.raw("request_ns") >= self.outage.from_ns) & (pings.raw("request_ns") <= self.outage.to_ns)
        silent &= ~known(pings, "response_ns") | (pings.raw("response_ns") >= self.outage.to_ns)
        # the sentence about the loss of the connection has the NOP before it
        if silent.any() and self._loss is None:
            first = self.history.since_start(int(pings.raw("request_ns")[silent].min()))
            word = "NOP-Out" if pings.raw("is_from_initiator")[silent].any() else "NOP-In"
            yield f"The {word} at {first} had no answer."

    @cached_property
    def _loss(self) -> SessionLoss | None:
        """The loss of the connection that it led to."""
        first_ns, last_ns = self.outage.from_ns, self.outage.to_ns
        lost = (each for each in losses(self.history) if each.lost_ns < last_ns)
        return next((each for each in lost if first_ns < max(each.lost_ns, each.login_ns or 0)), None)

    @cached_property
    def _unanswered(self) -> _Unanswered | None:
        """Which packets to the target had no answer; None without a new connection, or where the old one had a RST."""
        from_ns, loss = self.outage.from_ns, self._loss
        again = self._again.select(self._again.raw("to_target"))
        if loss is None or loss.login_ns is None or not len(again):
            return None
        rows, new = self._to_target_of(loss), self._begun_after(loss)
        answers = [(row["syn_ack_ns"] or row["rst_to_initiator_ns"], row) for row in new]
        answered = [(at_ns, row) for at_ns, row in answers if at_ns is not None]
        if not answered:
            return None
        answer_ns, first = min(answered, key=lambda each: each[0])
        resets = [row["rst_to_initiator_ns"] for row in rows if row not in new]
        if any(at_ns is not None and from_ns < at_ns < answer_ns for at_ns in resets):
            return None
        originals = again.raw("original_ns")[known(again, "original_ns")]
        sent = [*originals.tolist(), *again.raw("time_ns").tolist()]
        sent += [row["time_last_to_target_ns"] for at_ns, row in answers if at_ns is None]
        sent = [at_ns for at_ns in sent if at_ns is not None and from_ns <= at_ns < first["syn_ns"]]
        sent += [first["syn_ns"]] if first["retransmitted_syns_to_target"] else []
        return _Unanswered(min(sent), max(sent), answer_ns, first) if sent else None

    def _to_target_of(self, loss: SessionLoss) -> list[dict[str, Any]]:
        """The connections to the target that was lost."""
        target = self.history.connections_of[loss.session][0]["target_address"]
        return [row for row in self.history.story.connections if row["target_address"] == target]

    def _begun_after(self, loss: SessionLoss) -> list[dict[str, Any]]:
        """Those of them that the initiator opened within the outage."""
        rows, first_ns, last_ns = self._to_target_of(loss), self.outage.from_ns, self.outage.to_ns
        return [row for row in rows if row["syn_ns"] is not None and first_ns < row["syn_ns"] < last_ns]

    def _login(self, loss: SessionLoss) -> str:
        """``: 12.0 s until its first SYN, then 1.0 s until the login``; empty where no SYN was captured."""
        first_ns = min((row["syn_ns"] for row in self._begun_after(loss)), default=None)
        if first_ns is None or loss.login_ns is None or loss.login_ns <= first_ns:
            return ""
        waited, took = wording.time(first_ns - self.outage.from_ns), wording.time(loss.login_ns - first_ns)
        return f": {waited} until its first SYN, then {took} until the login"

    def end(self) -> Iterator[str]:
        """What became of the connection, and what ended the outage, as sentences."""
        outage, history, loss = self.outage, self.history, self._loss
        if loss:
            how, again, took = loss.how(history), "", self._login(loss)
            if loss.login_ns is not None:
                again = f"the initiator logged in again at {history.since_start(loss.login_ns)}"
            if again and loss.end is None:
                # that its connection fell silent is the outage itself
                yield f"{capital(again)}, over a new connection{took}."
            else:
                yield f"{how.removesuffix('.')}; {again}{took}." if again else how
            yield from loss.rebuilding.sentences()
            found = self._unanswered
            if found and (repeated := found.connection["retransmitted_syns_to_target"]):
                syn, answer = (history.since_start(at_ns) for at_ns in (found.connection["syn_ns"], found.answer_ns))
                yield (
                    f"The new connection took {repeated + 1} SYNs: the first, at {syn}, had no answer; a later one was "
                    f"answered at {answer}."
                )
        if outage.is_over and loss is None:
            yield "I/O resumed on the same connection."

    def _was_up(self, *, is_target: bool) -> bool:
        """Whether packets of a side that acknowledged nothing arrived meanwhile. Where both ways were down, one may
        come at the end, before the last retransmission.
        """
        is_own = self._again.raw("to_target") == is_target
        unanswered = np.sort(self._again.raw("time_ns")[is_own])[:-1]
        sent = self._arrived.raw("time_ns")[self._arrived.raw("to_target") != is_target]
        return bool(len(unanswered)) and bool(((sent > unanswered[0]) & (sent < unanswered[-1])).any())

    def _count(self, packets: int) -> str:
        """``5 packets``; ``one packet 5 times`` where the data were the same, and there are no others."""
        which = np.stack([self._again.raw(name) for name in ("connection", "stream_offset_bytes", "payload_bytes")])
        if packets > 1 and len(np.unique(which, axis=1).T) == 1:
            return f"one packet {wording.times(packets)}"
        return wording.count(packets, "packet")

    def _retransmitted(self, *, to_target: bool) -> int:
        return int((self._again.raw("to_target") == to_target).sum())

    def frames(self) -> Iterator[int | None]:
        """Of the first commands that waited, the first retransmissions, and the end."""
        yield from self.waiting.raw("command_frame")[:3].tolist()
        yield from (self._again if len(self._again) else self._for_nothing).raw("frame")[:3].tolist()
        cycles = self.history.cycles
        ended = cycles.select(known(cycles, "status_ns") & (cycles.raw("status_ns") >= self.outage.to_ns))
        if self._unanswered:
            yield self._unanswered.connection["syn_frame"]
        if self.outage.is_over and len(ended):
            yield int(ended.raw("status_frame")[ended.raw("status_ns").argmin()])


def _is_beside_initiator(session: Session) -> bool:
    to_initiator_ns, path_ns = session.rtt_ns("initiator"), session.path_ns
    return path_ns is None or to_initiator_ns is None or to_initiator_ns * BESIDE < path_ns


IO_OUTAGE: Final = Problem(
    name="io_outage",
    scope="story",
    meaning="For a second or more commands were in flight and nothing completed: the path, the target or its "
    "storage was out of service.",
    condition="An outage (iscsitrace docs method 4) that did not begin with the loss of a connection.",
    evidence="The first commands that waited, the first retransmissions, and the first status after it. The cost is "
    "its length, also across a new login. Packets to the target had no answer "
    "at least until the first SYN of the new connection, if TCP retransmitted it, and at most until the answer to a "
    "later one.",
    example="Session 0 had no I/O for 3.2 s, from 1.02 s to 4.26 s: 1 READ command waited. TCP retransmitted one "
    "packet 5 times to the target and got no ACK: the path or the target was down. I/O resumed on the same connection.",
    # the path fails for 3 s, or for as long as TCP takes for a loss
    shown_by=f"read {LAN} --fault black-out,for=3s",
    near_miss=f"read {LAN} --fault black-out,for=200ms",
    severity="error",
    rank="failure",
    advice=(PATH, _TARGET, *_TOLERANT),
    where=lambda columns: columns.sums_ns[:, :, PARTS.index("outage")].sum(axis=1) > 0,
    tell=_outages,
    accounts_for=(CONNECTION_LOST, NOP_TIMEOUT),
)
