"""What failed: digests, pings and tasks. One is enough."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from iscsitrace.analysis.findings.case import Case
from iscsitrace.analysis.findings.finding import Advice, Observation, Problem
from iscsitrace.analysis.findings.thresholds import MILLISECOND_NS
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.session.subject import frames_in
from iscsitrace.wording import amounts as wording

# --- digest_errors

_DIGEST_COUNTERS: Final = {"header_digest_error": "header", "data_digest_error": "data"}


def _digests(case: Case) -> Observation | None:
    counters = case.subject.tables["counters"]
    rows = [row for row in counters.rows() if row["name"] in _DIGEST_COUNTERS and row["count"]]
    if not rows:
        return None
    counts = {word: sum(row["count"] for row in rows if row["name"] == name) for name, word in _DIGEST_COUNTERS.items()}
    said = " and ".join(wording.count(count, f"{word} digest") for word, count in counts.items() if count)
    verb = "does" if sum(counts.values()) == 1 else "do"
    return Observation(f"{said} {verb} not match", [row["first_frame"] for row in rows])


DIGEST_ERRORS: Final = Problem(
    name="digest_errors",
    meaning="Header or data digests do not match: something between the two ends changes bytes behind TCP's back.",
    condition="One such PDU.",
    evidence="The first of each connection. It has no share.",
    severity="error",
    advice=(
        Advice(
            "Look for what changes bytes: NIC offloads (ethtool -K ... tx off rx off tso off, one after another), "
            "memory, firmware, middle boxes."
        ),
        Advice(
            "Leave node.conn[0].iscsi.HeaderDigest and node.conn[0].iscsi.DataDigest on: without them the damage is "
            "silent."
        ),
    ),
    observe=_digests,
)


# --- nop_timeout

NOP_TIMEOUT_NS: Final = 5_000 * MILLISECOND_NS
"""How long a ping may be without its echo: open-iscsi's default of node.conn[0].timeo.noop_out_timeout."""


def _pings(case: Case) -> Observation | None:
    subject = case.subject
    nops = subject.tables["nops"]
    asked = nops.raw("is_ping") & known(nops, "request_ns")
    has_echo = known(nops, "response_ns")
    # an echo may be among what the capture lost
    whole = [row for row in subject.connections if not row["gap_bytes_to_target"] + row["gap_bytes_to_initiator"]]
    ends = {row["connection"]: row["time_last_ns"] for row in whole}
    last = np.array([ends.get(number, 0) for number in nops.raw("connection").tolist()], dtype=np.int64)
    until = np.where(has_echo, nops.raw("response_ns"), last)
    late = asked & (until - np.where(asked, nops.raw("request_ns"), 0) >= NOP_TIMEOUT_NS)
    if not late.any():
        return None
    silent = int((late & ~has_echo).sum())
    frames = frames_in(nops, np.flatnonzero(late), "request_frame", "response_frame")
    without_any = f", {silent} without any" if silent else ""
    text = f"{wording.count(int(late.sum()), 'ping')} without an echo for {wording.time(NOP_TIMEOUT_NS)}{without_any}"
    return Observation(text, frames)


NOP_TIMEOUT: Final = Problem(
    name="nop_timeout",
    meaning="A ping (NOP-Out or NOP-In) got no echo in time: the path or the peer stood still, and initiators give "
    "the connection up for it.",
    condition=f"A ping whose echo took over {NOP_TIMEOUT_NS / 1e9:g} s, or had not come that long before the "
    "connection's last packet.",
    evidence="The pings and their late echoes. It has no share.",
    severity="error",
    advice=(
        Advice("Find what stood still meanwhile: `iscsitrace cycles --slower 1s`, the network's log, the target's."),
        Advice(
            "node.conn[0].timeo.noop_out_interval and node.conn[0].timeo.noop_out_timeout say when open-iscsi gives a "
            "connection up, node.session.timeo.replacement_timeout when it fails its tasks: with multipath short, "
            "else long."
        ),
    ),
    observe=_pings,
)


# --- task_aborts

# RFC 7143 section 11.5.1
_ABORT_FUNCTIONS: Final = (1, 2, 4, 5, 6, 7)


def _aborts(case: Case) -> Observation | None:
    subject = case.subject
    table = subject.tables["task_management"]
    requests = table.select(np.isin(table.raw("function"), _ABORT_FUNCTIONS))
    if not len(requests):
        return None
    frames = frames_in(requests, np.arange(len(requests)), "request_frame", "response_frame")
    about = requests.raw("referenced_cycle")[known(requests, "referenced_cycle")]
    commands = frames_in(subject.cycles, np.flatnonzero(np.isin(subject.cycles.raw("cycle"), about)), "command_frame")
    said = ", ".join(f"{name} ({count})" for name, count in Counter(requests["function_text"].tolist()).items())
    return Observation(f"the initiator gave tasks up: {said}", [*commands, *frames])


TASK_ABORTS: Final = Problem(
    name="task_aborts",
    meaning="The initiator gave tasks up: ABORT TASK, or a reset of the logical unit or the target.",
    condition="One such request.",
    evidence="The request, its answer, and the command that it is about. It has no share.",
    severity="error",
    advice=(
        Advice("Find out why the target did not answer: its log and backing device at that time."),
        Advice(
            "/sys/block/DEVICE/device/timeout says when Linux gives a task up (30 s), "
            "node.session.err_timeo.abort_timeout and lu_reset_timeout what follows."
        ),
    ),
    observe=_aborts,
)

PROBLEMS: Final = (DIGEST_ERRORS, NOP_TIMEOUT, TASK_ABORTS)
