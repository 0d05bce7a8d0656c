"""The options that say what a target is and how it behaves: the same in both worlds."""

from __future__ import annotations

import re
from typing import Any

import click

from iscsitrace.cli.read.sections import Section, option
from iscsitrace.cli.traffic.workload_options import Key
from iscsitrace.cli.units import Duration, Quantity
from iscsitrace.wording.quantities import SIZES, parse_quantity

TARGET_NAME = "iqn.2025-01.org.iscsitrace:memory"

_MEDIA = {"ram": "ram", "sparse": "sparse", "null": "null_zeros", "address": "null_address"}
_LUN_SIZES = SIZES | {"T": 1 << 40, "TB": 10**12}
_FAULTS = (
    *("bad-header-digest", "bad-data-digest", "swallowed-pdu", "late-r2t", "busy", "task-set-full"),
    *("check-condition", "reject", "closed-connection", "delayed-status"),
)
_OPERATIONS = ("any", "read", "write", "other")


class LogicalUnit(Quantity):
    """``[ram:|sparse:|null:|address:]SIZE``, to the settings of a logical unit."""

    name = "[MEDIUM:]SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """The settings; fails with a line that says how to write them."""
        if isinstance(value, dict):
            return value
        medium, _, size = value.rpartition(":")
        found = parse_quantity(size, _LUN_SIZES)
        if found is None or (medium or "sparse") not in _MEDIA:
            self.fail(f"{value!r} is no logical unit; write a size like 1G, ram:64M, sparse:1T or null:1T", param, ctx)
        return {"medium": _MEDIA[medium or "sparse"], "size_bytes": found}


class Credentials(Quantity):
    """``USER%SECRET``, to a name and a secret."""

    name = "USER%SECRET"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        """The pair; fails with a line that says how to write one."""
        if isinstance(value, dict):
            return value
        user, _, secret = value.partition("%")
        if not user or not secret:
            self.fail("write the name, % and the secret, like joe%twelve-or-more", param, ctx)
        return {"name": user, "secret": secret}


class ServiceDelay(Quantity):
    """``2ms``, ``30ms-40ms`` (uniform) or ``exp:5ms`` (exponential, its mean), to a distribution."""

    name = "TIMES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """The distribution; fails as a time does."""
        if isinstance(value, dict):
            return value
        kind, colon, rest = value.partition(":")
        if colon and kind == "exp":
            return {"distribution": "exponential", "mean_ns": Duration().convert(rest, param, ctx)}
        low, dash, high = value.partition("-")
        low_ns = Duration().convert(low, param, ctx)
        if not dash:
            return {"distribution": "fixed", "delay_ns": low_ns}
        high_ns = Duration().convert(high, param, ctx)
        if high_ns < low_ns:
            self.fail(f"{value!r}: the longer time comes last", param, ctx)
        return {"distribution": "uniform", "low_ns": low_ns, "high_ns": high_ns}


class Fault(Quantity):
    """``FAULT[,nth=N|every=N][,operation=read][,by=20ms][,sense=3/11/00][,reason=4]``, to a rule."""

    name = "RULE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """The rule; fails with a line that says what it takes."""
        if isinstance(value, dict):
            return value
        fault, *details = value.split(",")
        if fault not in _FAULTS:
            self.fail(f"{fault!r} is no fault; there are {', '.join(_FAULTS)}", param, ctx)
        rule: dict[str, Any] = {"fault": fault.replace("-", "_")}
        for detail in details:
            name, _, text = detail.partition("=")
            if name in {"nth", "every"} and re.fullmatch(r"[1-9][0-9]{0,17}", text):
                rule |= {"nth": int(text), "is_repeated": name == "every"}
            elif name == "operation" and text in _OPERATIONS:
                rule["operation"] = text
            elif name == "by":
                rule["by_ns"] = Duration().convert(text, param, ctx)
            elif name == "sense" and re.fullmatch(r"[0-9a-fA-F]{1,2}(/[0-9a-fA-F]{1,2}){2}", text):
                rule["sense"] = [int(part, 16) for part in text.split("/")]
            elif name == "reason" and re.fullmatch(r"[0-9]{1,2}", text):
                rule["reason"] = int(text)
            else:
                self.fail(
                    f"{detail!r}: a rule takes nth=5 or every=5, operation={'|'.join(_OPERATIONS)}, by=20ms, "
                    "sense=3/11/00 (hexadecimal), reason=4",
                    param,
                    ctx,
                )
        return rule


def _portal(
    *,
    logical_units: tuple[dict[str, Any], ...],
    block_length: str,
    target_name: str,
    chap: tuple[dict[str, str], ...],
    chap_of_target: dict[str, str] | None,
    target_keys: tuple[Any, ...],
    max_connections: int | None,
    status: str,
    service_delay: dict[str, Any] | None,
    read_delay: dict[str, Any] | None,
    write_delay: dict[str, Any] | None,
    service_order: str,
    command_window: int | None,
    r2t_order: str,
    faults: tuple[dict[str, Any], ...],
) -> dict[str, Any]:
    if chap_of_target and not chap:
        raise click.UsageError("--mutual-chap needs --chap: the initiator proves itself first")
    units_of = [unit | {"block_bytes": int(block_length)} for unit in logical_units]
    keys = {"header_digest": ["None", "CRC32C"], "data_digest": ["None", "CRC32C"], "max_connections": 64}
    if max_connections is not None:
        keys["max_connections"] = max_connections
    portal: dict[str, Any] = {
        "targets": [{"target_name": target_name, "logical_units": units_of}],
        "keys": keys | dict(target_keys),
        "chap": {"initiators": list(chap), "target": chap_of_target} if chap else None,
        "status": status.replace("-", "_"),
        "service_order": service_order,
        "r2t_order": r2t_order.replace("-", "_"),
        "faults": list(faults),
    }
    for name, delay in (("read_delay", read_delay or service_delay), ("write_delay", write_delay or service_delay)):
        if delay:
            portal[name] = delay
    if command_window is not None:
        portal["command_window_count"] = command_window
    return portal


TARGET = Section(
    "Target",
    _portal,
    option(
        "--lun",
        "logical_units",
        type=LogicalUnit(),
        multiple=True,
        default=("1G",),
        show_default=True,
        help="A logical unit: sparse, ram:, or none (null: gives zeros, address: gives addresses). Repeatable.",
    ),
    option("--block-length", type=click.Choice(("512", "4096")), default="512", help="Bytes of a logical block."),
    option("--name", "target_name", metavar="IQN", default=TARGET_NAME, show_default=True, help="TargetName."),
    option("--chap", type=Credentials(), multiple=True, help="Let only these initiators log in. Repeatable."),
    option("--mutual-chap", "chap_of_target", type=Credentials(), help="Who the target is, for those who ask."),
    option("--target-key", "target_keys", type=Key(), multiple=True, help="A key as the target wants it."),
    option("--max-connections", type=click.IntRange(1, 65_535), help="Most connections of a session (64)."),
    option(
        "--status",
        type=click.Choice(("in-data", "apart", "apart-held")),
        default="in-data",
        show_default=True,
        help="Of reads: in the last Data-In, in a SCSI Response after it, or in one that Nagle holds until the ACK.",
    ),
    option("--service-delay", type=ServiceDelay(), help="2ms, 30ms-40ms (uniform) or exp:5ms (exponential)."),
    option("--read-delay", type=ServiceDelay(), help="Of reads, when it is another."),
    option("--write-delay", type=ServiceDelay(), help="Of writes, when it is another."),
    option(
        "--parallel", "service_order", flag_value="parallel", default="parallel", help="Commands do not wait (default)."
    ),
    option("--serial", "service_order", flag_value="one_at_a_time", help="A logical unit serves one after the other."),
    option("--command-window", type=click.IntRange(min=1), help="Commands of a session at a time (128)."),
    option(
        "--r2t-order",
        type=click.Choice(("in-order", "reverse", "shuffled")),
        default="in-order",
        show_default=True,
        help="Which part of a write is asked for first.",
    ),
    option(
        "--fault",
        "faults",
        type=Fault(),
        multiple=True,
        help=f"What goes wrong, like bad-data-digest,operation=read,nth=5 or busy,every=3: {', '.join(_FAULTS)}.",
    ),
)
"""Settings of a portal with one target; ``seed`` is the command's."""
