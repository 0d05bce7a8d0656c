"""``iscsitrace fleet sql``: a query over the dataset."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from iscsitrace.cli import own_process
from iscsitrace.cli.output import writes_text


@click.command(
    epilog='Example:  iscsitrace fleet sql dataset "SELECT tap, count(*) FROM cycles WHERE status <> 0 GROUP BY tap"'
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
def command(dataset: str, query: str, file_format: str) -> None:
    """Answer a query in DuckDB's SQL over the tables of DATASET, with the columns tap, day and capture.

    A query reads: it cannot write files, nor use the network.

    Beside the tables there are `captures`, a row for each capture, and `commands`: the rows of `cycles` with initiator,
    target, volume, is_data, is_error, status_text and is_open (`iscsitrace docs fleet`).
    """
    from iscsitrace.fleet.sql import Database

    spill = _spill()
    own_process.confine([spill] if spill else [])
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
