"""What failed: digests, pings and tasks. One is enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import NOP_TIMEOUT_NS
from iscsitrace.analysis.session.subject import Subject, frames_in, known
from iscsitrace.wording import amounts as wording

_DIGESTS = {"header_digest_error": "header", "data_digest_error": "data"}
# RFC 7143 section 11.5.1
_ABORTS = (1, 2, 4, 5, 6, 7)


def find(subject: Subject) -> Iterator[Finding]:
    """digest_errors, nop_timeout and task_aborts."""
    yield from _digests(subject)
    yield from _pings(subject)
    yield from _aborts(subject)


def _digests(subject: Subject) -> Iterator[Finding]:
    rows = [row for row in subject.tables["counters"].rows() if row["name"] in _DIGESTS and row["count"]]
    if not rows:
        return
    counts = {word: sum(row["count"] for row in rows if row["name"] == name) for name, word in _DIGESTS.items()}
    said = " and ".join(wording.count(count, f"{word} digest") for word, count in counts.items() if count)
    verb = "does" if sum(counts.values()) == 1 else "do"
    yield subject.finding(
        "digest_errors", None, f"{said} {verb} not match", [row["first_frame"] for row in rows], "error"
    )


def _pings(subject: Subject) -> Iterator[Finding]:
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
        return
    silent = int((late & ~has_echo).sum())
    frames = frames_in(nops, np.flatnonzero(late), "request_frame", "response_frame")
    without_any = f", {silent} without any" if silent else ""
    text = f"{wording.count(int(late.sum()), 'ping')} without an echo for {wording.time(NOP_TIMEOUT_NS)}{without_any}"
    yield subject.finding("nop_timeout", None, text, frames, "error")


def _aborts(subject: Subject) -> Iterator[Finding]:
    table = subject.tables["task_management"]
    requests = table.select(np.isin(table.raw("function"), _ABORTS))
    if not len(requests):
        return
    frames = frames_in(requests, np.arange(len(requests)), "request_frame", "response_frame")
    about = requests.raw("referenced_cycle")[known(requests, "referenced_cycle")]
    commands = frames_in(subject.cycles, np.flatnonzero(np.isin(subject.cycles.raw("cycle"), about)), "command_frame")
    said = ", ".join(f"{name} ({count})" for name, count in Counter(requests["function_text"].tolist()).items())
    yield subject.finding("task_aborts", None, f"the initiator gave tasks up: {said}", [*commands, *frames], "error")
