"""Results as tables of text: a row for each place of the grid, published values, fits, and the points that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from iscsitrace.lab.settings import structs
from iscsitrace.show import terminal
from iscsitrace.show.document import Grid, Section, table
from iscsitrace.studies import expected, repeats, verdicts
from iscsitrace.studies.definition import WORLDS
from iscsitrace.studies.quantities import EFFICIENCY, QUANTITIES, SEARCH, STREAMS, StudyQuantity
from iscsitrace.studies.repeats import Row
from iscsitrace.studies.results import Beside, JudgedCheck, JudgedClaim, Results
from iscsitrace.studies.verdicts import SHOWN
from iscsitrace.wording.cells import NOTHING

_SHOWN_PERCENT: Final = 0.5
"""The least share of a part of the time breakdown that is shown."""
_SHOWN_PARTS: Final = 3
_EVEN: Final = 1e-6
"""Ends of an interval that are as far from the value, up to this share of its width."""


def of(found: Results) -> list[Grid]:
    """Every table that has a row."""
    rows = repeats.rows(found.points)
    every = [*_claims(found), _evidence(found), _measured(rows, found.world), _search(rows), _streams(rows)]
    every += [make(rows) for name, make in _WANTED.items() if name in found.tables]
    every += [_beside(found), _fits(found), _failed(found)]
    return [grid for grid in every if grid.rows]


def _claims(found: Results) -> Iterator[Grid]:
    for caption, is_own in (("Claims of the study", False), ("Claims of our own", True)):
        yield Grid(
            caption,
            ("claim", "text", "result", "measured (expected)", "why"),
            tuple(
                (each.name, each.text, each.verdict, checks_text(each) or NOTHING, each.why or NOTHING)
                for each in found.claims
                if each.is_own == is_own
            ),
            (_CHECKS_NOTE,),
        )


_CHECKS_NOTE: Final = (
    "±: half of the 95 % confidence interval, with the number of repeats n. Undecided: a limit is in the interval. "
    "Without ±: one run."
)


def checks_text(claim: JudgedClaim) -> str:
    """The checks of a claim: measured, with the limits and the places."""
    return "; ".join(map(_check, claim.checks))


def _check(check: JudgedCheck) -> str:
    sign = "minus" if check.unit != "times" else "over"
    where = f"{check.of}, {sign} {check.beside}" if check.beside else check.of
    measured = with_interval(check.value, check.interval, check.run_count, 2)
    return f"{measured} {check.unit} ({check.low:g} to {check.high:g}): {where}"


def with_interval(value: float | None, interval: tuple[float, float] | None, count: int, digits: int) -> str:
    """A number with half its confidence interval, ``85.92 ± 0.31 (n = 5)``; with both ends where it is uneven."""
    text = _number(value, digits)
    if value is None or interval is None:
        return text
    below, above = value - interval[0], interval[1] - value
    if abs(below - above) <= _EVEN * (above + below):
        return f"{text} ± {above:.{digits}f} (n = {count})"
    return f"{text} ({interval[0]:.{digits}f} .. {interval[1]:.{digits}f}, n = {count})"


def _evidence(found: Results) -> Grid:
    shown = [QUANTITIES[name] for name in SHOWN]
    return Grid(
        "Captures of claims that are not reproduced",
        ("claim", "at", *(each.heading for each in shown), "limiter", "time breakdown"),
        tuple(
            (claim.name, each.of, *_texts(shown, each.means), each.limiter, _largest(each.shares))
            for claim in found.claims
            for each in claim.evidence
        ),
        ("From the capture at the initiator, after the warm-up: the three largest parts of the time breakdown.",),
    )


def _largest(shares: dict[str, float]) -> str:
    parts = sorted(shares, key=lambda part: shares[part], reverse=True)[:_SHOWN_PARTS]
    return ", ".join(f"{part.replace('_', ' ')} {shares[part]:.0f} %" for part in parts if shares[part] >= 1)


def _measured(rows: Sequence[Row], world: str) -> Grid:
    is_simulated = world == WORLDS[0]
    columns = (
        "MB/s",
        "95 % ±",
        "model",
        "difference %" if is_simulated else "error %",
        "idle %",
        "model idle %",
        "k",
        "limiter",
        "runs",
    )
    note = f"{_MEASURED_NOTE} {verdicts.SHARED_SETTINGS}" if is_simulated else _MEASURED_NOTE
    # in the real world a veth pair may replace the line
    has_line = [is_simulated or not structs.programs_of(row.values).get("is_bypassed") for row in rows]
    lines = {
        id(row): expected.line_bytes_per_s(row.values) if has else None for row, has in zip(rows, has_line, strict=True)
    }
    return _by_place("Measured and model", columns, rows, lambda row: _measured_cells(row, lines[id(row)]), note)


_MEASURED_NOTE: Final = (
    "Throughput after the warm-up, with half its 95 % confidence interval; error or difference: throughput of the "
    "model / measured, minus 1; idle: 1 - throughput / TCP payload rate of the line, which carries each copy of a "
    "mirror."
)


def _measured_cells(row: Row, line_bytes_per_s: float | None) -> tuple[str, ...]:
    throughput, k = (QUANTITIES[name] for name in ("throughput", "k"))
    measured, predicted = row.means.get(throughput.name), row.model.get(throughput.name)
    interval = row.estimates[throughput.name].interval if measured is not None else None
    return (
        throughput.text(measured),
        throughput.text((interval[1] - interval[0]) / 2 if interval else None),
        throughput.text(predicted),
        _number(None if row.model_error is None else 100 * row.model_error, 1),
        _idle_text(measured, line_bytes_per_s),
        _idle_text(predicted, line_bytes_per_s),
        k.text(row.means.get(k.name)),
        row.limiter or NOTHING,
        f"{row.run_count}/{row.run_count + row.failed_count}" if row.failed_count else str(row.run_count),
    )


def _idle_text(megabytes_per_s: float | None, line_bytes_per_s: float | None) -> str:
    """The share of the line's rate that is not used, in %."""
    if megabytes_per_s is None or line_bytes_per_s is None:
        return NOTHING
    # below zero where more was counted than the line carries: that is to be seen
    return _number(round(100 * (1 - 1e6 * megabytes_per_s / line_bytes_per_s), 1) + 0.0, 1)


