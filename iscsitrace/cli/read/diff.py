"""``iscsitrace diff``: a slow and a fast capture side by side, and which difference explains how much of the gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, prod
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.options import CaptureInput, as_json
from iscsitrace.cli.output import envelope, show_heading, show_json, show_line, show_table
from iscsitrace.cli.record.capture_content import show_inputs
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.analysis.comparison.differences import Difference, Explanation
    from iscsitrace.analysis.comparison.sides import Key, Side
    from iscsitrace.tables.trace import Trace

_SHOWN_FACTOR = 0.01
"""Differences that change the throughput by less stand in --json only."""
_SHOWN_PART = 0.01
"""So do parts of the budget with a smaller share on both sides."""
_WEIGHTY = 0.1
"""Shares of the gap that the first sentence speaks of."""
_AGAINST = 1.5
"""A difference that weighs more than so many times the gap is made up for by others."""
_NONE = "-"
_IDENTITY = frozenset(
    "InitiatorName InitiatorAlias TargetName TargetAlias TargetAddress TargetPortalGroupTag CHAP_N CHAP_I".split()
)


@click.command(epilog="Example:  iscsitrace diff slow.pcapng fast.pcapng")
@click.argument("capture_a", metavar="A")
@click.argument("capture_b", metavar="B")
@click.option("--session-a", type=click.IntRange(min=0), metavar="NUMBER", help="The session of A, as summary has it.")
@click.option("--session-b", type=click.IntRange(min=0), metavar="NUMBER", help="The session of B.")
@as_json
@click.option("--no-progress", is_flag=True, help="Draw no progress bar.")
def command(
    capture_a: str, capture_b: str, session_a: int | None, session_b: int | None, is_json: bool, no_progress: bool
) -> None:
    """What differs between two captures, such as a slow and a fast one, and what each difference costs.

    Of each capture one session is compared: those asked for, else of the busy ones the two that do the same (read or
    write), with the same target if there are. A and B may be the same file.

    The model changes one difference at a time from A's to B's, in every order; a factor is what that does to the
    throughput on average. Factors multiply to the gap of the model; what is left is said. docs/diff.md has more.
    """
    from iscsitrace.analysis.comparison import differences, matching, sides

    if (capture_a, capture_b) == ("-", "-"):
        raise click.UsageError("standard input can be read only once")
    traces = [
        CaptureInput((capture,), None, None, None, None, not no_progress).read(sides.NEEDED)
        for capture in (capture_a, capture_b)
    ]
    found_a, found_b = (sides.sides_of(trace.table) for trace in traces)
    a, b = matching.match(found_a, found_b, session_a, session_b)
    why_not = matching.why_not(a, b)
    explanation = differences.explain(a.measured, b.measured) if a.measured and b.measured and not why_not else None
    if is_json:
        show_json(_document(traces, a, b, explanation, why_not))
    else:
        _show(traces, a, b, explanation, why_not)


def _document(
    traces: Sequence[Trace], a: Side, b: Side, explanation: Explanation | None, why_not: str | None
) -> dict[str, Any]:
    first, second = (envelope(trace) for trace in traces)
    shared = {"schema": first["schema"], "tool": first["tool"]}
    captures = {
        name: {"input": document["input"], "options": document["options"]} | side.as_dict()
        for name, document, side in (("a", first, a), ("b", second, b))
    }
    keys = [
        {"key": key, **{name: _key(side.keys.get(key)) for name, side in (("a", a), ("b", b))}}
        for key in _differing_keys(a, b)
    ]
    return shared | captures | {"keys": keys, "gap": explanation and explanation.as_dict(), "not_comparable": why_not}


def _key(key: Key | None) -> dict[str, str | None] | None:
    if key is None:
        return None
    return {"initiator": key.initiator_value, "target": key.target_value, "in_force": key.in_force}


def _differing_keys(a: Side, b: Side) -> list[str]:
    """Keys that are not in force alike, in the order in which A has them; who somebody is does not count."""
    names = [name for name in dict.fromkeys([*a.keys, *b.keys]) if name not in _IDENTITY]
    in_force = {name: [side.keys[name].in_force if name in side.keys else None for side in (a, b)] for name in names}
    return [name for name, (one, other) in in_force.items() if one != other]


def _show(traces: Sequence[Trace], a: Side, b: Side, explanation: Explanation | None, why_not: str | None) -> None:
    for name, trace, side in zip("AB", traces, (a, b), strict=True):
        show_inputs(trace.inputs)
        target = side.target_name or "a target whose login was not captured"
        show_line(f"{name}: its session {side.session}, {target}")
    click.echo()
    show_line(_verdict(a, b, explanation, why_not))
    if explanation:
        _show_differences(explanation)
    _show_figures(a, b)
    _show_budget(a, b)
    _show_keys(a, b)


def _verdict(a: Side, b: Side, explanation: Explanation | None, why_not: str | None) -> str:

    if not a.throughput_bytes_per_s or not b.throughput_bytes_per_s:
        return "There is no throughput to compare: no task has a status."
    one, other = (f"{side.throughput_bytes_per_s / 1e6:.1f}" for side in (a, b) if side.throughput_bytes_per_s)
    if why_not:
        return f"A carries {one} MB/s, B {other} MB/s; why is not said: {why_not}."
    if explanation is None or explanation.unexplained_share is None:
        return f"A and B carry alike: {one} and {other} MB/s."
    ratio = max(explanation.factor, 1 / explanation.factor)
    names = ("B", "A") if explanation.factor > 1 else ("A", "B")
    amounts = f"{other} against {one}" if explanation.factor > 1 else f"{one} against {other}"
    return f"{names[0]} carries {ratio:.2g} times as much as {names[1]}: {amounts} MB/s. {_causes(explanation)}"


def _causes(explanation: Explanation) -> str:
    from iscsitrace.wording import amounts as wording

    shares = {each: each.share or 0.0 for each in explanation.differences}
    if max(map(abs, shares.values()), default=0) > _AGAINST:
        factors = [f"{each.label} makes it {each.factor:.2g} times" for each in list(shares)[:3]]
        return f"What differs works in both directions, most of all: {', '.join(factors)}."
    causes = [f"{each.label} {wording.percent(share)}" for each, share in shares.items() if share >= _WEIGHTY]
    because = f"Of that {', '.join(causes)}." if causes else "No difference that the model knows explains that."
    left = abs(explanation.unexplained_share or 0)
    return f"{because} The model leaves {wording.percent(left)} unexplained."


def _show_differences(explanation: Explanation) -> None:
    is_shown = [abs(log(each.factor)) >= _SHOWN_FACTOR for each in explanation.differences]
    told = [each for each, shown in zip(explanation.differences, is_shown, strict=True) if shown]
    hidden = [each for each, shown in zip(explanation.differences, is_shown, strict=True) if not shown]
    rows = [(each.label, _value(each, each.a), _value(each, each.b), each.factor, each.share) for each in told]
    if hidden:
        share = None if hidden[0].share is None else sum(each.share or 0 for each in hidden)
        rows.append(("smaller differences", "", "", prod(each.factor for each in hidden), share))
    rows.append(("not explained", "", "", explanation.unexplained_factor, explanation.unexplained_share))
    rows.append(("all", "", "", explanation.factor, None if explanation.unexplained_share is None else 1.0))
    show_heading("What explains it: throughput of B / throughput of A, by the model")
    show_table(
        ("difference", "A", "B", "factor", "share of the gap %"),
        [
            (label, one, other, f"{factor:.3f}", _NONE if share is None else f"{share * 100:.1f}")
            for label, one, other, factor, share in rows
        ],
    )


def _value(difference: Difference, value: Any) -> str:
    from iscsitrace.wording import amounts as wording

    if value is None:
        return _NONE
    if difference.unit == "yes/no":
        return "yes" if value else "no"
    formats: dict[str, Callable[[float], str]] = {
        "bytes": wording.size,
        "ns": wording.time,
        "B/s": wording.rate,
        # a nanosecond a byte is a millisecond a megabyte
        "ns/B": lambda amount: f"{amount:.2f} ms/MB",
    }
    return formats.get(difference.unit, str)(value)


def _show_figures(a: Side, b: Side) -> None:
    from iscsitrace.wording import amounts as wording

    def text(amount: float | None, say: Callable[[float], str]) -> str:
        return _NONE if amount is None else say(amount)

    rows: list[tuple[str, Callable[[Side], str]]] = [
        ("operation", lambda side: {"block": "read and write"}.get(side.operation, side.operation)),
        ("tasks", lambda side: str(side.task_count)),
        ("throughput", lambda side: text(side.throughput_bytes_per_s, wording.rate)),
        (
            "PDU block sizes",
            lambda side: ", ".join(f"{count} of {cells.size(size)}" for size, count in side.block_sizes.items()),
        ),
        ("queue depth", lambda side: str(side.queue_depth)),
        ("connections", lambda side: str(side.connection_count)),
        ("one-way delay", lambda side: text(side.path_ns and side.path_ns / 2, wording.time)),
        ("line", lambda side: text(side.line_bytes_per_s, wording.rate)),
        ("receive window at most", lambda side: text(side.window_bytes, wording.about)),
        ("losses", lambda side: str(side.loss_count)),
        ("packets sent again", lambda side: f"{side.retransmitted_packet_count} of {side.packet_count}"),
    ]
    show_heading("Side by side: the tasks of that operation")
    latencies = [
        (f"latency {name}", text(a.latency_ns[name], wording.time), text(b.latency_ns[name], wording.time))
        for name in a.latency_ns
    ]
    show_table(("", "A", "B"), [*((label, say(a), say(b)) for label, say in rows), *latencies])


def _show_budget(a: Side, b: Side) -> None:
    show_heading("Their time, without pauses between jobs: its parts, and what each cost a MB")
    shown = [part for part in a.parts_ns if max(a.share(part), b.share(part)) >= _SHOWN_PART]
    show_table(
        ("part", "A %", "B %", "A ms/MB", "B ms/MB", "B - A ms/MB"),
        [
            (
                part,
                cells.percent(a.share(part)),
                cells.percent(b.share(part)),
                cells.milliseconds(round(a.ns_per_megabyte(part))),
                cells.milliseconds(round(b.ns_per_megabyte(part))),
                cells.milliseconds(round(b.ns_per_megabyte(part) - a.ns_per_megabyte(part))),
            )
            for part in shown
        ],
    )


def _show_keys(a: Side, b: Side) -> None:
    if not a.keys or not b.keys:
        missing = " and ".join(name for name, side in (("A", a), ("B", b)) if not side.keys)
        show_heading(f"Keys cannot be compared: the login of {missing} was not captured")
        return
    names = _differing_keys(a, b)
    show_heading("Keys that differ" if names else "All keys are alike")
    if names:
        show_table(
            ("key", "A in force", "initiator", "target", "B in force", "initiator", "target"),
            [(name, *_cells(a.keys.get(name)), *_cells(b.keys.get(name))) for name in names],
        )


def _cells(key: Key | None) -> tuple[str | None, str | None, str | None]:
    return (key.in_force, key.initiator_value, key.target_value) if key else (None, None, None)
