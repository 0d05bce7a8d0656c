"""Failures: digest errors, NOPs without an answer, aborted commands. One is enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.events.exchanges import NOP_TIMEOUT_NS, awaited_until, is_late
from iscsitrace.findings import breaches
from iscsitrace.findings.case import Case
from iscsitrace.findings.finding import NEXT_LOGIN, Advice, Observation, Problem
from iscsitrace.findings.recipes import WAN
from iscsitrace.measure.capture_health import may_lack_pdus
from iscsitrace.measure.session import frames_in
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.rules import ALWAYS_WRONG
from iscsitrace.wording.sentences import capital

# --- digest_errors

_DIGEST_COUNTERS: Final = {"header_digest_error": "header", "data_digest_error": "data"}
_SENDERS: Final = {"initiator": "digest_errors_to_target", "target": "digest_errors_to_initiator"}


def _digests(case: Case) -> Observation | None:
    counters = case.subject.tables["counters"]
    is_digest = counters.each(_is_digest_error)
    if not is_digest.any():
        return None
    rows = [row for row in counters.select(is_digest).rows() if row["count"]]
    if not rows:
        return None
    counts = {word: sum(row["count"] for row in rows if row["name"] == name) for name, word in _DIGEST_COUNTERS.items()}
    text = " and ".join(wording.count(count, f"{word} digest error") for word, count in counts.items() if count)
    senders = [end for end, name in _SENDERS.items() if any(row[name] for row in case.subject.connections)]
    by_whom = f" in PDUs from the {' and the '.join(senders)}" if senders else ""
    # the bytes changed before they passed the capture point
    side = f"the {senders[0]}, or the path between it and the capture point" if len(senders) == 1 else None
    frames = [row["first_frame"] for row in rows]
    always = breaches.of_case(case, ALWAYS_WRONG)
    if always:
        # corruption on the way would spare some of them
        text = f"{breaches.sentence_of(always[0], case.groups.start_ns)} {capital(text)}"
        worst = always[0].side
        return Observation(text + by_whom, frames, advice=(breaches.advice(always[0]),), points_to=f"the {worst}")
    return Observation(text + by_whom, frames, points_to=side)


def _is_digest_error(counters: Table) -> NDArray[np.bool_]:
    return np.isin(counters["name"].astype(str), [*_DIGEST_COUNTERS])


DIGEST_ERRORS: Final = Problem(
    name="digest_errors",
    meaning="Header or data digests do not match: something changes bytes on their way to the capture point, and TCP's "
    "checksum does not detect it.",
    condition="At least one PDU with a digest error. It points to the side that sent the PDUs: they changed before "
    "they passed the capture point. With errors in both directions the packets cannot tell. Where every digest of "
    "a kind is wrong, its sender computes them wrongly, and the text says so.",
    evidence="The first such PDU of each connection. No share.",
    example="1 data digest error in PDUs from the target.",
    shown_by="read --block-size 64K --bytes 4M --set data-digest=crc32c --fault "
    f"bad-data-digest,operation=read,nth=5 {WAN}",
    near_miss=f"read --block-size 64K --bytes 4M --set data-digest=crc32c {WAN}",
    severity="error",
    rank="failure",
    advice=(
        Advice(
            "Find what changes bytes: NIC offloads (ethtool -K ... tx off rx off tso off, one after another), memory, "
            "firmware, middleboxes."
        ),
        Advice(
            "Keep node.conn[0].iscsi.HeaderDigest and node.conn[0].iscsi.DataDigest enabled: without them the "
            "corruption is silent."
        ),
    ),
    where=lambda columns: columns.count("counters", _is_digest_error) > 0,
    tell=_digests,
)


# --- nop_timeout


def _pings(case: Case) -> Observation | None:
    subject = case.subject
    nops = subject.tables["nops"]
    if not len(nops):
        return None
    # where PDUs are missing from the capture, the answer can be among them
    whole = [row for row in subject.connections if not may_lack_pdus(row.__getitem__)]
    ends = {row["connection"]: row["time_last_ns"] for row in whole}
    last = np.array([ends.get(number, 0) for number in nops.raw("connection").tolist()], dtype=np.int64)
    last = awaited_until(nops, last, _closed_ns(nops, whole))
    late = is_late(nops, last)
    if not late.any():
        return None
    silent = int((late & ~known(nops, "response_ns")).sum())
    frames = frames_in(nops, np.flatnonzero(late), "request_frame", "response_frame")
    from_initiator = nops.raw("is_from_initiator")[late]
    word = "NOP-Out" if from_initiator.all() else "NOP" if from_initiator.any() else "NOP-In"
    without_any = f", {silent} never had one" if silent else ""
    text = f"{wording.count(int(late.sum()), word)} had no answer for {wording.time(NOP_TIMEOUT_NS)}{without_any}"
    side = "the path or the target" if from_initiator.all() else None if from_initiator.any() else _OTHER_END
    until = np.where(known(nops, "response_ns"), nops.raw("response_ns"), last)[late].tolist()
    spans = tuple(sorted(zip(nops.raw("request_ns")[late].tolist(), until, strict=True)))
    return Observation(text, frames, points_to=side, spans=spans)


def _closed_ns(nops: Table, connections: Iterable[Mapping[str, Any]]) -> NDArray[np.int64]:
    """The first FIN or RST of the sender of each NOP; the largest int64 where there is none."""
    closed = {}
    for row in connections:
        for is_from_initiator, direction in ((True, "to_target"), (False, "to_initiator")):
            times = [row[f"{flag}_{direction}_ns"] for flag in ("fin", "rst")]
            closed[row["connection"], is_from_initiator] = min(
                (each for each in times if each is not None), default=_NEVER
            )
    keys = zip(nops.raw("connection").tolist(), nops.raw("is_from_initiator").tolist(), strict=True)
    return np.array([closed.get((number, bool(ours)), _NEVER) for number, ours in keys], dtype=np.int64)


_NEVER: Final = np.iinfo(np.int64).max
_OTHER_END: Final = "the path or the initiator"


NOP_TIMEOUT: Final = Problem(
    name="nop_timeout",
    meaning="A NOP-Out or NOP-In had no answer in time: the path or the peer stalled. Initiators drop the connection "
    "after this time.",
    condition=f"At least one NOP whose answer took {NOP_TIMEOUT_NS / 1e9:g} s or more, or that had none for this time "
    "until the connection's last packet.",
    evidence="The NOPs and their late answers. No share.",
    example="1 NOP-Out had no answer for 5.0 s.",
    severity="error",
    rank="failure",
    advice=(
        Advice("Find what stalled at that time: `iscsitrace cycles --slower 1s`, the logs of network and target."),
        Advice(
            "Set the time-outs: node.conn[0].timeo.noop_out_interval and node.conn[0].timeo.noop_out_timeout until "
            "open-iscsi drops a connection, node.session.timeo.replacement_timeout until its commands fail (short "
            "with multipath, else long).",
            touches=NEXT_LOGIN,
        ),
    ),
    where=lambda columns: columns.count("nops") > 0,
    tell=_pings,
)


# --- task_aborts

# RFC 7143 section 11.5.1
_ABORT_FUNCTIONS: Final = (1, 2, 4, 5, 6, 7)
_ABORT_TASK: Final = 1
# section 11.6.1
_NO_SUCH_TASK: Final = 1


def _aborts(case: Case) -> Observation | None:
    subject = case.subject
    table = subject.tables["task_management"]
    if not len(table):
        return None
    requests = table.select(np.isin(table.raw("function"), _ABORT_FUNCTIONS))
    if not len(requests):
        return None
    has_crossed = _has_crossed(requests, subject.cycles)
    is_harmless = bool(has_crossed.all())
    if not is_harmless:
        requests = requests.select(~has_crossed)
    frames = frames_in(requests, np.arange(len(requests)), "request_frame", "response_frame")
    about = requests.raw("referenced_cycle")[known(requests, "referenced_cycle")]
    commands = frames_in(subject.cycles, np.flatnonzero(np.isin(subject.cycles.raw("cycle"), about)), "command_frame")
    functions = ", ".join(f"{count:,} {name}" for name, count in Counter(requests["function_text"].tolist()).items())
    times = [
        (row["request_ns"], row["response_ns"] or row["request_ns"]) for row in requests.rows() if row["request_ns"]
    ]
    text = f"the initiator aborted commands: {functions}"
    if times:
        text += ", first" if len(requests) > 1 else ""
        text += f" at {wording.seconds(min(times)[0] - case.groups.start_ns)}"
    if is_harmless:
        text += (
            ". The statuses were on their way: the target is right that these tasks do not exist, and nothing was "
            "aborted"
        )
    return Observation(
        text,
        [*commands, *frames],
        severity="warning" if is_harmless else None,
        spans=tuple(sorted(times)),
        luns=tuple(np.unique(requests.raw("lun")[known(requests, "lun")]).tolist()),
        # commands were lost, whatever time it took
        is_final=True,
    )


def _has_crossed(table: Table, cycles: Table) -> NDArray[np.bool_]:
    """Which requests met the status of their command on its way: "task does not exist" is then the right answer."""
    found = (table.raw("function") == _ABORT_TASK) & (table.raw("response") == _NO_SUCH_TASK)
    for place in np.flatnonzero(found).tolist():
        request = table.row(place)
        is_own = cycles.raw("initiator_task_tag") == request["referenced_task_tag"]
        is_own &= cycles.raw("connection") == request["connection"]
        own = cycles.select(is_own & (cycles.raw("command_first_ns") < (request["response_ns"] or 0)))
        # the last one: tags are used again
        last = own.select(np.argsort(own.raw("command_first_ns"), kind="stable")[-1:])
        ended = known(last, "status_ns") & (last.raw("status_ns") < (request["response_ns"] or 0))
        found[place] = bool(ended.any())
    return np.asarray(found)


TASK_ABORTS: Final = Problem(
    name="task_aborts",
    meaning="The initiator aborted commands: ABORT TASK, or a reset of the logical unit or the target.",
    condition="At least one such task management request. It is a warning where the statuses of all commands crossed "
    "the requests, so that nothing was aborted.",
    evidence="The request, its response, and the referenced command. No share.",
    example="The initiator aborted commands: 1 LOGICAL UNIT RESET at 0.24 s.",
    severity="error",
    rank="failure",
    advice=(
        Advice("Find out why the target did not answer: check its log and backing device at that time."),
        Advice(
            "Check the time-outs: /sys/block/DEVICE/device/timeout until Linux aborts a command (30 s), then "
            "node.session.err_timeo.abort_timeout and lu_reset_timeout."
        ),
    ),
    where=lambda columns: columns.count("task_management") > 0,
    tell=_aborts,
)