def _search(rows: Sequence[Row]) -> Grid:
    """The arms that searched for the number of connections, and those beside them."""
    shown = [QUANTITIES["throughput"], *_of_table(SEARCH)]
    is_searched = any(name in row.means for row in rows for name in ("connections", "converge"))
    return _by_place(
        "The number of connections",
        tuple(each.heading for each in shown),
        rows if is_searched else (),
        lambda row: _texts(shown, row.means),
        "found, after: the number that the search found, and when; lost: throughput of the whole time against that "
        "after the search; cv: coefficient of variation (standard deviation / mean).",
    )


def _streams(rows: Sequence[Row]) -> Grid:
    """The experiments in which several streams run at the same time."""
    shown = _of_table(STREAMS)
    has_several = any(row.stream_count > 1 for row in rows)
    return _by_place(
        "Parallel streams",
        ("streams", *(each.heading for each in shown)),
        [row for row in rows if has_several and row.stream_count],
        lambda row: (str(row.stream_count), *_texts(shown, row.means)),
        "line: time in which the shared line was busy; scatter: coefficient of variation of throughput over repeats; "
        "Jain: fairness index of the streams' throughputs; first to last, times: from the end of the first stream to "
        "the end of the last, and their ratio; retransmitted: retransmitted segments / packets sent.",
    )


def _efficiency(rows: Sequence[Row]) -> Grid:
    shown = _of_table(EFFICIENCY)
    return _by_place(
        "Efficiency and CPU time",
        tuple(each.heading for each in shown),
        [row for row in rows if "efficiency" in row.means],
        lambda row: _texts(shown, row.means),
        "Efficiency: throughput after the warm-up / rate of the line. s/GB: CPU time, user and system, per 10^9 bytes; "
        "known in the real world only.",
    )


