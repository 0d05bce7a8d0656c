"""Predictions of the model as a JSON document, as text and as a chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iscsitrace import __version__
from iscsitrace.model.what_if import PARAMETERS
from iscsitrace.plots.model_curves import of_answers, text_of
from iscsitrace.show import files
from iscsitrace.show.document import Section, table
from iscsitrace.tables.schema import SCHEMA_VERSION
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.fit.fitted import FittedModel
    from iscsitrace.model.setting import Setting
    from iscsitrace.model.what_if import Alternative


def as_dict(base: Setting, fit_file: str | None, answers: Sequence[Alternative]) -> dict[str, Any]:
    """What ``model predict --json`` prints."""
    return {
        "schema": SCHEMA_VERSION,
        "tool": {"name": "iscsitrace", "version": __version__},
        "fit": fit_file,
        "setting": asdict(base),
        "predictions": [answer.as_dict() | {"setting": asdict(answer.prediction.setting)} for answer in answers],
    }


def sections(
    base: Setting, fit: FittedModel | None, lists: Mapping[str, Sequence[Any]], answers: Sequence[Alternative]
) -> Iterator[Section]:
    """One row for each combination of values."""
    varied = [name for name, values in lists.items() if len(values) > 1]
    fixed = [
        f"{PARAMETERS[name].label} {text_of(name, values[0])}" for name, values in lists.items() if len(values) == 1
    ]
    columns = (
        *(PARAMETERS[name].label for name in varied),
        "MB/s",
        *(("low", "high", "gain %") if fit else ()),
        *("period ms", "k", "line ms", "stalls ms", "idle %", "bound"),
    )
    yield Section(
        f"{base.operation}: period = k * d + s + B / C + stalls",
        (*([", ".join(fixed)] if fixed else []), table(columns, (_row(varied, answer) for answer in answers))),
    )
    if fit:
        yield Section(
            "", ("low and high: 95 % confidence interval of one more run; gain: relative to the fit's own setting",)
        )
    doubts = list(dict.fromkeys(doubt for answer in answers for doubt in answer.doubts))
    if doubts:
        yield Section("Intervals that are wider than at the fitted settings", tuple(f"- {doubt}" for doubt in doubts))
    if not all(answer.prediction.is_in_range for answer in answers):
        text = "out of range: losses are so frequent that timeouts dominate, which the formulas leave out"
        yield Section("", (text,))


def _row(varied: Sequence[str], answer: Alternative) -> tuple[object, ...]:
    found = answer.prediction
    of_fit = () if answer.gain is None else (
        cells.megabytes(answer.low_bytes_per_s),
        cells.megabytes(answer.high_bytes_per_s),
        f"{100 * answer.gain:.1f}",
    )  # fmt: skip
    return (
        *(text_of(name, answer.values[name]) for name in varied),
        cells.megabytes(found.throughput_bytes_per_s),
        *of_fit,
        cells.milliseconds(round(found.period_ns)),
        f"{found.k:.2f}",
        cells.milliseconds(round(found.transfer_ns)),
        cells.milliseconds(round(found.stall_ns)),
        f"{100 * found.idle_fraction:.1f}",
        found.bound + ("" if found.is_in_range else " (out of range)"),
    )


def write_chart(
    path: Path,
    base: Setting,
    fit: FittedModel | None,
    lists: Mapping[str, Sequence[Any]],
    answers: Sequence[Alternative],
) -> None:
    """Throughput over the first parameter with several values, a line for each combination of the others; beside them
    what was measured where the fit was made.
    """
    from iscsitrace.plots import model, style

    curves = of_answers(answers, lists, fit.places if fit and fit.setting.operation == base.operation else ())
    with files.written_aside(path, has_hosts=False) as partial, style.applied(), partial.open("wb") as stream:
        figure = style.new_figure()
        model.draw(figure, curves)
        model.write_notes(figure, curves)
        style.write(figure, stream, path.suffix.removeprefix("."))
