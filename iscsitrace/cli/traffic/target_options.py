"""The options of a target: logical units, access, login keys, service times and faults; the same in both worlds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from string import hexdigits
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.sections import Function, OptionSection, option
from iscsitrace.cli.traffic import chap_options
from iscsitrace.cli.traffic.settings_command import Named, SettingsOption, Values, of_section, settings_section
from iscsitrace.cli.units import Quantity
from iscsitrace.errors import InputInvalid
from iscsitrace.lab.settings import structs
from iscsitrace.wording.quantities import SIZES, TIME, parse_count, parse_quantity

if TYPE_CHECKING:
    from iscsitrace.lab.faults.fault import Fault

_MEDIA = {"ram": "ram", "sparse": "sparse", "null": "null_zeros", "address": "null_address"}
_LUN_SIZES = SIZES | {"T": 1 << 40, "TB": 10**12}
_FAULTS = (
    *("bad-header-digest", "bad-data-digest", "swallowed-pdu", "late-r2t", "busy", "task-set-full"),
    *("reservation-conflict", "check-condition", "reject", "closed-connection", "delayed-status", "logout-requested"),
)
_OPERATIONS = ("any", "read", "write", "other")
_OF_A_RUN = ("target.program", "target.host-delay", "target.count")
_TIMES = ("at", "for")
_REASONS = 100
_SENSE_PARTS = 3


class LogicalUnit(Quantity):
    """``[ram:|sparse:|null:|address:]SIZE``, to the settings of a logical unit."""

    name = "[MEDIUM:]SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """The settings; fails with a line that shows how to write them."""
        if isinstance(value, dict):
            return value
        medium, _, size = value.rpartition(":")
        found = parse_quantity(size, _LUN_SIZES)
        if found is None or (medium or "sparse") not in _MEDIA:
            self.fail(f"{value!r} is not a logical unit like 1G, ram:64M, sparse:1T or null:1T", param, ctx)
        return {"medium": _MEDIA[medium or "sparse"], "size_bytes": found}


class FaultOption(Quantity):
    """A fault of single commands, ``FAULT[,nth=N|every=N][,operation=read][,by=20ms][,sense=3/11/00][,reason=4]``, to a
    rule of the core; ``NAME[,DETAIL=VALUE...]`` to a fault of the run.
    """

    name = "NAME[,DETAIL=VALUE...]"

    def __init__(self, on: str | None = None) -> None:
        self._on = on
        """The only host that there is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any] | Fault:
        """The rule or the fault; fails with a line that lists its details."""
        from iscsitrace.lab import fault_catalogue as catalogue

        if not isinstance(value, str):
            found: dict[str, Any] | Fault = value
            return found
        fault, *details = value.split(",")
        if fault not in (*_FAULTS, *catalogue.KINDS):
            known = dict.fromkeys((*_FAULTS, *catalogue.KINDS))
            self.fail(f"{fault!r} is not a fault; there are {', '.join(known)}", param, ctx)
        if fault not in _FAULTS or any(detail.partition("=")[0] in _TIMES for detail in details):
            is_told = self._on is None or any(detail.startswith("on=") for detail in details)
            try:
                return catalogue.parse(value if is_told else f"{value},on={self._on}")
            except InputInvalid as error:
                self.fail(str(error), param, ctx)
        rule: dict[str, Any] = {"fault": fault.replace("-", "_")}
        for detail in details:
            found = _detail(*detail.partition("=")[::2])
            if not found:
                self.fail(
                    f"{detail!r}: a rule takes nth=5 or every=5, operation={'|'.join(_OPERATIONS)}, by=20ms, "
                    "sense=3/11/00 (hexadecimal), reason=4",
                    param,
                    ctx,
                )
            rule |= found
        return rule


def _detail(name: str, text: str) -> dict[str, Any]:
    """One detail of a fault rule; empty for anything else."""
    match name:
        case "nth" | "every" if number := parse_count(text):
            return {"nth": number, "is_repeated": name == "every"}
        case "operation" if text in _OPERATIONS:
            return {"operation": text}
        case "by" if (delay_ns := TIME.parse(text)) is not None:
            return {"by_ns": delay_ns}
        case "sense" if (sense := _sense(text)) is not None:
            return {"sense": sense}
        case "reason" if (reason := parse_count(text)) is not None and reason < _REASONS:
            return {"reason": reason}
    return {}


