"""Sequence and window graphs in the language of Tim Shepard's xplot, as tcptrace writes them.

The first line names the types of both axes (absolute seconds, numbers). Colours are those of tcptrace, for a black
background. xplot zooms by itself, so all points of the arrays are written.
"""

from __future__ import annotations

from collections.abc import Iterator

from iscsitrace.analysis.curves.marks import Bars, Line
from iscsitrace.analysis.curves.sequence import Sequence
from iscsitrace.analysis.curves.window import Window

_SECOND_NS = 1_000_000_000
_SEGMENTS = {"new": ("white", ""), "retransmission": ("red", "R"), "reordered": ("pink", "O"), "probe": ("blue", "P")}
_PDUS = {"command": "rtick", "data": "box", "R2T": "diamond", "response": "plus", "other": "x"}


def of_sequence(sequence: Sequence, title: str) -> Iterator[str]:
    """The lines of a time-sequence graph."""
    yield from _head(title, "sequence number")
    yield from _steps(sequence.acks, "green")
    yield from _points(sequence.duplicate_acks, "dtick", "green")
    yield from _steps(sequence.window, "yellow")
    for time_ns, value in _pairs(sequence.zero_windows):
        yield from (f"atext {_time(time_ns)} {value} red", "Z")
    for name, (color, letter) in _SEGMENTS.items():
        for time_ns, low, high in _triples(sequence.segments.get(name, Bars())):
            at = _time(time_ns)
            yield from (
                f"darrow {at} {low} {color}",
                f"uarrow {at} {high} {color}",
                f"line {at} {low} {at} {high} {color}",
            )
            if letter:
                yield from (f"atext {at} {high} {color}", letter)
    for bars, letter in ((sequence.sacks, "S"), (sequence.duplicate_sacks, "D")):
        for time_ns, low, high in _triples(bars):
            at = _time(time_ns)
            yield from (f"line {at} {low} {at} {high} purple", f"htick {at} {low} purple", f"htick {at} {high} purple")
            yield from (f"rtext {at} {high} purple", letter)
    for kind, marks in sequence.pdus.items():
        yield from _points(marks, _PDUS[kind], "magenta")
    for note in sequence.notes:
        yield from (f"atext {_time(note.time_ns)} {note.value} orange", note.text)
    yield "go"


def of_window(window: Window, title: str) -> Iterator[str]:
    """The lines of a graph of the bytes in flight."""
    yield from _head(title, "Outstanding Data (bytes)")
    yield from _steps(window.owin, "red")
    for lines, color in ((window.pipe, "white"), (window.rwnd, "yellow"), (window.cwnd, "green")):
        for line in lines:
            yield from _steps(line, color)
    for line, color in ((window.kernel_cwnd, "purple"), (window.kernel_ssthresh, "blue")):
        yield from _steps(line, color)
    for marks in window.retransmissions.values():
        for time_ns, value in _pairs(marks):
            yield from (f"atext {_time(time_ns)} {value} red", "R")
    yield "go"


def _head(title: str, label: str) -> Iterator[str]:
    yield from ("timeval double", "title", " ".join(title.split()), "xlabel", "time", "ylabel", label)


def _time(time_ns: int) -> str:
    """Absolute seconds; xplot keeps microseconds."""
    return f"{time_ns // _SECOND_NS}.{time_ns % _SECOND_NS // 1000:06d}"


def _pairs(line: Line) -> Iterator[tuple[int, int]]:
    return zip(line.times_ns.tolist(), line.values.tolist(), strict=True)


def _triples(bars: Bars) -> Iterator[tuple[int, int, int]]:
    return zip(bars.times_ns.tolist(), bars.lows.tolist(), bars.highs.tolist(), strict=True)


def _points(line: Line, mark: str, color: str) -> Iterator[str]:
    for time_ns, value in _pairs(line):
        yield f"{mark} {_time(time_ns)} {value} {color}"


def _steps(line: Line, color: str) -> Iterator[str]:
    """A step line: each value holds until the next one."""
    last: tuple[str, int] | None = None
    for time_ns, value in _pairs(line):
        at = _time(time_ns)
        if last is not None:
            yield f"line {last[0]} {last[1]} {at} {last[1]} {color}"
            if last[1] != value:
                yield f"line {at} {last[1]} {at} {value} {color}"
        last = at, value
