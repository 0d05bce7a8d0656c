"""The language of Tim Shepard's xplot, for plots that tcptrace writes in it, too.

The first line names the types of both axes (absolute seconds, numbers). Colours are those of tcptrace, for a black
background. xplot zooms by itself, so all points of the arrays are written.
"""

from __future__ import annotations

from collections.abc import Iterator

from iscsitrace.plots.marks import Bars, Series

_SECOND_NS = 1_000_000_000


def head(title: str, label: str) -> Iterator[str]:
    """The first lines."""
    yield from ("timeval double", "title", " ".join(title.split()), "xlabel", "time", "ylabel", label)


def time(time_ns: int) -> str:
    """Absolute seconds; xplot keeps microseconds."""
    return f"{time_ns // _SECOND_NS}.{time_ns % _SECOND_NS // 1000:06d}"


def pairs(line: Series) -> Iterator[tuple[int, int]]:
    """Time and value of each point."""
    return zip(line.times_ns.tolist(), line.values.tolist(), strict=True)


def triples(bars: Bars) -> Iterator[tuple[int, int, int]]:
    """Time, low and high value of each bar."""
    return zip(bars.times_ns.tolist(), bars.lows.tolist(), bars.highs.tolist(), strict=True)


def points(line: Series, mark: str, color: str) -> Iterator[str]:
    """A mark at each point."""
    for time_ns, value in pairs(line):
        yield f"{mark} {time(time_ns)} {value} {color}"


def steps(line: Series, color: str) -> Iterator[str]:
    """A step line: each value holds until the next one."""
    last: tuple[str, int] | None = None
    for time_ns, value in pairs(line):
        at = time(time_ns)
        if last is not None:
            yield f"line {last[0]} {last[1]} {at} {last[1]} {color}"
            if last[1] != value:
                yield f"line {at} {last[1]} {at} {value} {color}"
        last = at, value
