"""A sweep as files: points and connections as CSV, its plots as SVG and PDF, the fits as JSON.

Looks at all files before it writes the first, and overwrites none unless told to. Cells of what is not known, and of a
model that does not describe a point, are empty.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from iscsitrace.fit.points import throughput_of_each
from iscsitrace.fit.sweep import Sweep
from iscsitrace.plots import sweep as sweep_curves
from iscsitrace.show import files
from iscsitrace.show.model_predict import draw

FORMATS: Final = ("svg", "pdf")


def write(
    directory: Path, sweeps: Sequence[Sweep], provenance: dict[str, Any], *, is_forced: bool
) -> list[tuple[Path, str]]:
    """Writes everything into a directory, made when missing: the paths, and what each has.

    OutputExists where a file is there and ``is_forced`` is not set, InputInvalid for what cannot be written.
    """
    inputs = [each["name"] for each in provenance["input"]]
    texts = {
        "points.csv": (_csv(_points(sweeps)), "points"),
        "connections.csv": (_csv(_connections(sweeps)), "connections"),
        **{
            f"fit-{sweep.operation}.json": (_json(provenance | sweep.fit.as_dict()), f"fit of the {sweep.operation}s")
            for sweep in sweeps
        },
    }
    plots = [
        (directory / f"throughput-{sweep.operation}{f'-{number}' if number > 1 else ''}.{file_format}", plot)
        for sweep in sweeps
        for number, plot in enumerate(sweep_curves.plots(sweep), 1)
        for file_format in FORMATS
    ]
    paths = [*(directory / name for name in texts), *(path for path, _ in plots)]
    files.check_folder(directory, paths, is_forced=is_forced, inputs=inputs)
    found = []
    with files.folder(directory):
        for name, (text, content) in texts.items():
            with files.written_aside(directory / name) as partial:
                partial.write_text(text, encoding="utf-8")
            found.append((directory / name, content))
        for path, plot in plots:
            draw(path, plot)
            found.append((path, "measured throughput, model, residuals"))
    return found


def _points(sweeps: Sequence[Sweep]) -> Iterator[dict[str, Any]]:
    for sweep in sweeps:
        for number, place in enumerate(sweep.places):
            point, left_out = place.point, place.left_out
            model = None if sweep.is_off(number) else sweep.fit.models[number]
            expected = None if left_out is None or sweep.is_poor else left_out
            yield {
                "capture": place.capture,
                "session": point.session,
                "operation": sweep.operation,
                "one_way_delay_ns": point.delay_ns.value,
                "block_bytes": point.setting.block_bytes,
                "queue_depth": point.outstanding,
                "connections": point.setting.connections,
                **{f"at_{name}": value for name, value in place.values.items()},
                "commands": point.cycle_count,
                "commands_left_out": sum(point.left_out.values()),
                "throughput_bytes_per_s": point.throughput_bytes_per_s,
                "throughput_low_bytes_per_s": point.throughput_low_bytes_per_s,
                "throughput_high_bytes_per_s": point.throughput_high_bytes_per_s,
                **{f"share_of_{name}": share for name, share in place.shares.items()},
                "period_ns": point.period_ns,
                "model_throughput_bytes_per_s": model and model.throughput_bytes_per_s,
                "model_period_ns": model and model.period_ns,
                "model_idle_fraction": model and model.idle_fraction,
                "residual": None if model is None else sweep.fit.residuals[number],
                "others_throughput_bytes_per_s": expected and expected.expected.prediction.throughput_bytes_per_s,
                "others_throughput_low_bytes_per_s": expected and expected.expected.low_bytes_per_s,
                "others_throughput_high_bytes_per_s": expected and expected.expected.high_bytes_per_s,
                "idle_fraction": point.idle_fraction,
                "k": point.seen.k and point.seen.k.value,
                "k_low": point.seen.k and point.seen.k.low,
                "k_high": point.seen.k and point.seen.k.high,
            }


def _connections(sweeps: Sequence[Sweep]) -> Iterator[dict[str, Any]]:
    for sweep in sweeps:
        for number, place in enumerate(sweep.places):
            models = throughput_of_each(sweep.fit, number)
            for each, model in zip(place.point.connections, models, strict=True):
                yield {
                    "capture": place.capture,
                    "session": place.point.session,
                    "connection": each.connection,
                    "operation": sweep.operation,
                    "block_bytes": place.point.setting.block_bytes,
                    "queue_depth": place.point.outstanding,
                    "throughput_bytes_per_s": each.throughput.value,
                    "throughput_low_bytes_per_s": each.throughput.low,
                    "throughput_high_bytes_per_s": each.throughput.high,
                    "one_way_delay_ns": each.delay_ns,
                    "model_throughput_bytes_per_s": None if sweep.is_off(number) else model,
                    "idle_fraction": each.idle_fraction,
                }


def _csv(rows: Iterable[dict[str, Any]]) -> str:
    every = list(rows)
    stream = io.StringIO()
    names = dict.fromkeys(name for row in every for name in row)
    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(every)
    return stream.getvalue()


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, allow_nan=False) + "\n"
