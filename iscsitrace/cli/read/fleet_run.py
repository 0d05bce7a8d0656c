"""``iscsitrace fleet run``: new captures of every tap into the dataset."""

from __future__ import annotations

from pathlib import Path

import click

from iscsitrace.cli.options import reading_progress
from iscsitrace.cli.output import quiet
from iscsitrace.cli.stop_signals import wishing
from iscsitrace.show.line import say


@click.command(epilog="Example:  iscsitrace fleet run host1=/captures/host1 sftp://root@host2/captures -o dataset")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    "dataset",
    metavar="DATASET",
    required=True,
    type=click.Path(file_okay=False),
    help="Folder of the dataset; created if missing, continued if it is there.",
)
@click.option(
    "--workers",
    "worker_count",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Processes that read (one for each core, but no more than taps).",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="An existing Dask cluster. Where its workers name taps (dask worker --resources tap-NAME=1), each tap is read "
    "by those that name it.",
)
@click.option(
    "--tables",
    "names",
    metavar="NAMES",
    help="Tables, separated by commas (those on iSCSI, findings, events and time_breakdown; none on TCP).",
)
@quiet("Show no progress, and only what went wrong.")
def command(
    sources: tuple[str, ...],
    dataset: str,
    worker_count: int | None,
    scheduler: str | None,
    names: str | None,
    is_quiet: bool,
) -> None:
    """Read the new captures of every tap into DATASET: Parquet files by table, tap and day.

    A SOURCE is a file, a glob, a folder, a URL (sftp, s3 ... by fsspec), each of these with the name of its tap
    (NAME=SOURCE), or a fleet.toml. The captures of a tap are one stream: the tables are those of one pass over all of
    them. Captures that were read before are not read again. Whatever ends a run, the next one goes on there.
    """
    if worker_count is not None and scheduler is not None:
        raise click.UsageError("--workers is for a cluster of this machine: omit it with --scheduler")
    from iscsitrace.fleet.captures import taps_of
    from iscsitrace.fleet.run import TABLES, Watch, run
    from iscsitrace.show.fleet import lines

    tables = tuple(each.strip() for each in names.split(",") if each.strip()) if names is not None else TABLES
    progress = reading_progress(is_wanted=not is_quiet)
    try:
        with wishing() as wish:
            watch = Watch(
                show=progress.draw,
                say=_show_nothing if is_quiet else _say,
                is_stopped=lambda: wish.is_there,
            )
            result = run(
                Path(dataset),
                taps_of(sources),
                tables=tables,
                worker_count=worker_count,
                scheduler=scheduler,
                watch=watch,
            )
    finally:
        progress.close()
    for line in lines(result, is_quiet=is_quiet):
        say(line)


def _say(line: str) -> None:
    say(line, err=True)


def _show_nothing(*_: object) -> None:
    return
