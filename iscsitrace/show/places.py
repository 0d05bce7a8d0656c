"""Where the time goes, by several taps: as text and for JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from iscsitrace.show.document import Block, Breakdown, Findings, FoundProblem, Grid, Plots, Section, TimeShare, table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps import places
from iscsitrace.taps.places import Place, TimePlaces
from iscsitrace.taps.reading import TappedTables
from iscsitrace.wording import cells
from iscsitrace.wording.headings import known_as
from iscsitrace.wording.parts import BY_NAME

PLACE_WORDS: Final = {"network": "network", "target": "target", "initiator": "initiator's host"}

_LOOKS: Final[dict[Place, tuple[str, str]]] = {
    "network": ("one-way delays, losses, and what TCP held back", "propagation"),
    "target": ("from the last byte of a request to its answer", "target_service"),
    "initiator": ("from an R2T to the last byte of its data", "initiator_service"),
}
"""What the time is, and the part of the time breakdown whose colour it has."""
_ROWS: Final[tuple[tuple[str, str, Callable[[Any], object]], ...]] = (
    ("packets lost to the target", "lost_a_to_b_packets", cells.text),
    ("packets lost to the initiator", "lost_b_to_a_packets", cells.text),
    ("delay to the target p50 ms", "delay_a_to_b_p50_ns", cells.milliseconds),
    ("delay to the initiator p50 ms", "delay_b_to_a_p50_ns", cells.milliseconds),
    ("missing packets, first capture", "missing_at_a_packets", cells.text),
    ("missing packets, second capture", "missing_at_b_packets", cells.text),
    ("commands in both", "commands", cells.text),
    ("clock offset ms", "clock_offset_ns", cells.milliseconds),
    ("clock offset at least ms", "clock_offset_low_ns", cells.milliseconds),
    ("clock offset at most ms", "clock_offset_high_ns", cells.milliseconds),
    ("clock drift ppm", "drift_ppm", "{:.1f}".format),
)
"""A row each: its name, the column of the table ``taps``, and how a value is written."""

HEADINGS: Final = {known_as(name)[1]: column for name, column, _ in _ROWS}
"""The column of the table ``taps`` of each, by its name without the unit."""


def as_dict(trace: TappedTables) -> dict[str, Any]:
    """The taps, the verdicts and the findings with their places, for JSON."""
    return {
        "taps": list(trace.taps.rows()),
        "sessions": [each.as_dict() for each in places.verdicts(trace)],
        "findings": [each.as_dict() for each in places.findings(trace)],
    }


def breakdown(trace: TraceTables, sessions: Collection[int], label: str) -> tuple[Breakdown, ...]:
    """The time of the reads and writes of these sessions by place; nothing without several taps."""
    if not isinstance(trace, TappedTables):
        return ()
    found = [each for each in places.verdicts(trace) if each.session in sessions]
    if not found:
        return ()
    # of several sessions, that with most of the time
    most = max(found, key=lambda each: each.latency_ns * each.command_count)
    limiter = max(most.shares, key=lambda place: most.shares[place])
    parts = tuple(
        TimeShare(
            name=PLACE_WORDS[place],
            meaning=_LOOKS[place][0],
            share=share,
            ms=cells.milliseconds(most.parts_ns[place]),
            color=BY_NAME[_LOOKS[place][1]].color,
            is_limiter=place == limiter,
        )
        for place, share in most.shares.items()
        if share > 0
    )
    return (Breakdown(f"Time of reads and writes of {label} by place", parts, "their time"),)


def verdict(each: TimePlaces) -> str:
    """The sentence that answers whose fault it is."""
    commands = f"median of {each.command_count:,} reads and writes"
    parts = ", ".join(f"{_ms(time_ns)} in the {PLACE_WORDS[place]}" for place, time_ns in each.parts_ns.items())
    return f"Session {each.session}, {commands}: {_ms(each.latency_ns)} ms, {parts}."


_NOT_THE_BREAKDOWN: Final = (
    "This is the median command, by place. The network has all time between both hosts, also what "
    "TCP held back (`cycles --legs`). The time breakdown splits all I/O time, by cause."
)
"""The target's time of one is not its part of the other."""


def section(found: Mapping[str, Any], plots: Plots | None = None) -> Section:
    """The verdict by place, its findings, and the network between the taps; of ``as_dict``."""
    problems = (
        FoundProblem(each["name"], each["severity"].replace("_", " "), "", each["text"]) for each in found["findings"]
    )
    blocks: list[Block] = [verdict(TimePlaces(**each)) for each in found["sessions"]]
    blocks += [_NOT_THE_BREAKDOWN] if blocks else []
    blocks += [Findings(told)] if (told := tuple(problems)) else []
    blocks += [plots] if plots else []
    return Section("By place", (*blocks, _taps(found["taps"])), "places")


def _taps(hops: Sequence[Mapping[str, Any]]) -> Grid:
    """The network between each two neighbouring taps, and their clocks; rows of the table ``taps``."""
    columns = ("from -> to", *(cells.text(f"{row['tap_a']} -> {row['tap_b']}") for row in hops))
    rows = [(label, *(shown(row[name]) for row in hops)) for label, name, shown in _ROWS]
    return table(columns, rows, "The taps and the network between them")


def _ms(time_ns: int) -> str:
    return f"{time_ns / 1e6:.1f}"
