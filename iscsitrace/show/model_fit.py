"""A fit of the model as text; :meth:`Fit.as_dict` is its JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iscsitrace.fit.points import REASONS
from iscsitrace.show import inputs as captures
from iscsitrace.show import rivals, sweep
from iscsitrace.show.document import Section, table
from iscsitrace.show.sweep import SOURCES
from iscsitrace.wording import amounts, cells

if TYPE_CHECKING:
    from iscsitrace.fit.points import Fit
    from iscsitrace.fit.rivalry import Rivalry
    from iscsitrace.fit.sweep import Sweep
    from iscsitrace.model.estimate import Estimate


def sections(
    inputs: Iterable[Mapping[str, Any]],
    result: Fit,
    missing: Sequence[str],
    swept: Sweep | None = None,
    rivalry: Rivalry | None = None,
) -> Iterator[Section]:
    """The parameters, the parts of k, the points with their residuals, and what was left out.

    Of a sweep the points are in order of its settings, each also by the others.
    """
    yield captures.section(inputs)
    yield _parameters(result)
    scatter = amounts.percent(result.scatter)
    yield Section("", ("low to high: 95 % confidence interval", f"scatter of the period from run to run: {scatter}"))
    rows = [(leg.name, f"{leg.delays:.2f}", leg.meaning) for leg in result.legs]
    grid = table(("interval", "delays", "meaning"), rows)
    yield Section("Parts of k in one-way delays, measured from the packets", grids=(grid,))
    if swept is None:
        yield _points(result)
    else:
        yield Section("Points", (sweep.verdict(swept),), (sweep.points(swept),))
    if rivalry is not None:
        yield rivals.section(rivalry)
    if result.cycles_left_out:
        reasons = [(reason, count, REASONS[reason]) for reason, count in result.cycles_left_out.items()]
        yield Section("Commands left out", grids=(table(("reason", "commands", "meaning"), reasons),))
    for heading, lines in (("Not determined by these captures", result.undetermined), ("Not fitted", missing)):
        if lines:
            yield Section(heading, tuple(f"- {line}" for line in lines))


def _parameters(result: Fit) -> Section:
    c = result.c_bytes_per_s
    rows = [
        ("k", *_ends(result.k, 1, "{:.2f}"), "", SOURCES[result.k.source], f"{result.k_of_legs:g} from its parts"),
        ("d", *_ends(result.d_ns, 1e6, "{:.3f}"), "ms", SOURCES[result.d_ns.source], _delays(result)),
        ("s", *_ends(result.s_ns, 1e6, "{:.3f}"), "ms", SOURCES[result.s_ns.source], ""),
    ]
    if c:
        rows.append(("C", *_ends(c, 1e6, "{:.2f}"), "MB/s", SOURCES[c.source], _stretches(result)))
    share = result.stall_share
    if share.source == "fit":
        meaning = "of the model's waits for windows; the hosts work during the others"
        rows.append(("stalls", *_ends(share, 0.01, "{:.0f}"), "%", SOURCES[share.source], meaning))
    points = amounts.count(len(result.points), "point")
    return Section(
        f"period = k * d + s + B / C, from {result.cycles_used} commands at {points}",
        grids=(table(("", "value", "low", "high", "unit", "source", ""), rows),),
    )


def _points(result: Fit) -> Section:
    columns = (
        *("one-way ms", "I/O size", "QD", "commands", "left out", "MB/s", "period ms", "model ms", "residual %"),
        "point",
    )
    rows = [
        (
            cells.milliseconds(point.delay_ns.value),
            cells.size(point.setting.block_bytes),
            point.setting.queue_depth * point.setting.connections,
            point.cycle_count,
            sum(point.left_out.values()),
            cells.megabytes(point.throughput_bytes_per_s),
            cells.milliseconds(point.period_ns),
            cells.milliseconds(model_ns),
            f"{100 * residual:.2f}",
            point.name,
        )
        for point, model_ns, residual in zip(result.points, result.models_ns, result.residuals, strict=True)
    ]
    return Section("Points: measured period and period of the model", grids=(table(columns, rows),))


def _ends(estimate: Estimate, unit: float, form: str) -> tuple[str, str, str]:
    return form.format(estimate.value / unit), form.format(estimate.low / unit), form.format(estimate.high / unit)


def _stretches(result: Fit) -> str:
    """Of how many stretches a line rate is the median."""
    seen = [point.seen for point in result.points]
    count = sum(line.stretch_count for each in seen if (line := each.own_line))
    is_line = result.c_bytes_per_s is not None and result.c_bytes_per_s.source == "line"
    return f"median of {amounts.count(count, 'stretch', 'stretches')}" if is_line else ""


def _delays(result: Fit) -> str:
    """The range of the delays, where the points have several; d is their median."""
    delays = sorted({round(point.delay_ns.value / 1e6, 3) for point in result.points})
    return f"median of {delays[0]:g} to {delays[-1]:g} ms" if len(delays) > 1 else ""
