"""``iscsitrace fleet top``: what costs most."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from iscsitrace.cli.options import as_json
from iscsitrace.cli.output import writes_text
from iscsitrace.cli.units import Quantity

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


@click.command(epilog="Example:  iscsitrace fleet top dataset --by initiator --cost outage")
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
def command(dataset: str, by: str, cost: str, limit: int, tap: str | None, is_json: bool) -> None:
    """Show the volumes, hosts, hours ... with the greatest cost.

    A part of the time breakdown is shown as time lost, with its share of the I/O time; a finding with the time that it
    costs.

    Latencies are those of commands with a status, in ms; `no status` counts those that never got one. All but
    operations have only the commands that read, write or erase data. The same traffic at two taps counts twice.
    """
    from iscsitrace.show.terminal import show, show_json

    if cost not in _COSTS:
        _show_losses(Path(dataset), by, cost, limit, tap, is_json=is_json)
        return
    from iscsitrace.fleet.top import top

    found, count = top(Path(dataset), by, cost, limit=limit, tap=tap)
    if is_json:
        from iscsitrace.tables.schema import SCHEMA_VERSION

        rows = [vars(each) for each in found]
        show_json({"schema": SCHEMA_VERSION, "by": by, "cost": cost, "row_count": count, "rows": rows})
        return
    from iscsitrace.show.document import Section
    from iscsitrace.show.fleet import grid

    show([Section("", (grid(by, found, count),))])


def _show_losses(dataset: Path, by: str, cost: str, limit: int, tap: str | None, *, is_json: bool) -> None:
    if by == "operation":
        raise click.UsageError(f"--cost {cost} is time of sessions: it has no operations")
    from iscsitrace.fleet.sql import Database
    from iscsitrace.fleet.top import losses
    from iscsitrace.show.document import Section
    from iscsitrace.show.fleet import losses_grid
    from iscsitrace.show.terminal import show, show_json
    from iscsitrace.wording.parts import BY_NAME

    with Database(dataset) as database:
        found, count = losses(database, by, cost, limit=limit, tap=tap)
    if is_json:
        from iscsitrace.tables.schema import SCHEMA_VERSION

        rows = [vars(each) | {"share": each.share} for each in found]
        show_json({"schema": SCHEMA_VERSION, "by": by, "cost": cost, "row_count": count, "rows": rows})
        return
    show([Section("", (losses_grid(by, found, count, is_finding=cost not in BY_NAME),))])
