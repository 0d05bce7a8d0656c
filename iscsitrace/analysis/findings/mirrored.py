"""Sessions that are a mirror: what its writes wait for the farthest of them."""

from __future__ import annotations

from typing import Final

import numpy as np

from iscsitrace.analysis.findings.case import Case, is_worth
from iscsitrace.analysis.findings.finding import Advice, Explains, Observation, Problem
from iscsitrace.analysis.findings.hosts import INITIATOR_THINK_TIME
from iscsitrace.analysis.findings.thresholds import WORTH
from iscsitrace.analysis.groups.mirrors.account import WORDS, Account
from iscsitrace.analysis.session.subject import frames_in
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

_WRITES_SHOWN = 3


def _farthest(case: Case) -> Observation | None:
    """Of each session of a mirror, for all of them wait; of several mirrors the worst."""
    subject = case.subject
    session = subject.connections[0]["session"] if subject.connections else None
    own = [each for each in case.groups.mirrors if session in each.mirror.sessions and each.known_count]
    if not own:
        return None
    account = max(own, key=lambda each: each.farthest.alone_ns)
    # pauses in which a near leg has nothing to do may be long enough to count as between jobs
    lost_ns = min(account.farthest.alone_ns, subject.jobs_ns)
    if not is_worth(subject, lost_ns):
        return None
    cause = f"{account.name} whose writes wait for {account.farthest.label}"
    return Observation(
        f"{cause}: {_figures(account)}",
        _frames(account, case.groups.cycles),
        lost_ns,
        severity=None if account.mirror.is_sure else "info",
        cause=cause,
    )


def _figures(account: Account) -> str:
    far = account.farthest
    cause = f", mostly because {WORDS[far.cause]}" if far.cause else ""
    doubt = "" if account.mirror.is_sure else f"; {account.doubt}"
    return (
        f"that (logical unit {far.lun} of {far.target}) was the last "
        f"to finish in {far.last_count} of {wording.count(account.known_count, 'write')}, and was at work alone for "
        f"{wording.time(far.alone_ns)}{cause}; half of the writes were done on the last leg within "
        f"{wording.time(account.skews['p50'] or 0)} of the first, the slowest after "
        f"{wording.time(account.skews['max'] or 0)}{doubt}"
    )


def _frames(account: Account, cycles: Table) -> list[int | None]:
    """Command and status on every leg of the writes that waited longest."""
    rows = account.worst[:_WRITES_SHOWN]
    found: list[int | None] = []
    for row in rows.tolist():
        for place in range(len(account.mirror.legs)):
            ends = [account.found.leg_rows[row, place], account.found.leg_last_rows[row, place]]
            frames = frames_in(cycles, np.array(ends), "command_frame", "status_frame")
            found += [frames[0], frames[3]]
    return found


MIRROR_WAITS_FOR_FARTHEST: Final = Problem(
    name="mirror_waits_for_farthest",
    meaning="Sessions carry the same writes to several targets, as a software RAID1 does, and each write is done when "
    "the slowest leg has it: the farthest target sets the pace of all.",
    condition=f"Only the slowest leg has writes outstanding for {WORTH}, of a mirror that is recognised by its "
    "extents (docs/method.md, section 9).",
    evidence="Command and status, on every leg, of the three writes that waited longest. The share is the time in "
    "which only that leg was still at work.",
    # a near leg of a mirror has nothing to do while it waits for the farthest
    explains=Explains("initiator_think", 1),
    accounts_for=(INITIATOR_THINK_TIME,),
    is_session_only=True,
    advice=(
        Advice(
            "Let the far member lag: mark it write-mostly (`mdadm /dev/mdN --add --write-mostly DEVICE`, or "
            "`echo writemostly > /sys/block/mdN/md/dev-DEVICE/state`) and give the array a bitmap with write-behind: "
            "`mdadm --grow /dev/mdN --bitmap=none`, then `mdadm --grow /dev/mdN --bitmap=internal "
            "--write-behind=256`. A write is done then when the others have it; what is still under way is lost with "
            "the host, or its disk."
        ),
        Advice("Place that member nearer, or give its path a faster line."),
        Advice(
            "Tune that leg alone: what is found of its session; mostly its R2Ts (node.session.iscsi.InitialR2T = No, "
            "node.session.iscsi.FirstBurstLength) and its windows."
        ),
    ),
    observe=_farthest,
)

PROBLEMS: Final = (MIRROR_WAITS_FOR_FARTHEST,)
