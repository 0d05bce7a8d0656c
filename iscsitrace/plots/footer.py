"""Title and footer of a plot: its subject, the source of its numbers, and what it omits."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from matplotlib.figure import Figure

from iscsitrace.plots import style
from iscsitrace.plots.scales import duration
from iscsitrace.plots.subject import PlotSubject
from iscsitrace.wording import cells
from iscsitrace.wording.amounts import percent

_NAME_LIMIT = 100
_PER_INCH = 15.0
"""Characters of the footer in an inch: a line of many wide ones is shorter than the picture, too."""
_TITLE_PER_INCH = 9.0
"""The same of the title."""
_SHOWN = 3


def write(figure: Figure, title: str, subject: PlotSubject, notes: Iterable[str] = ()) -> None:
    """Writes the title above the axes, the notes and the facts of the subject below."""
    write_lines(figure, title, [f"Note: {note}" for note in notes] + list(facts(subject)))


def write_lines(figure: Figure, title: str, lines: Iterable[str]) -> None:
    """Writes the title above the axes, and lines below; both are wrapped to the width."""
    width_in = figure.get_figwidth()
    title = "\n".join(textwrap.wrap(title, int(_TITLE_PER_INCH * width_in)))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", parse_math=False)
    parts = [part for line in lines for part in textwrap.wrap(line, int(_PER_INCH * width_in))]
    figure.supxlabel("\n".join(parts), x=0.01, ha="left", fontsize=7.5, color=style.GREY, parse_math=False)


def facts(subject: PlotSubject) -> Iterable[str]:
    """Lines on the captures, connections, tap and coverage."""
    yield f"{_some(subject.captures, 'captures')}; first packet {cells.date(subject.origin_ns)}"
    parts = [f"connection {subject.connections[0]}"] if len(subject.connections) == 1 else []
    if len(subject.connections) > 1:
        parts = [f"connections {_some(subject.connections, 'connections')}"]
    parts.append(_tap(subject))
    coverage = _coverage(subject)
    if coverage:
        parts.append(coverage)
    yield "; ".join(parts)


def _some(names: tuple[str, ...], noun: str) -> str:
    shown = [_printable(name) for name in names[:_SHOWN]]
    more = f" and {len(names) - _SHOWN} more {noun}" if len(names) > _SHOWN else ""
    return ", ".join(shown) + more


def _printable(name: str) -> str:
    safe = cells.text(name)
    return safe if len(safe) <= _NAME_LIMIT else f"...{safe[-_NAME_LIMIT:]}"


def _tap(subject: PlotSubject) -> str:
    if subject.tap_position is None:
        return "tap position unknown"
    where = {"initiator": "tap near the initiator", "target": "tap near the target"}.get(
        subject.tap_position, "tap between initiator and target"
    )
    if subject.rtt_to_initiator_ns is None or subject.rtt_to_target_ns is None:
        return where
    return (
        f"{where} (minimum RTT: to the initiator {duration(subject.rtt_to_initiator_ns)}, "
        f"to the target {duration(subject.rtt_to_target_ns)})"
    )


def _coverage(subject: PlotSubject) -> str | None:
    """The coverage, if it is below 100 %."""
    shares = (("bytes", subject.explained_bytes_share), ("PDUs", subject.pdu_share))
    missing = [f"{percent(share)} of {noun}" for noun, share in shares if share is not None and share < 1]
    return f"decoded {', '.join(missing)}" if missing else None
