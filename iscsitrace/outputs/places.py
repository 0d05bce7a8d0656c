"""Where the time goes, by several taps: as text and for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from iscsitrace.analysis.taps import places
from iscsitrace.analysis.taps.places import Verdict
from iscsitrace.analysis.taps.reading import TappedTrace
from iscsitrace.outputs.document import Grid, Section, table
from iscsitrace.wording import cells
from iscsitrace.wording.sentences import sentence

PLACE_WORDS: Final = {"network": "network", "target": "target", "initiator": "initiator's host"}


def as_dict(trace: TappedTrace) -> dict[str, Any]:
    """The taps, the verdicts and the findings with their places, for JSON."""
    return {
        "taps": list(trace.taps.rows()),
        "sessions": [each.as_dict() for each in places.verdicts(trace)],
        "findings": [each.as_dict() for each in places.findings(trace)],
    }


def verdict(each: Verdict) -> str:
    """The sentence that answers whose fault it is."""
    latency = f"median latency {_ms(each.latency_ns)} ms"
    parts = ", ".join(f"{PLACE_WORDS[place]} {_ms(time_ns)}" for place, time_ns in each.parts_ns.items())
    return f"Session {each.session}: {latency}: {parts} ({each.command_count:,} reads and writes)."


def section(found: Mapping[str, Any]) -> Section:
    """The verdict by place, its findings, and the network between the taps; of ``as_dict``."""
    lines = (
        *(verdict(Verdict(**each)) for each in found["sessions"]),
        *(f"{each['name']} ({each['severity']}): {sentence(each['text'])}" for each in found["findings"]),
    )
    return Section("Places", lines, (grid(found["taps"]),), "places")


def grid(taps: Iterable[Mapping[str, Any]]) -> Grid:
    """The taps and the network between them; rows of the table ``taps``."""
    columns = (
        *(
            "from",
            "to",
            "commands",
            "clock offset ms",
            "from ms",
            "to ms",
            "drift ppm",
            "delay out p50 ms",
            "back p50 ms",
        ),
        *("lost out", "lost back", "missing at first", "at second"),
    )
    rows = [
        (
            *(row["tap_a"], row["tap_b"], row["commands"]),
            *(
                cells.milliseconds(row[name])
                for name in ("clock_offset_ns", "clock_offset_low_ns", "clock_offset_high_ns")
            ),
            f"{row['drift_ppm']:.1f}",
            *(cells.milliseconds(row[name]) for name in ("delay_a_to_b_p50_ns", "delay_b_to_a_p50_ns")),
            *(row[name] for name in ("lost_a_to_b_packets", "lost_b_to_a_packets")),
            *(row[name] for name in ("missing_at_a_packets", "missing_at_b_packets")),
        )
        for row in taps
    ]
    return table(columns, rows, "The taps and the network between them")


def _ms(time_ns: int) -> str:
    return f"{time_ns / 1e6:.1f}"
