"""``iscsitrace export``: tables to CSV or Parquet files, or the sidecar for Wireshark's plugin."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

import click

from iscsitrace.cli.options import CaptureInput, takes_captures
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.errors import InputInvalid
from iscsitrace.show.line import say
from iscsitrace.wording import amounts


@click.command(
    cls=SectionedCommand,
    epilog="Example:  iscsitrace export -o tables --format parquet --tables cycles,pdus capture.pcapng",
)
@takes_captures
@click.option(
    "-o",
    "--output",
    "directory",
    metavar="DIR",
    type=click.Path(),
    help="Folder of the files; created if missing. Default for a sidecar: the folder of the capture. The file of a "
    "Perfetto trace.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "parquet", "perfetto"]),
    help="File format (csv). Parquet needs pyarrow; perfetto writes one trace for ui.perfetto.dev and needs perfetto.",
)
@click.option(
    "--tables",
    "names",
    metavar="NAMES",
    help="Tables, separated by commas (those on iSCSI, none on TCP, time, findings, events, mirrors or streams).",
)
@click.option(
    "--sidecar",
    "is_sidecar",
    is_flag=True,
    help="Write CAPTURE.iscsitrace instead of tables: for Wireshark's plugin, the time breakdown, congestion "
    "window and cause of retransmission of each frame.",
)
@click.option(
    "--annotate",
    "annotated_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the capture as pcapng with comments instead of tables: at the frames that show what has to be acted "
    "on, and a summary in the capture's properties.",
)
@click.option(
    "--csv-safe",
    "is_neutral",
    is_flag=True,
    help="csv: escape control characters and formulas.",
)
@click.option("--packets", "has_packets", is_flag=True, help="perfetto: with every TCP packet.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def command(
    capture_input: CaptureInput,
    directory: str | None,
    file_format: str | None,
    names: str | None,
    is_sidecar: bool,
    annotated_path: Path | None,
    is_neutral: bool,
    has_packets: bool,
    force: bool,
) -> None:
    """Write one file per table with every column, a sidecar for Wireshark, a Perfetto trace, or the capture with
    comments.

    `iscsitrace docs tables` describes the columns. Nulls are empty cells in CSV, times are int64 nanoseconds.
    Nothing is overwritten without --force.

    With --format parquet --max-memory rows leave memory after each capture, in the order in which they are complete: of
    the files of a ring memory holds one file's rows. Tables on TCP and time need all in memory.
    """
    if has_packets and file_format != "perfetto":
        raise click.UsageError("--packets is for --format perfetto")
    if is_neutral and (is_sidecar or file_format not in (None, "csv")):
        raise click.UsageError("--csv-safe is for --format csv")
    if annotated_path is not None:
        if is_sidecar or directory is not None or names is not None or file_format is not None:
            raise click.UsageError("--annotate names its file: omit -o, --sidecar, --tables and --format")
        _export_annotated(capture_input, annotated_path, is_forced=force)
        return
    if is_sidecar:
        if names is not None or file_format is not None:
            raise click.UsageError("--sidecar has a fixed format: omit --tables and --format")
        _export_sidecar(capture_input, Path(directory) if directory is not None else None, force)
        return
    if directory is None:
        raise click.UsageError("name the folder of the tables with -o DIR")
    if file_format == "perfetto":
        if names is not None:
            raise click.UsageError("--format perfetto has fixed tables: omit --tables")
        _export_perfetto(capture_input, Path(directory), has_packets=has_packets, is_forced=force)
        return
    _export_tables(capture_input, directory, file_format or "csv", names, force, is_neutral=is_neutral)


def _export_tables(
    capture_input: CaptureInput, directory: str, file_format: str, names: str | None, force: bool, *, is_neutral: bool
) -> None:
    from iscsitrace.show import files
    from iscsitrace.show.export import EXPORTED, check, export, of_pass
    from iscsitrace.tables.schema import DEFAULT_TABLES, TAPPED_TABLES

    chosen = [name.strip() for name in names.split(",") if name.strip()] if names is not None else list(DEFAULT_TABLES)
    unknown = [name for name in chosen if name not in EXPORTED]
    if unknown or not chosen:
        near = get_close_matches(unknown[0], EXPORTED, n=1) if unknown else []
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(EXPORTED)}"
        raise InputInvalid(f"no table is called {', '.join(unknown) or '(nothing)'}; {hint}")
    if file_format == "parquet" and capture_input.max_memory_bytes is not None:
        _export_bounded(capture_input, directory, chosen, force)
        return
    # an output that cannot be written is refused before a long input is read
    check(directory, file_format, chosen, force, capture_input.sources)
    # commands have the idle time of their connection's line
    needed = [*of_pass(chosen), *(["budget"] if "cycles" in chosen else [])]
    trace = capture_input.read(needed, written=[files.nearest(Path(directory))])
    if names is None and trace.is_tapped:
        chosen = [*chosen, *TAPPED_TABLES]
    for path in export(trace, directory, file_format, chosen, force, is_neutral=is_neutral):
        say(f"{path}: {amounts.count(trace.row_count(path.stem), 'row')}")


def _export_bounded(capture_input: CaptureInput, directory: str, chosen: list[str], force: bool) -> None:
    from iscsitrace.show.export import export_bounded

    capture_input.require_whole_captures("export --format parquet --max-memory")
    sources = capture_input.only_group(()).sources
    with capture_input.watched("cut the captures into smaller files, such as by editcap -c 1000000") as watch:
        counts = export_bounded(sources, directory, chosen, force, watch=watch)
    for path, count in counts.items():
        say(f"{path}: {amounts.count(count, 'row')}")


def _export_perfetto(capture_input: CaptureInput, path: Path, *, has_packets: bool, is_forced: bool) -> None:
    from iscsitrace.show import files as output_file
    from iscsitrace.show import perfetto

    perfetto.require()
    output_file.check(path, is_forced=is_forced, inputs=capture_input.sources)
    trace = capture_input.read(perfetto.needed(), written=[path.parent])
    with output_file.written_aside(path) as partial, partial.open("wb") as stream:
        count = perfetto.write(trace, stream, has_packets=has_packets)
    say(f"{path}: {count:,} packets for ui.perfetto.dev")


def _export_sidecar(capture_input: CaptureInput, directory: Path | None, force: bool) -> None:
    from iscsitrace.show import files as output_file
    from iscsitrace.show import sidecar

    capture_input.require_whole_file("--sidecar")
    if capture_input.packet_limit is not None:
        raise click.UsageError("--sidecar reads the whole file: omit -c")
    capture = Path(capture_input.sources[0])
    path = sidecar.path_of(capture, directory)
    size = _file_size(capture)
    output_file.check_folder(path.parent, [path], is_forced=force, inputs=capture_input.sources)
    trace = capture_input.read(sidecar.TABLES, written=[output_file.nearest(path.parent)])
    if _file_size(capture) != size:
        raise InputInvalid(f"{capture} grew while it was read: a sidecar needs a complete capture")
    with output_file.folder(path.parent), output_file.written_aside(path) as partial, partial.open("wb") as stream:
        count = sidecar.write(trace, stream, size)
    say(f"{path}: {count:,} frames")


def _export_annotated(capture_input: CaptureInput, path: Path, *, is_forced: bool) -> None:
    from iscsitrace import __version__
    from iscsitrace.diagnosis.examination import examine_trace
    from iscsitrace.show import files as output_file
    from iscsitrace.show import packet_comments

    sources = capture_input.sources
    capture_input.require_one_file("--annotate")
    output_file.check(path, is_forced=is_forced, inputs=sources)
    trace = capture_input.read(packet_comments.NEEDED_TABLES, written=[path.parent])
    diagnosis = examine_trace(trace)
    comments = packet_comments.comments_of_frames(diagnosis, trace.table)
    made_by = f"iscsitrace {__version__}"
    summary = packet_comments.comment_of_capture(diagnosis, len(comments), made_by)
    with output_file.written_aside(path) as partial, partial.open("wb") as stream:
        count = packet_comments.copy(Path(sources[0]), stream, comments, summary, made_by)
    say(f"{path}: {count:,} packets, {len(comments):,} of them with a comment (Wireshark's filter: frame.comment)")


def _file_size(capture: Path) -> int:
    try:
        return capture.stat().st_size
    except OSError as error:
        raise InputInvalid(f"cannot read {capture}: {error.strerror or error}") from error