def _budget(rows: Sequence[Row]) -> Grid:
    known = [row for row in rows if row.shares]
    period = QUANTITIES["period"]
    parts = list(dict.fromkeys(part for row in known for part, share in row.shares.items() if share >= _SHOWN_PERCENT))
    return _by_place(
        "Time breakdown of a call, %",
        (period.heading, *(part.replace("_", " ") for part in parts), "largest"),
        known,
        lambda row: (
            period.text(row.means.get(period.name)),
            *(_number(row.shares[part], 1) for part in parts),
            max(row.shares, key=row.shares.__getitem__).replace("_", " "),
        ),
        f"From the capture at the initiator, after the warm-up, without parts below {_SHOWN_PERCENT:g} % everywhere.",
    )


_WANTED: Final = {"efficiency": _efficiency, "budget": _budget}


def _beside(found: Results) -> Grid:
    return Grid(
        "Measured and published",
        ("quantity", "arm", "at", "published", "measured", "unit", "result", "source", "why"),
        tuple(
            (
                *(each.quantity, each.arm, _at(each), printed(each), _ours(each), each.unit),
                *(each.verdict, each.source, each.why or NOTHING),
            )
            for each in found.beside
        ),
    )


def printed(each: Beside) -> str:
    """The published value, and whether it is computed."""
    return f"{each.published:g}{' (computed)' if each.is_computed else ''}"


def _at(each: Beside) -> str:
    """The value of ``x``, and the settings of its place."""
    return repeats.place_name(each.at, each.where)


def _ours(each: Beside) -> str:
    return with_interval(each.ours, each.interval, each.run_count, QUANTITIES[each.quantity].digits)


def _fits(found: Results) -> Grid:
    return Grid(
        "The model, fitted to each arm over delay",
        ("arm", "settings", "k", "s ms", "C MB/s", "largest residual %"),
        tuple(_fit(each.arm, each.where, each.fit) for each in found.fits),
        ("Values with their 95 % confidence intervals.",),
    )


def _fit(arm: str, where: dict[str, str], fit: dict[str, Any]) -> tuple[str, ...]:
    def estimate(name: str, factor: float, digits: int) -> str:
        found = fit[name]
        if not isinstance(found, dict):
            return NOTHING
        value, low, high = (float(found[end]) * factor for end in ("value", "low", "high"))
        return f"{value:.{digits}f} ({low:.{digits}f} .. {high:.{digits}f})"

    largest = max((abs(each["residual"]) for each in fit["residuals"]), default=0.0)
    named = ", ".join(f"{name.rpartition('.')[2]} {text}" for name, text in where.items()) or NOTHING
    return (
        arm,
        named,
        estimate("k", 1, 2),
        estimate("s_ns", 1e-6, 3),
        estimate("c_bytes_per_s", 1e-6, 2),
        _number(100 * largest, 1),
    )


def _failed(found: Results) -> Grid:
    return Grid("Failed", ("point", "why"), tuple((point.name, point.error or "") for point in found.failed))


def _by_place(
    caption: str, columns: Sequence[str], rows: Sequence[Row], cells: Callable[[Row], tuple[str, ...]], note: str
) -> Grid:
    """A table with a row for each place of the grid: its arm and settings, then further cells."""
    grid = list(dict.fromkeys(name for row in rows for name in row.grid))
    names = [name.rpartition(".")[2] for name in grid]
    return Grid(
        caption,
        ("arm", *names, *columns),
        tuple((row.arm, *(row.grid.get(name, NOTHING) for name in grid), *cells(row)) for row in rows),
        (note,),
    )


def _of_table(name: str) -> list[StudyQuantity]:
    return [each for each in QUANTITIES.values() if each.table == name]


def _texts(shown: Sequence[StudyQuantity], means: dict[str, float]) -> tuple[str, ...]:
    return tuple(each.text(means.get(each.name)) for each in shown)


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def show(found: Results, directory: Path) -> None:
    """Shows every table of the results, and the files in their folder."""
    titles = {name: figure.title for figure in found.figures for name in (figure.file, *figure.others)}
    names = ["results.json", "results.csv", *titles]
    files = table(("file", "content"), [(directory / name, titles.get(name, "every point")) for name in names], "Files")
    first = f"{found.title}, {found.world} world; source: {found.source}"
    last = f"One page with figures and tables: iscsitrace report {directory}"
    terminal.show([Section("", (first, *of(found), files, last))])
