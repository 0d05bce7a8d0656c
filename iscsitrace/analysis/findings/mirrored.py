"""Sessions that are a mirror: what its writes wait for the farthest of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import MOST
from iscsitrace.analysis.groups.mirrors.account import WORDS, Account
from iscsitrace.analysis.session.subject import Subject, frames_in
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

_WRITES_SHOWN = 3


def find(subject: Subject, accounts: Sequence[Account], cycles: Table) -> Iterator[Finding]:
    """mirror_waits_for_farthest: of each session of a mirror, for all of them wait; of several mirrors the worst."""
    session = subject.connections[0]["session"] if subject.connections else None
    own = [account for account in accounts if session in account.mirror.sessions and account.known_count]
    if not own:
        return
    account = max(own, key=lambda each: each.farthest.alone_ns)
    # pauses in which a near leg has nothing to do may be long enough to count as between jobs
    lost_ns = min(account.farthest.alone_ns, subject.jobs_ns)
    if not subject.is_worth(lost_ns):
        return
    severity = None if account.mirror.is_sure else "info"
    frames = _frames(account, cycles)
    yield subject.finding("mirror_waits_for_farthest", lost_ns, _text(account), frames, severity)


def explains(think: Finding, found: Sequence[Finding]) -> bool:
    """Whether a near leg of a mirror has nothing to do mostly because it waits for the farthest."""
    shares = [finding.share or 0.0 for finding in found if finding.name == "mirror_waits_for_farthest"]
    return bool(shares) and shares[0] >= MOST * (think.share or 0.0)


def _text(account: Account) -> str:
    """What the verdict takes ends at the first colon."""
    far = account.farthest
    cause = f", mostly because {WORDS[far.cause]}" if far.cause else ""
    doubt = "" if account.mirror.is_sure else f"; {account.doubt}"
    return (
        f"{account.name} whose writes wait for {far.label}: that (logical unit {far.lun} of {far.target}) was the last "
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
