"""``iscsitrace fleet prune``: old days out of the dataset."""

from __future__ import annotations

import time
from pathlib import Path

import click

from iscsitrace.cli.units import Quantity
from iscsitrace.show.line import say
from iscsitrace.wording.quantities import TIMES

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


@click.command(epilog="Example:  iscsitrace fleet prune dataset --older 30d")
@click.argument("dataset", metavar="DATASET", type=click.Path())
@click.option(
    "--older", "older_ns", type=_Days(), required=True, help="Remove the days that are over for this long: 30d."
)
def command(dataset: str, older_ns: int) -> None:
    """Remove whole days (UTC) from DATASET.

    A day on which a session began that is still open stays. The states of the passes stay: the next run goes on.
    """
    from iscsitrace.fleet.prune import prune
    from iscsitrace.wording import cells

    for each in prune(Path(dataset), older_ns, time.time_ns()):
        kept = f"; kept {', '.join(each.kept)}, where open sessions began" if each.kept else ""
        days = f"{len(each.days):,} {'day' if len(each.days) == 1 else 'days'}"
        say(f"{each.tap}: removed {days}, {cells.megabytes(each.size_bytes)} MB{kept}")
