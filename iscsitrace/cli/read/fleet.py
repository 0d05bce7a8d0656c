"""``iscsitrace fleet``: many captures of many taps, as one dataset: read into it, query it, what costs most, a report,
and old days out of it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from iscsitrace.cli import process
from iscsitrace.cli.options import as_json, reading_progress
from iscsitrace.cli.output import quiet, writes_text
from iscsitrace.cli.process import wishing
from iscsitrace.cli.units import Quantity
from iscsitrace.show.line import say
from iscsitrace.wording.quantities import TIMES


@click.group(epilog="Example:  iscsitrace fleet run /captures/* -o dataset")
def command() -> None:
    """Collect captures from many hosts into a dataset of Parquet files and query it.

    A tap is a place where packets are captured; the files of its ring are one stream. Needs the extra `fleet`.
    """


@command.command(
    "run", epilog="Example:  iscsitrace fleet run host1=/captures/host1 sftp://root@host2/captures -o dataset"
)
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
def _run(
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


@command.command(
    "sql",
    epilog='Example:  iscsitrace fleet sql dataset "SELECT tap, count(*) FROM cycles WHERE status <> 0 GROUP BY tap"',
)
@click.argument("dataset", metavar="DATASET", type=click.Path())
@click.argument("query", metavar="QUERY")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How the rows are printed.",
)
@writes_text
def _sql(dataset: str, query: str, file_format: str) -> None:
    """Answer a query in DuckDB's SQL over the tables of DATASET, with the columns tap, day and capture.

    A query reads: it cannot write files, nor use the network.

    Beside the tables there are `captures`, a row for each capture, and `commands`: the rows of `cycles` with initiator,
    target, volume, is_data, is_error, status_text and is_open (`iscsitrace docs fleet`).
    """
    from iscsitrace.fleet.sql import Database

    spill = _spill()
    process.confine([spill] if spill else [])
    with Database(Path(dataset), spill) as database:
        answer = database.query(query)
    if file_format == "json":
        from iscsitrace.show.terminal import show_json
        from iscsitrace.tables.schema import SCHEMA_VERSION

        show_json({"schema": SCHEMA_VERSION, "columns": answer.columns, "rows": answer.records})
    elif file_format == "csv":
        from iscsitrace.show.fleet import write_csv

        write_csv(answer, sys.stdout)
    else:
        from iscsitrace.show.terminal import show_table

        show_table(answer.columns, (tuple(row.values()) for row in answer.records))


def _spill() -> Path | None:
    """The folder for what does not fit into memory; it stays, as a confined process cannot remove it. None: nowhere."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "iscsitrace")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


_BY = ("volume", "initiator", "target", "lun", "tap", "hour", "session", "operation")
_COSTS = ("latency", "busy", "bytes", "commands", "p50", "p99", "max", "errors", "no-status")


class _Cost(Quantity):
    """A cost of commands, a part of the time breakdown, or a finding. Their names are loaded only to check one."""

    name = "cost"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from iscsitrace.wording.parts import named

        part = named(value)
        if value not in _COSTS and value not in _losses() and not part:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, (*_COSTS, *_losses())))}.", param, ctx)
        return part.name if part else value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in (*_COSTS, *_losses()) if name.startswith(incomplete)]


def _losses() -> tuple[str, ...]:
    from iscsitrace.diagnosis.registry import PROBLEMS
    from iscsitrace.wording.parts import BY_NAME

    return (*BY_NAME, *PROBLEMS)


