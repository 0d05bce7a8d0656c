"""Mirrored sessions: the time that writes wait for the slowest mirror side."""

from __future__ import annotations

from typing import Final

import numpy as np

from iscsitrace.findings.case import Case, Groups, is_worth
from iscsitrace.findings.finding import DATA_AT_RISK, NEXT_LOGIN, Advice, Explains, Observation, Problem
from iscsitrace.findings.hosts import INITIATOR_THINK_TIME
from iscsitrace.findings.thresholds import WORTH
from iscsitrace.measure.session import frames_in
from iscsitrace.relate.mirrors.account import WORDS, Account
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital

_WRITES_SHOWN = 3


def _farthest(case: Case) -> Observation | None:
    """Reported for every session of a mirror, since all wait; for several mirrors, the worst."""
    subject = case.subject
    session = subject.connections[0]["session"] if subject.connections else None
    own = [each for each in case.groups.mirrors if session in each.mirror.sessions and each.known_count]
    if not own:
        return None
    account = max(own, key=lambda each: each.farthest.alone_ns)
    # the near side is idle for so long that this can be no busy time
    lost_ns = min(account.farthest.alone_ns, subject.jobs_ns)
    if not is_worth(subject, lost_ns):
        return None
    return Observation(
        _in_words(account),
        _frames(account, case.groups.cycles),
        lost_ns,
        rank=None if account.mirror.is_sure else "note",
    )


def _in_words(account: Account) -> str:
    far = account.farthest
    cause = f", mostly because {WORDS[far.cause]}" if far.cause else ""
    doubt = "" if account.mirror.is_sure else f" It is a mirror, {account.doubt}."
    writes = wording.count(account.known_count, "write")
    return (
        f"{capital(account.name)} whose writes wait for {far.label}: for {wording.time(far.alone_ns)} it alone had "
        f"writes in flight{cause}. It acknowledged {far.last_count:,} of {writes} last, typically "
        f"{wording.time(account.skews['p50'] or 0)} after the first side, at most "
        f"{wording.time(account.skews['max'] or 0)}.{doubt}"
    )


def _frames(account: Account, cycles: Table) -> list[int | None]:
    """Command and status, on every side, of the writes that waited longest."""
    rows = account.worst[:_WRITES_SHOWN]
    found: list[int | None] = []
    for row in rows.tolist():
        for place in range(len(account.mirror.sides)):
            ends = [account.found.side_rows[row, place], account.found.side_last_rows[row, place]]
            frames = frames_in(cycles, np.array(ends), "command_frame", "status_frame")
            found += [frames[0], frames[3]]
    return found


MIRROR_WAITS_FOR_FARTHEST: Final = Problem(
    name="mirror_waits_for_farthest",
    meaning="Sessions carry the same writes to several targets, as a software RAID1 does. A write completes when the "
    "slowest side acknowledges, so the farthest target limits all sides.",
    condition=f"Only the slowest side of a mirror has writes in flight for {WORTH}. Mirrors are recognised by their "
    "extents (iscsitrace docs method 9).",
    evidence="Command and status, on every side, of the three writes that waited longest. The share is the time in "
    "which only the slowest side had writes in flight.",
    example="Sessions 0 and 1 are a mirror whose writes wait for session 1: for 2.5 s it alone had writes in flight, "
    "mostly because its path is longer. It acknowledged 64 of 64 writes last, typically 38.1 ms after the first side, "
    "at most 38.4 ms.",
    # one side 20 ms away, or as near as the other
    shown_by="write --set mirror=yes --target-delay 1ms --target-delay 20ms --rate 320Mbit --bytes 4M --block-size 64K",
    near_miss="write --set mirror=yes --target-delay 1ms --target-delay 1ms --rate 320Mbit --bytes 4M --block-size 64K",
    rank="limit",
    limited_by="the farthest target of its mirror",
    # the near side is idle while it waits for the far one
    explains=Explains("initiator_think", 1),
    accounts_for=(INITIATOR_THINK_TIME,),
    scope="session",
    advice=(
        Advice(
            "Let the far member lag behind: mark it write-mostly (`mdadm /dev/mdN --add --write-mostly DEVICE`, or "
            "`echo writemostly > /sys/block/mdN/md/dev-DEVICE/state`) and create a bitmap with write-behind: "
            "`mdadm --grow /dev/mdN --bitmap=none`, then `mdadm --grow /dev/mdN --bitmap=internal "
            "--write-behind=256`. A write then completes when the other members acknowledge.",
            touches=f"{DATA_AT_RISK}: writes in flight to the far member are lost if the host or its disk fails",
        ),
        Advice("Move the far member closer, or use a faster line to it."),
        Advice(
            "Tune the slowest side alone, by the findings of its session: mostly R2Ts (node.session.iscsi.InitialR2T "
            "= No, node.session.iscsi.FirstBurstLength) and TCP windows.",
            touches=NEXT_LOGIN,
        ),
    ),
    where=lambda facts: facts.only(number for each in facts.given(Groups).mirrors for number in each.mirror.sessions),
    tell=_farthest,
)
