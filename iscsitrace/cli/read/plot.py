"""``iscsitrace plot``: one plot of a capture, to a file or a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.options import CaptureInput, takes_captures
from iscsitrace.cli.output import takes_picture
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.cli.units import Moment, Quantity
from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.plots import kinds
from iscsitrace.show import files as output_file
from iscsitrace.show.line import say

if TYPE_CHECKING:
    from iscsitrace.plots.kind import Drawing
    from iscsitrace.plots.picture import PictureSize, PlotSubject
    from iscsitrace.tables.trace import TraceTables

_PICTURES = ("png", "svg", "pdf")
_XPLOT = "xpl"
_TOP_MAX = 8
"""More lines or bars are not told apart: ``marks.TOP``, which needs NumPy."""
_BY = ("lun", "operation", "session", "connection")
"""``plots.kind.GROUP_TITLES``, likewise."""
_SIDE_IN = click.FloatRange(3, 30)
_DOTS = click.IntRange(30, 600)
_SMALL_BYTES = 200_000_000
"""Largest input for which ``zoomed_tables`` are read without a zoom."""
_DIRECTIONS = {"to_target": True, "to_initiator": False}


class Cycles(Quantity):
    """Numbers of commands: ``12``, or ``12-15`` inclusive."""

    name = "N[-M]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> range:
        """The numbers; fails with a line that shows the syntax."""
        if isinstance(value, range):
            return value
        first, dash, last = value.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            self.fail(f"{value!r} is not a range of commands; write 12, or 12-15", param, ctx)
        return range(int(first), int(last if dash else first) + 1)


class _KindName(click.Choice[str]):
    """The name of a kind; an old one is accepted with a note."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; a usage error for another one."""
        new = kinds.OLD_NAMES.get(value, value)
        if new != value:
            say(f"iscsitrace: plot {value} is now plot {new}", err=True)
        return super().convert(new, param, ctx)


class PlotCommand(SectionedCommand):
    """A command whose help lists the kinds of plots."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the kinds, then the options."""
        with formatter.section("Kinds"):
            formatter.write_dl(list(kinds.summaries().items()))
        super().format_options(ctx, formatter)


@click.command(
    cls=PlotCommand,
    epilog="Example:  iscsitrace plot sequence --cycle 37 -o slow-read.png capture.pcapng",
)
@click.argument("kind", type=_KindName(kinds.NAMES), metavar="KIND")
@takes_captures
@takes_picture("NAME.png, NAME.svg or NAME.pdf; NAME.xpl for xplot (sequence and window).")
@click.option("--show", "has_window", is_flag=True, help="Open a window instead of writing a file.")
@click.option("--force", "is_forced", is_flag=True, help="Overwrite the file if it exists.")
@click.option(
    "--connection",
    type=click.IntRange(min=0),
    metavar="N",
    help="Connection (tcp.stream) to show. Default: the busiest.",
)
@click.option("--session", type=click.IntRange(min=0), metavar="N", help="Show only session N.")
@click.option("--cycle", "cycles", type=Cycles(), help="Zoom to command N, or to commands N to M.")
@click.option(
    "--direction",
    type=click.Choice(tuple(_DIRECTIONS)),
    help="Direction of the data, for plots of one direction. Default: the one with more data.",
)
@click.option(
    "--top",
    type=click.IntRange(1, _TOP_MAX),
    metavar="COUNT",
    help="Connections (streams, rtt), or sessions and connections (time_breakdown), drawn one by one, the worst first. "
    f"Default: {_TOP_MAX}, the most.",
)
@click.option(
    "--by",
    type=click.Choice(_BY),
    help="How commands are grouped. Default: operation (latency), session and connection (time_breakdown).",
)
@click.option("--width", "width_in", type=_SIDE_IN, metavar="INCHES", help="Width of the picture. Default: 11.")
@click.option(
    "--height", "height_in", type=_SIDE_IN, metavar="INCHES", help="Height of the picture. Default: what its rows need."
)
@click.option("--dpi", type=_DOTS, metavar="COUNT", help="Pixels per inch of a PNG.  [default: 110]")
def command(
    kind: str,
    capture_input: CaptureInput,
    path: Path | None,
    has_window: bool,
    is_forced: bool,
    connection: int | None,
    session: int | None,
    cycles: range | None,
    direction: str | None,
    top: int | None,
    by: str | None,
    width_in: float | None,
    height_in: float | None,
    dpi: int | None,
) -> None:
    """Draws one plot of a capture. `iscsitrace docs plots` shows each kind and how to read it.

    --from and --to zoom. The whole capture is still read, so that earlier packets count. The same input gives the same
    bytes.
    """
    if (path is None) == (not has_window):
        raise click.UsageError("name a file with -o, or use --show")
    for option, value, attribute in (("top", top, "has_top"), ("by", by, "is_told_apart")):
        if value is not None and not getattr(kinds.load(kind), attribute):
            able = ", ".join(name for name in kinds.NAMES if getattr(kinds.load(name), attribute))
            raise click.UsageError(f"--{option} is for {able}")
    if path is not None:
        _check_output(path, kind, capture_input.sources, is_forced)
    trace = _read(kind, capture_input, cycles, path)
    from iscsitrace.plots import picture
    from iscsitrace.plots.marks import Detail
    from iscsitrace.plots.picture import PictureSize
    from iscsitrace.plots.view import Zoom

    origin_ns = trace.start_ns
    is_xplot = path is not None and path.suffix == f".{_XPLOT}"
    zoom = Zoom(
        session,
        connection,
        cycles,
        _absolute(capture_input.time_from, origin_ns),
        _absolute(capture_input.time_to, origin_ns),
        None if direction is None else _DIRECTIONS[direction],
        is_whole=is_xplot,
    )
    # xplot zooms by itself: keep all of the time, and more detail
    detail = Detail(limit=200_000, columns=50_000) if is_xplot else Detail(top=top or _TOP_MAX, by=by)
    drawing = kinds.load(kind).drawing(trace, zoom, origin_ns, detail)
    about = picture.subject_of(trace, drawing.view)
    size = PictureSize(width_in, height_in, dpi)
    if path is None:
        _show(drawing, about, size)
    else:
        _write(path, drawing, about, size)
        say(f"{path}: {drawing.title}")