@command.command("top", epilog="Example:  iscsitrace fleet top dataset --by initiator --cost outage")
@click.argument("dataset", metavar="DATASET", type=click.Path())
@click.option("--by", type=click.Choice(_BY), default="volume", show_default=True, help="What a row is. Hours are UTC.")
@click.option(
    "--cost",
    type=_Cost(),
    default="latency",
    show_default=True,
    metavar="COST",
    help=f"What the rows are ordered by: {', '.join(_COSTS)}; a part of the time breakdown, such as outage or "
    "congestion_window; or a finding, such as loss (`iscsitrace docs diagnosis` lists them).",
)
@click.option(
    "--top", "limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="COUNT", help="Rows."
)
@click.option("--tap", metavar="NAME", help="Only the commands of this tap.")
@as_json
@writes_text
def _top(dataset: str, by: str, cost: str, limit: int, tap: str | None, is_json: bool) -> None:
    """Show the volumes, hosts, hours ... with the greatest cost.

    A part of the time breakdown is shown as time lost, with its share of the I/O time; a finding with the time that it
    costs.

    Latencies are those of commands with a status, in ms; `no status` counts those that never got one. All but
    operations have only the commands that read, write or erase data. The same traffic at two taps counts twice.
    """
    if cost not in _COSTS and by == "operation":
        raise click.UsageError(f"--cost {cost} is time of sessions: it has no operations")
    from iscsitrace.fleet.sql import Database
    from iscsitrace.fleet.top import losses, top
    from iscsitrace.show.document import Section
    from iscsitrace.show.fleet import grid, losses_grid
    from iscsitrace.show.terminal import show, show_json
    from iscsitrace.tables.schema import SCHEMA_VERSION
    from iscsitrace.wording.parts import BY_NAME

    with Database(Path(dataset)) as database:
        if cost in _COSTS:
            costs, count = top(database, by, cost, limit=limit, tap=tap)
            rows, shown = [vars(each) for each in costs], grid(by, costs, count)
        else:
            lost, count = losses(database, by, cost, limit=limit, tap=tap)
            rows = [vars(each) | {"share": each.share} for each in lost]
            shown = losses_grid(by, lost, count, is_finding=cost not in BY_NAME)
    if is_json:
        show_json({"schema": SCHEMA_VERSION, "by": by, "cost": cost, "row_count": count, "rows": rows})
    else:
        show([Section("", (shown,))])


@command.command("report", epilog="Example:  iscsitrace fleet report dataset -o fleet.html")
@click.argument("dataset", metavar="DATASET", type=click.Path())
@click.option("-o", "--output", metavar="FILE", default="fleet.html", show_default=True, help="The file to write.")
@click.option("--force", "is_forced", is_flag=True, help="Overwrite a file that exists.")
def _report(dataset: str, output: str, is_forced: bool) -> None:
    """Write a report on DATASET: what broke, where the time goes by volume, host and hour, and the captures.

    Each session that broke leads to the capture and its frames, and to the command that shows it.
    """
    from iscsitrace import __version__
    from iscsitrace.show import files as output_file

    path = Path(output)
    output_file.check(path, is_forced=is_forced)
    from iscsitrace.report.fleet import describe
    from iscsitrace.show.page import render

    document = describe(Path(dataset))
    with output_file.written_aside(path) as partial:
        partial.write_text(render(document, __version__), encoding="utf-8", errors="backslashreplace", newline="\n")
    say(f"{path}: {document.opening.headline}")


_DAY_S = 86_400


class _Days(Quantity):
    """A number of days: ``30d``, in ns."""

    name = "DAYS"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The time in ns; fails with a line that says what to write."""
        if isinstance(value, int):
            return value
        number = value.removesuffix("d")
        if not value.endswith("d") or not number.isdecimal() or not number.isascii():
            self.fail(f"{value!r} is not a number of days such as 30d", param, ctx)
        return int(number) * _DAY_S * TIMES["s"]


@command.command("prune", epilog="Example:  iscsitrace fleet prune dataset --older 30d")
@click.argument("dataset", metavar="DATASET", type=click.Path())
@click.option(
    "--older", "older_ns", type=_Days(), required=True, help="Remove the days that are over for this long: 30d."
)
def _prune(dataset: str, older_ns: int) -> None:
    """Remove whole days (UTC) from DATASET.

    A day on which a session began that is still open stays. The states of the passes stay: the next run goes on.
    """
    from iscsitrace.fleet.store import prune
    from iscsitrace.wording import cells

    for each in prune(Path(dataset), older_ns, time.time_ns()):
        kept = f"; kept {', '.join(each.kept)}, where open sessions began" if each.kept else ""
        days = f"{len(each.days):,} {'day' if len(each.days) == 1 else 'days'}"
        say(f"{each.tap}: removed {days}, {cells.megabytes(each.size_bytes)} MB{kept}")