def _sense(text: str) -> list[int] | None:
    """Sense key, ASC and ASCQ of ``3/11/00``, each of one byte in hexadecimal."""
    parts = text.split("/")
    is_bytes = all(0 < len(part) <= len("ff") and set(part) <= set(hexdigits) for part in parts)
    return [int(part, 16) for part in parts] if is_bytes and len(parts) == _SENSE_PARTS else None


def lists_faults(*worlds: str) -> Callable[[Function], Function]:
    """Adds ``--list-faults``: the faults of some worlds, with their details and meaning."""

    def show(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
        if not is_wanted or ctx.resilient_parsing:
            return
        from iscsitrace.lab import fault_catalogue as catalogue

        for name in dict.fromkeys(name for world in worlds for name in catalogue.names_in(world)):
            kind = catalogue.KINDS[name]
            details = ",".join(f"{detail}={each.default}" for detail, each in kind.details.items())
            click.echo(f"{name},{details}\n    {kind.meaning}")
        ctx.exit()

    help_text = "List the faults of the run, with their details and what each does."
    return click.option("--list-faults", is_flag=True, is_eager=True, expose_value=False, callback=show, help=help_text)


def faults_of(values: Mapping[str, Any]) -> list[Fault]:
    """The faults of the run among the values of options, without those of single commands."""
    return [each for each in values["faults"] if not isinstance(each, dict)]


def _device(
    *,
    logical_units: tuple[dict[str, Any], ...],
    block_length: str,
    chap: tuple[chap_options.Account, ...],
    chap_of_target: chap_options.Account | None,
    chap_file: Path | None,
    allows_short: bool,
    faults: tuple[dict[str, Any] | Fault, ...],
) -> dict[str, Any]:
    return {
        "logical_units": [unit | {"block_bytes": int(block_length)} for unit in logical_units],
        "chap": chap_options.gathered(chap, chap_of_target, chap_file, allows_short=allows_short),
        "faults": [each for each in faults if isinstance(each, dict)],
    }


DEVICE = OptionSection(
    "Target",
    _device,
    option(
        "--lun",
        "logical_units",
        type=LogicalUnit(),
        multiple=True,
        default=("1G",),
        show_default=True,
        help="A logical unit in memory: sparse, ram:, or without memory (null: reads zeros, address: reads addresses). "
        "Repeatable.",
    ),
    option(
        "--block-length",
        type=click.Choice(("512", "4096")),
        default="512",
        show_default=True,
        help="Bytes of a logical block.",
    ),
    *chap_options.options(
        "Let only these initiators log in. Repeatable. Without %SECRET it is that of the environment "
        "(ISCSITRACE_CHAP_SECRET), or asked for.",
        "Credentials of the target for mutual CHAP (ISCSITRACE_MUTUAL_CHAP_SECRET).",
    ),
    option(
        "--fault",
        "faults",
        type=FaultOption(),
        multiple=True,
        help="What happens to the run, like black-out,at=2s,for=12s, or to single commands, like busy,every=3; "
        "`iscsitrace docs faults` lists them with details. Repeatable.",
    ),
)
"""What a portal has beside settings."""

TARGET = settings_section(
    "Target",
    *(name for name in of_section("target") if name not in _OF_A_RUN),
    option(
        "--max-connections",
        type=SettingsOption("target.keys.MaxConnections", click.IntRange(1, 65_535)),
        help="Connections per session at most, 1 to 65535 (64).",
    ),
    option(
        "--target-key",
        "target_keys",
        type=Named("target.keys", "a login key", is_emptied=True),
        multiple=True,
        help="A login key with the target's value.",
    ),
)
"""The settings of a target. With those of `DEVICE` they make its portal."""


def portal_of(values: Values, device: dict[str, Any], number: int, seed: int) -> dict[str, Any]:
    """The portal of one of several targets."""
    portal = structs.portal_of(values, number, seed)
    targets = [target | {"logical_units": device["logical_units"]} for target in portal["targets"]]
    return portal | {"targets": targets, "chap": device["chap"], "faults": device["faults"]}
