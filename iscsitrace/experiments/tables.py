"""Results as tables of text: a row a place of the grid, published figures beside ours, fits, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from iscsitrace.experiments import comparison
from iscsitrace.experiments.comparison import Row
from iscsitrace.experiments.results import JudgedCheck, Results
from iscsitrace.report.document import Grid
from iscsitrace.wording.cells import NOTHING

_SHOWN_PERCENT: Final = 0.5
"""Of a part of the time budget."""
_SHOWN_PARTS: Final = 3


def of(found: Results) -> list[Grid]:
    """Every table that has a row."""
    every = [_claims(found), _evidence(found), _measured(found), _searches(found), _streams(found)]
    every += [make(found) for name, make in _WANTED.items() if name in found.tables]
    every += [_beside(found), _fits(found), _failed(found), _not_run(found)]
    return [grid for grid in every if grid.rows]


def _claims(found: Results) -> Grid:
    return Grid(
        "Claims of the study",
        ("claim", "says", "here", "measured (expected)", "why"),
        tuple(
            (each.name, each.text, each.verdict, "; ".join(map(_check, each.checks)) or NOTHING, each.why or NOTHING)
            for each in found.claims
        ),
    )


def _check(check: JudgedCheck) -> str:
    sign = "less" if check.unit != "times" else "over"
    where = f"{check.of}, {sign} {check.beside}" if check.beside else check.of
    return f"{_number(check.value, 2)} {check.unit} ({check.low:g} to {check.high:g}): {where}"


def _evidence(found: Results) -> Grid:
    return Grid(
        "What the captures say where a claim is not reproduced",
        ("claim", "at", "MB/s", "period ms", "idle %", "resent %", "limiter", "where the time goes"),
        tuple(
            (
                claim.name,
                each.of,
                _number(each.means.get("throughput"), 2),
                _number(each.means.get("period"), 2),
                _number(each.means.get("idle_fraction"), 1),
                _number(each.means.get("retransmission_rate"), 3),
                each.limiter,
                _largest(each.shares),
            )
            for claim in found.claims
            for each in claim.evidence
        ),
        ("By the capture at the initiator, after the warm-up: the three largest parts of the time budget.",),
    )


def _largest(shares: dict[str, float]) -> str:
    parts = sorted(shares, key=lambda part: -shares[part])[:_SHOWN_PARTS]
    return ", ".join(f"{part.replace('_', ' ')} {shares[part]:.0f} %" for part in parts if shares[part] >= 1)


def _measured(found: Results) -> Grid:
    rows = comparison.rows(found.points)
    grid = list(dict.fromkeys(name for row in rows for name in row.grid))
    names = [name.rpartition(".")[2] for name in grid]
    return Grid(
        "Measured and model",
        ("arm", *names, "MB/s", "model", "error %", "idle %", "model idle %", "k", "limiter", "runs"),
        tuple(_row(row, grid) for row in rows),
        ("Throughput after the warm-up; error: throughput of the model / measured, less 1.",),
    )


def _row(row: Row, grid: Sequence[str]) -> tuple[str, ...]:
    measured, model = row.means, row.model
    throughput, predicted = measured.get("throughput"), model.get("throughput")
    error = 100 * (predicted / throughput - 1) if throughput and predicted else None
    return (
        row.arm,
        *(row.grid.get(name, NOTHING) for name in grid),
        _number(throughput, 3),
        _number(predicted, 3),
        _number(error, 1),
        _number(measured.get("idle_fraction"), 1),
        _number(model.get("idle_fraction"), 1),
        _number(measured.get("k"), 2),
        row.limiter or NOTHING,
        f"{row.run_count}/{row.run_count + row.failed_count}" if row.failed_count else str(row.run_count),
    )


def _streams(found: Results) -> Grid:
    """Of experiments with several streams anywhere; in the order of the table before."""
    rows = comparison.rows(found.points)
    grid = list(dict.fromkeys(name for row in rows for name in row.grid))
    names = [name.rpartition(".")[2] for name in grid]
    shown = rows if any(row.stream_count > 1 for row in rows) else []
    return Grid(
        "Streams beside each other",
        ("arm", *names, "streams", "line %", "scatter %", "Jain", "first to last s", "times", "resent %", "timeouts"),
        tuple(_of_streams(row, grid) for row in shown if row.stream_count),
        (
            "line: share of the time in which the shared line carried bits; scatter: standard deviation of the "
            "throughput over repeats / mean; Jain's index of the streams' throughputs; from the first stream's end to "
            "the last one's; segments sent again / packets sent.",
        ),
    )


def _of_streams(row: Row, grid: Sequence[str]) -> tuple[str, ...]:
    means = row.means
    return (
        row.arm,
        *(row.grid.get(name, NOTHING) for name in grid),
        str(row.stream_count),
        _number(means.get("utilisation"), 1),
        _number(means.get("scatter"), 1),
        _number(means.get("jain"), 3),
        _number(means.get("spread"), 1),
        _number(means.get("spread_ratio"), 2),
        _number(means.get("retransmission_rate"), 4),
        _number(means.get("timeouts"), 1),
    )


def _searches(found: Results) -> Grid:
    """Of arms whose number of connections was looked for, and of those beside them."""
    rows = comparison.rows(found.points)
    is_searched = any(name in row.means for row in rows for name in ("connections", "converge"))
    grid = list(dict.fromkeys(name for row in rows for name in row.grid))
    names = [name.rpartition(".")[2] for name in grid]
    columns = ("connections", "converge", "goodput_lost", "latency_cv", "connection_spread", "cwnd_spread")
    headings = ("found", "after s", "lost %", "latency cv %", "MB/s over connections cv %", "cwnd cv %")
    return Grid(
        "The number of connections",
        ("arm", *names, "MB/s", *headings),
        tuple(
            (
                row.arm,
                *(row.grid.get(name, NOTHING) for name in grid),
                _number(row.means.get("throughput"), 3),
                *(_number(row.means.get(name), 0 if name == "connections" else 1) for name in columns),
            )
            for row in rows
            if is_searched
        ),
        (
            "Lost: throughput of the whole time against that after the search; cv: standard deviation / mean, of the "
            "time that tasks take, and over connections.",
        ),
    )


def _beside(found: Results) -> Grid:
    return Grid(
        "Beside what was published",
        ("what", "arm", "at", "published", "ours", "unit", "source"),
        tuple(
            (each.quantity, each.arm, each.at, f"{each.published:g}", _number(each.ours, 1), each.unit, each.source)
            for each in found.beside
        ),
    )


def _fits(found: Results) -> Grid:
    return Grid(
        "The model fitted over the delays of each arm",
        ("arm", "of", "k", "s ms", "C MB/s", "largest residual %"),
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


def _not_run(found: Results) -> Grid:
    # one reason for many points, mostly
    groups: dict[tuple[str, str], int] = {}
    for point in found.not_run:
        key = (point.arm, point.not_run or "")
        groups[key] = groups.get(key, 0) + 1
    return Grid(
        "Not run", ("arm", "points", "why"), tuple((arm, str(count), why) for (arm, why), count in groups.items())
    )


def _efficiency(found: Results) -> Grid:
    rows = [row for row in comparison.rows(found.points) if "efficiency" in row.means]
    grid, names = _places(rows)
    return Grid(
        "Efficiency and processor time",
        ("arm", *names, "efficiency %", "s/GB", "target s/GB"),
        tuple(
            (
                row.arm,
                *(row.grid.get(name, NOTHING) for name in grid),
                _number(row.means["efficiency"], 1),
                _number(row.means.get("cpu"), 2),
                _number(row.means.get("target_cpu"), 2),
            )
            for row in rows
        ),
        (
            "Efficiency: throughput after the warm-up / the rate of the line. s/GB: processor time, user and system, "
            "for 10^9 bytes; known in the real world.",
        ),
    )


def _budget(found: Results) -> Grid:
    rows = [row for row in comparison.rows(found.points) if row.shares]
    grid, names = _places(rows)
    parts = list(dict.fromkeys(part for row in rows for part, share in row.shares.items() if share >= _SHOWN_PERCENT))
    return Grid(
        "Where the time of a call goes, %",
        ("arm", *names, "period ms", *(part.replace("_", " ") for part in parts), "decides"),
        tuple(
            (
                row.arm,
                *(row.grid.get(name, NOTHING) for name in grid),
                _number(row.means.get("period"), 3),
                *(_number(row.shares[part], 1) for part in parts),
                max(row.shares, key=row.shares.__getitem__).replace("_", " "),
            )
            for row in rows
        ),
        (f"By the capture at the initiator, after the warm-up, without parts below {_SHOWN_PERCENT:g} % everywhere.",),
    )


_WANTED: Final = {"efficiency": _efficiency, "budget": _budget}


def _places(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Settings of the grid, and what they are called."""
    grid = list(dict.fromkeys(name for row in rows for name in row.grid))
    return grid, [name.rpartition(".")[2] for name in grid]


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"
