"""Two sessions compared, as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.compare.sides import differing_keys
from iscsitrace.measure.ranks import PERCENTILES
from iscsitrace.show import inputs
from iscsitrace.show.document import Section, table
from iscsitrace.show.places import PLACE_WORDS
from iscsitrace.taps.places import PLACES
from iscsitrace.wording import amounts, cells
from iscsitrace.wording.parts import BY_NAME
from iscsitrace.wording.sentences import sentence

if TYPE_CHECKING:
    from iscsitrace.compare.differences import ByPlace, Difference, Explanation
    from iscsitrace.compare.sides import Key, Side
    from iscsitrace.diagnosis.headline import Headline
    from iscsitrace.tables.trace import TraceTables

_SHOWN_PART: Final = 0.01
"""Parts of the time breakdown with a smaller share on both sides are in --json only."""
_WEIGHTY: Final = 0.1
"""Least share of the gap of the causes in the first sentence."""
_AGAINST: Final = 1.5
"""Where one difference has a larger share than this, others offset it."""
_FORMATS: Final[dict[str, Callable[[float], str]]] = {
    "bytes": amounts.size,
    "ns": amounts.time,
    "B/s": amounts.rate,
    # 1 ns/B is 1 ms/MB
    "ns/B": lambda amount: f"{amount:.2f} ms/MB",
    "yes/no": lambda amount: cells.text(bool(amount)),
}


def as_dict(
    traces: Sequence[TraceTables],
    headlines: Sequence[Headline | None],
    a: Side,
    b: Side,
    explanation: Explanation | None,
    why_not: str | None,
    places: ByPlace | None = None,
) -> dict[str, Any]:
    """What ``diff --json`` prints."""
    first, second = (trace.provenance for trace in traces)
    shared = {"schema": first["schema"], "tool": first["tool"]}
    captures = {
        name: {"input": document["input"], "options": document["options"]}
        | side.as_dict()
        | {"headline": headline and headline.as_dict()}
        for name, document, side, headline in zip("ab", (first, second), (a, b), headlines, strict=True)
    }
    keys = [
        {"key": key, **{name: _key(side.keys.get(key)) for name, side in (("a", a), ("b", b))}}
        for key in differing_keys(a, b)
    ]
    gap = {"gap": explanation and explanation.as_dict(), "not_comparable": why_not}
    return shared | captures | {"keys": keys} | gap | {"places": places and places.as_dict()}


def _key(key: Key | None) -> dict[str, str | None] | None:
    if key is None:
        return None
    return {"initiator": key.initiator_value, "target": key.target_value, "in_force": key.in_force}


def sections(
    traces: Sequence[TraceTables],
    headlines: Sequence[Headline | None],
    a: Side,
    b: Side,
    explanation: Explanation | None,
    why_not: str | None,
    places: ByPlace | None = None,
) -> Iterator[Section]:
    """The comparison: what broke, the answer, then what it rests on."""
    for name, trace, side in zip("AB", traces, (a, b), strict=True):
        yield inputs.of_trace(trace)
        target = side.target_name or "target name unknown: its login was not captured"
        yield Section("", (f"{name}: session {side.session}, {target}",))
    broke = [
        f"{name}: {headline.text}"
        for name, headline in zip("AB", headlines, strict=True)
        if headline and headline.severity == "error"
    ]
    yield Section("", ("", *broke, _answer(a, b, explanation, why_not)))
    if places:
        yield _places(places)
    if explanation:
        yield _differences(explanation)
    yield _figures(a, b)
    yield _breakdown(a, b)
    yield _keys(a, b)


def _answer(a: Side, b: Side, explanation: Explanation | None, why_not: str | None) -> str:
    if not a.pace_bytes_per_s or not b.pace_bytes_per_s:
        return "There is nothing to compare: no command has a status."
    one, other = amounts.rate(a.pace_bytes_per_s), amounts.rate(b.pace_bytes_per_s)
    if why_not:
        return f"The pace of A is {one}, of B {other}. Cause unknown: {why_not}."
    if explanation is None or explanation.unexplained_share is None:
        return f"A and B have the same pace: {one} and {other}."
    if explanation.factor > 1:
        return f"B is {explanation.factor:.2g} times as fast as A: {other} against {one}. {_causes(explanation)}"
    return f"A is {1 / explanation.factor:.2g} times as fast as B: {one} against {other}. {_causes(explanation)}"


def _causes(explanation: Explanation) -> str:
    shares = {each: each.share or 0.0 for each in explanation.differences}
    if max(map(abs, shares.values()), default=0) > _AGAINST:
        factors = [f"{each.label} {each.factor:.2g}x" for each in list(shares)[:3]]
        return f"Large differences offset each other. Model, B relative to A: {', '.join(factors)}."
    causes = [f"{each.label} {amounts.percent(share)}" for each, share in shares.items() if share >= _WEIGHTY]
    because = f"Causes: {', '.join(causes)}." if causes else "No difference known to the model explains the gap."
    left = abs(explanation.unexplained_share or 0)
    return f"{because} The model leaves {amounts.percent(left)} unexplained."


def _places(places: ByPlace) -> Section:
    """Where the difference of the median latencies is, by the taps of both sides."""
    a, b = places.a, places.b
    rows = [
        (
            PLACE_WORDS[place],
            *(cells.milliseconds(each.parts_ns[place]) for each in (a, b)),
            cells.milliseconds(places.parts_ns[place]),
            *(amounts.percentage(each.shares[place]) for each in (a, b)),
        )
        for place in PLACES
    ]
    latencies = (a.latency_ns, b.latency_ns, places.latency_ns)
    rows.append(("median latency", *map(cells.milliseconds, latencies), "100", "100"))
    columns = ("place", "A ms", "B ms", "B - A ms", "A %", "B %")
    findings = [
        f"{name.upper()}: {each.name} ({each.severity}): {sentence(each.text)}"
        for name, found in places.findings.items()
        for each in found
    ]
    title = "By place: parts of the median latency of reads and writes, and shares of the time of all"
    return Section(title, (*findings, table(columns, rows)))


def _differences(explanation: Explanation) -> Section:
    rows = [
        (each.label, _value(each, each.a), _value(each, each.b), each.factor, each.share) for each in explanation.large
    ]
    if rest := explanation.small:
        rows.append(("smaller differences", "", "", rest.factor, rest.share))
    rows.append(("unexplained", "", "", explanation.unexplained_factor, explanation.unexplained_share))
    rows.append(("total", "", "", explanation.factor, None if explanation.unexplained_share is None else 1.0))
    columns = ("difference", "A", "B", "factor", "share of the gap %")
    grid = table(
        columns,
        (
            (label, one, other, f"{factor:.3f}", None if share is None else f"{share * 100:.1f}")
            for label, one, other, factor, share in rows
        ),
    )
    return Section("Causes of the gap: factor of each on the pace, B / A, by the model", (grid,))


def _value(difference: Difference, value: Any) -> str:
    if difference.name == "delay_ns":
        # the model's delay is half of the RTT that was measured
        value = 2 * value
    return cells.NOTHING if value is None else _FORMATS.get(difference.unit, str)(value)


def _figures(a: Side, b: Side) -> Section:
    def text(amount: float | None, form: Callable[[float], str]) -> str:
        return cells.NOTHING if amount is None else form(amount)

    figures: list[tuple[str, Callable[[Side], object]]] = [
        ("operation", lambda side: {"block": "read and write"}.get(side.operation, side.operation)),
        ("commands", lambda side: side.task_count),
        ("pace (bytes / I/O time)", lambda side: text(side.pace_bytes_per_s, amounts.rate)),
        (
            "I/O sizes",
            lambda side: ", ".join(f"{count:,} of {cells.size(size)}" for size, count in side.block_sizes.items()),
        ),
        ("queue depth", lambda side: side.queue_depth),
        ("connections", lambda side: side.connection_count),
        ("RTT", lambda side: text(side.path_ns, amounts.time)),
        ("line rate", lambda side: text(side.line_bytes_per_s, amounts.rate)),
        ("largest receive window", lambda side: text(side.window_bytes, amounts.about)),
        ("losses", lambda side: side.loss_count),
        ("retransmissions", lambda side: f"{side.retransmitted_packet_count:,} of {side.packet_count:,} packets"),
    ]
    rows: list[tuple[object, ...]] = [(label, form(a), form(b)) for label, form in figures]
    rows += [
        (f"latency {name}", text(a.latency_ns[name], amounts.time), text(b.latency_ns[name], amounts.time))
        for name in PERCENTILES
    ]
    if a.incomplete_count or b.incomplete_count:
        rows.append(("latency of", *(_measured(side) for side in (a, b))))
    if a.without_status_count or b.without_status_count:
        rows.append(("without a status", *(amounts.count(side.without_status_count, "command") for side in (a, b))))
    return Section("Side by side: the commands of this operation", (table(("", "A", "B"), rows),))


def _measured(side: Side) -> str:
    total = side.task_count + side.incomplete_count
    return amounts.part_of(side.task_count, total, "commands", "are not complete") or f"all {total:,} commands"


def _breakdown(a: Side, b: Side) -> Section:
    shown = [part for part in a.parts_ns if max(a.share(part), b.share(part)) >= _SHOWN_PART]
    costs = {part: (a.ns_per_megabyte(part), b.ns_per_megabyte(part)) for part in shown}
    rows = [
        (
            BY_NAME[part].label,
            cells.percent(a.share(part)),
            cells.percent(b.share(part)),
            cells.milliseconds(one),
            cells.milliseconds(other),
            cells.milliseconds(other - one),
        )
        for part, (one, other) in costs.items()
    ]
    columns = ("part", "A %", "B %", "A ms/MB", "B ms/MB", "B - A ms/MB")
    return Section(
        f"Time breakdown: shares of the I/O time, A {cells.seconds(a.jobs_ns)} s, B {cells.seconds(b.jobs_ns)} s",
        (table(columns, rows),),
    )


def _keys(a: Side, b: Side) -> Section:
    if not a.keys or not b.keys:
        missing = " and ".join(name for name, side in (("A", a), ("B", b)) if not side.keys)
        return Section(f"Negotiated parameters cannot be compared: the login of {missing} was not captured")
    names = differing_keys(a, b)
    if not names:
        return Section("All negotiated parameters are equal")
    columns = ("key", "A negotiated", "initiator", "target", "B negotiated", "initiator", "target")
    rows = [(name, *_cells(a.keys.get(name)), *_cells(b.keys.get(name))) for name in names]
    return Section("Negotiated parameters that differ", (table(columns, rows),))


def _cells(key: Key | None) -> tuple[str | None, str | None, str | None]:
    return (key.in_force, key.initiator_value, key.target_value) if key else (None, None, None)