def _check_output(path: Path, kind: str, inputs: Sequence[str], is_forced: bool) -> None:
    """Rejects an unwritable output before a long input is read."""
    ending = path.suffix.removeprefix(".")
    if ending == _XPLOT and kinds.load(kind).xplot is None:
        able = ", ".join(name for name in kinds.NAMES if kinds.load(name).xplot is not None)
        raise click.UsageError(f"xplot draws {able}, not {kind}")
    if ending not in (*_PICTURES, _XPLOT):
        raise click.UsageError(f"{path} has no known format: end it with .png, .svg, .pdf or .xpl")
    output_file.check(path, is_forced=is_forced, inputs=inputs)


def _read(kind: str, capture_input: CaptureInput, cycles: range | None, path: Path | None) -> TraceTables:
    is_zoomed = cycles is not None or capture_input.time_from is not None or capture_input.time_to is not None
    tables = kinds.load(kind).tables
    if is_zoomed or capture_input.size_bytes <= _SMALL_BYTES:
        tables = (*tables, *kinds.load(kind).zoomed_tables)
    whole = replace(capture_input, time_from=None, time_to=None)
    if path is None:
        # a toolkit of windows needs more
        return whole.read(tables, written=None)
    # makes a cache of fonts on its first use
    import_module("iscsitrace.plots.style")
    return whole.read(tables, written=[path.parent])


def _absolute(moment: Moment | None, origin_ns: int) -> int | None:
    if moment is None:
        return None
    return moment.time_ns + origin_ns if moment.is_relative else moment.time_ns


def _write(path: Path, drawing: Drawing, about: PlotSubject, size: PictureSize) -> None:
    with output_file.written_aside(path) as partial:
        if path.suffix == f".{_XPLOT}":
            _write_xplot(partial, drawing, about)
        else:
            from iscsitrace.plots import picture

            with partial.open("wb") as stream:
                picture.write(stream, path.suffix.removeprefix("."), drawing, about, size)


def _write_xplot(path: Path, drawing: Drawing, about: PlotSubject) -> None:
    if drawing.xplot is None:
        raise InputInvalid(f"xplot cannot draw {drawing.title}")
    title = f"{drawing.title}: {', '.join(about.connections)}"
    with path.open("w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.writelines(f"{line}\n" for line in drawing.xplot(title))


def _show(drawing: Drawing, about: PlotSubject, size: PictureSize) -> None:
    from iscsitrace.plots import picture, style

    with style.applied():
        figure = picture.open_figure(*size.of(drawing))
        if figure is None:
            raise ToolMissing("no window can be opened here: no display, or no GUI toolkit; write a file with -o")
        picture.draw(figure, drawing, about)
        picture.show_windows()
