"""``iscsitrace fleet sql``: a query over the dataset."""

from __future__ import annotations

import sys
from pathlib import Path

import click


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
def command(dataset: str, query: str, file_format: str) -> None:
    """Answer a query in DuckDB's SQL over the tables of DATASET, with the columns tap, day and capture.

    Beside the tables there are `captures`, a row for each capture, and `commands`: the rows of `cycles` with initiator,
    target, volume, is_data, is_error, status_text and is_open (docs/fleet.md).
    """
    from iscsitrace.fleet.sql import Database

    with Database(Path(dataset)) as database:
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
