"""``iscsitrace export``: tables to CSV or Parquet files."""

from __future__ import annotations

import click

from iscsitrace.cli.options import CaptureInput, takes_captures
from iscsitrace.errors import InputInvalid
from iscsitrace.schema import TABLES


@click.command(
    epilog="Example:  iscsitrace export -o tables --format parquet --tables cycles,pdus capture.pcapng",
)
@takes_captures
@click.option(
    "-o",
    "--output",
    "directory",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Where the files go; made when missing.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Parquet needs pyarrow.",
)
@click.option(
    "--tables",
    "names",
    metavar="NAMES",
    help="Tables, separated by commas; by default those on iSCSI, none on TCP or time.",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def command(capture_input: CaptureInput, directory: str, file_format: str, names: str | None, force: bool) -> None:
    """One file per table, with every column that docs/tables.md describes.

    Nulls are empty cells in CSV, times are int64 nanoseconds. Nothing is overwritten without --force.
    """
    from iscsitrace.export import DEFAULT_TABLES, export, prepare
    from iscsitrace.schema import ON_REQUEST

    chosen = [name.strip() for name in names.split(",") if name.strip()] if names is not None else list(DEFAULT_TABLES)
    unknown = [name for name in chosen if name not in TABLES]
    if unknown or not chosen:
        raise InputInvalid(f"no table is called {', '.join(unknown) or '(nothing)'}; there are {', '.join(TABLES)}")
    # what would refuse the output is asked before a long input is read
    prepare(directory, file_format, chosen, force)
    trace = capture_input.read(name for name in chosen if name in ON_REQUEST)
    for path in export(trace, directory, file_format, chosen, force):
        click.echo(f"{path}: {trace.row_count(path.stem)} rows")
