"""What a diagnosis says of single frames, and of the capture, as comments for Wireshark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from iscsitrace.diagnosis.headline import to_act_on
from iscsitrace.findings import NEEDED
from iscsitrace.findings.history import listed
from iscsitrace.tables.nulls import known
from iscsitrace.wording.amounts import count
from iscsitrace.wording.cells import printable

if TYPE_CHECKING:
    from iscsitrace.diagnosis.examination import Diagnosis
    from iscsitrace.findings.finding import Finding
    from iscsitrace.tables.table import Source

TABLES: Final = NEEDED
"""What a trace has to be read with."""
_SESSIONS: Final = 10
"""Sessions whose headline is in the comment of the capture."""


_PARTS: Final[Mapping[str, Mapping[str, str]]] = {
    "cycles": {
        "command_frame": "the command of cycle {cycle}",
        "data_first_frame": "the first data of cycle {cycle}",
        "data_last_frame": "the last data of cycle {cycle}",
        "status_frame": "the status of cycle {cycle}",
    },
    "rounds": {"r2t_frame": "an R2T of cycle {cycle}"},
    "recoveries": {"frame_first": "the first frame of a recovery", "frame_last": "the last frame of a recovery"},
    "retransmissions": {"frame": "a retransmission"},
    "logins": {"request_frame": "a login request", "response_frame": "a login response"},
    "task_management": {"request_frame": "a task management request", "response_frame": "its response"},
    "nops": {"request_frame": "a NOP", "response_frame": "the answer to a NOP"},
    "connections": {
        "syn_frame": "the first SYN of connection {connection}",
        **{f"fin_to_{side}_frame": f"the first FIN to the {side}" for side in ("target", "initiator")},
        **{f"rst_to_{side}_frame": f"the first RST to the {side}" for side in ("target", "initiator")},
    },
}
"""What a frame has part in: by the columns of tables that name it."""


def of_frames(diagnosis: Diagnosis, source: Source) -> dict[int, list[str]]:
    """The comments of the frames that show what has to be acted on: the finding, its sessions, what the frame is, and
    the sentence. ``source`` has the tables of the trace.
    """
    findings = [*_findings(diagnosis)]
    parts = _parts(source, {frame for finding in findings for frame in finding.frames})
    found: dict[int, dict[str, None]] = {}
    for finding in findings:
        sessions = "session" if len(finding.sessions) == 1 else "sessions"
        where = f", {sessions} {listed(finding.sessions)}" if finding.sessions else ""
        for number, frame in enumerate(finding.frames, start=1):
            part = f" ({listed(parts[frame])})" if frame in parts else ""
            what = (
                f"iscsitrace: {finding.name} ({finding.severity}{where}), frame {number} of {len(finding.frames)}{part}"
            )
            found.setdefault(frame, {})[printable(f"{what}: {finding.text}")] = None
    return {frame: [*texts] for frame, texts in sorted(found.items())}


def _parts(source: Source, frames: Collection[int]) -> dict[int, list[str]]:
    """What each of these frames has part in."""
    found: dict[int, dict[str, None]] = {}
    wanted = np.array(sorted(frames), dtype=np.uint64)
    for name, columns in _PARTS.items():
        table = source(name)
        for column, words in columns.items():
            which = known(table, column) & np.isin(table.raw(column), wanted)
            for row in table.select(which).rows():
                found.setdefault(row[column], {})[words.format(**row)] = None
    return {frame: [*parts] for frame, parts in found.items()}


def of_capture(diagnosis: Diagnosis, frame_count: int, made_by: str) -> str:
    """The headline, what to do first, the headlines of sessions, and where the comments are."""
    lines = [diagnosis.headline.text] if diagnosis.headline else ["No session of iSCSI was found."]
    if diagnosis.headline and diagnosis.headline.first_step:
        lines.append(f"What to do: {diagnosis.headline.first_step}")
    texts = dict.fromkeys(opinion.headline.text for opinion in diagnosis.sessions.values())
    others = [text for text in texts if text not in lines]
    lines += others[:_SESSIONS]
    if more := len(others[_SESSIONS:]):
        lines.append(f"{count(more, 'more session')}: iscsitrace diagnose shows them.")
    where = "No frame has a comment"
    if frame_count:
        where = f"{count(frame_count, 'frame')} with a comment: filter frame.comment"
    return "\n".join(map(printable, (*lines, f"{where}. Made by {made_by}.")))


def _findings(diagnosis: Diagnosis) -> Iterator[Finding]:
    """What leads and what is wrong, that of stories first; a finding of several sessions may come again."""
    for opinion in (*diagnosis.stories, *diagnosis.sessions.values(), *diagnosis.separate.values()):
        lead = opinion.headline.finding
        yield from [lead] if lead else []
        yield from to_act_on(opinion.headline, opinion.findings)
