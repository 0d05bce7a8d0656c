"""``iscsitrace fleet``: many captures of many taps, as one dataset."""

from __future__ import annotations

import click

from iscsitrace.cli.read import fleet_prune, fleet_report, fleet_run, fleet_sql, fleet_top


@click.group(epilog="Example:  iscsitrace fleet run /captures/* -o dataset")
def command() -> None:
    """Collect captures from many hosts into a dataset of Parquet files and query it.

    A tap is a place where packets are captured; the files of its ring are one stream. Needs the extra `fleet`.
    """


command.add_command(fleet_run.command, "run")
command.add_command(fleet_sql.command, "sql")
command.add_command(fleet_top.command, "top")
command.add_command(fleet_report.command, "report")
command.add_command(fleet_prune.command, "prune")
