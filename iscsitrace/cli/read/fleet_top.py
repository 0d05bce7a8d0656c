"""``iscsitrace fleet top``: what costs most."""

from __future__ import annotations

from pathlib import Path

import click

from iscsitrace.cli.options import as_json

_BY = ("volume", "initiator", "target", "lun", "tap", "hour", "session", "operation")
_COSTS = ("latency", "busy", "bytes", "commands", "p50", "p99", "max", "errors", "no-status")


@click.command(epilog="Example:  iscsitrace fleet top dataset --by initiator --cost p99")
@click.argument("dataset", metavar="DATASET", type=click.Path())
@click.option("--by", type=click.Choice(_BY), default="volume", show_default=True, help="What a row is. Hours are UTC.")
@click.option(
    "--cost",
    type=click.Choice(_COSTS),
    default="latency",
    show_default=True,
    help="What the rows are ordered by: the sum of latencies, the time with a command in flight, payload, ...",
)
@click.option(
    "--top", "limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="COUNT", help="Rows."
)
@click.option("--tap", metavar="NAME", help="Only the commands of this tap.")
@as_json
def command(dataset: str, by: str, cost: str, limit: int, tap: str | None, is_json: bool) -> None:
    """Show the volumes, hosts, hours ... with the greatest cost.

    Latencies are those of commands with a status, in ms; `no status` counts those that never got one. All but
    operations have only the commands that read, write or erase data. The same traffic at two taps counts twice.
    """
    from iscsitrace.fleet.top import top
    from iscsitrace.outputs.terminal import show, show_json

    found, count = top(Path(dataset), by, cost, limit=limit, tap=tap)
    if is_json:
        from iscsitrace.tables.schema import SCHEMA_VERSION

        rows = [vars(each) for each in found]
        show_json({"schema": SCHEMA_VERSION, "by": by, "cost": cost, "row_count": count, "rows": rows})
        return
    from iscsitrace.outputs.document import Section
    from iscsitrace.outputs.fleet_top import grid

    show([Section("", (), (grid(by, found, count),))])
