"""What `simulate` and `lab run` take alike, and the settings of a run that it becomes: the same in both worlds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from iscsitrace.cli.read.sections import Section, option
from iscsitrace.cli.traffic.link_options import DIRECTIONS, LINK
from iscsitrace.cli.traffic.target_options import TARGET
from iscsitrace.cli.traffic.tcp_options import HOSTS
from iscsitrace.cli.traffic.workload_options import KEYS, MODES, WORKLOAD
from iscsitrace.cli.units import Duration, Rate, Size

SEED_LIMIT = 1 << 32
SOCKET_MODES = ("socket-read", "socket-write")
"""A bulk transfer over bare TCP, to the initiator or to the targets."""
RUN_MODES = (*MODES, *SOCKET_MODES)

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OWN = (
    click.argument("operation", type=click.Choice(RUN_MODES)),
    click.option(
        "-o",
        "directory",
        type=click.Path(path_type=Path),
        metavar="DIR",
        required=True,
        help="Folder, made if it is not there.",
    ),
    click.option("--force", "is_forced", is_flag=True, help="Overwrite the files of an earlier run."),
    click.option(
        "--seed", type=click.IntRange(0, SEED_LIMIT), default=1, show_default=True, help="Of all that is random."
    ),
    click.option("--json", "is_json", is_flag=True, help="One JSON document with a schema number."),
    click.option("--no-progress", is_flag=True, help="Draw no progress bar."),
)


def takes_run(function: _Function) -> _Function:
    """Gives a command its operation, its folder, and what else is not of one part of the run."""
    for decorate in reversed(_OWN):
        function = decorate(function)
    return function


def _paths(*, target_count: int | None, target_delays: tuple[int, ...], access_rate: int | None) -> dict[str, Any]:
    if target_count is None:
        target_count = max(1, len(target_delays))
    if target_delays and len(target_delays) != target_count:
        raise click.UsageError(f"--target-delay stands {len(target_delays)} times for {target_count} targets")
    return {"delays_ns": target_delays or (None,) * target_count, "access_rate": access_rate}


PATHS = Section(
    "Paths",
    _paths,
    option("--targets", "target_count", type=click.IntRange(1, 64), help="How many targets, each with a link (1)."),
    option(
        "--target-delay",
        "target_delays",
        type=Duration(),
        multiple=True,
        help="One-way delay to one target after the other.",
    ),
    option("--access-rate", type=Rate(), help="Rate of a line next to the initiator that all links share."),
)

PACKETS = (
    option("--ipv6", "is_ipv6", is_flag=True, help="IPv6 instead of IPv4."),
    option("--snaplen", type=Size(), default="0", help="Bytes of a packet that the captures keep (all)."),
)
"""Options of packets and captures, in the section of each world."""

SECTIONS = (WORKLOAD, KEYS, LINK, PATHS, HOSTS, TARGET)
"""The sections of a run; the rest is of one world."""

_SOCKET_OPTIONS = {"block_size", "total_bytes", "seconds", "connections"}


def run_settings(operation: str, seed: int, values: dict[str, Any]) -> dict[str, Any]:
    """``client``, ``portals`` and ``world`` of a run; takes the values of `SECTIONS` out of ``values``."""
    if operation in SOCKET_MODES:
        refuse((WORKLOAD, KEYS, TARGET), _SOCKET_OPTIONS, "a bare socket")
    workload = WORKLOAD.take(values) | {"operation": operation.replace("-", "_"), "seed": seed}
    offers, portal = KEYS.take(values), TARGET.take(values)
    if portal["status"] == "apart_held" and values["nagle"] is None:
        values["target_tcp"] = (("nagle", True), *values["target_tcp"])
    login: dict[str, Any] = {"offers": offers}
    if portal["chap"]:
        login |= {"chap": portal["chap"]["initiators"][0], "chap_of_target": portal["chap"]["target"]}
    world = world_settings(seed, values)
    portals = [_numbered(portal, number) | {"seed": seed + number} for number in range(len(world["paths"]))]
    return {
        "client": {"login": login, "isid_seed": seed, "challenge_seed": seed, "workload": workload},
        "portals": portals,
        "world": world,
    }


def refuse(sections: tuple[Section[Any], ...], taken: set[str], program: str) -> None:
    """A usage error for options that a program cannot be told."""
    ctx = click.get_current_context()
    for section in sections:
        for each in section.options:
            is_given = ctx.get_parameter_source(str(each.name)) is click.core.ParameterSource.COMMANDLINE
            if is_given and each.name not in taken:
                raise click.UsageError(f"{each.opts[0]} cannot be told to {program}")


def world_settings(seed: int, values: dict[str, Any]) -> dict[str, Any]:
    """TCP of the hosts and the links between them."""
    link, paths, hosts = (section.take(values) for section in (LINK, PATHS, HOSTS))
    rate = paths["access_rate"]
    return {
        **hosts,
        "access": {direction: {"rate_bps": rate} for direction in DIRECTIONS} if rate else None,
        "paths": [_path(link, delay_ns, seed + number) for number, delay_ns in enumerate(paths["delays_ns"])],
        "seed": seed,
    }


def _numbered(portal: dict[str, Any], number: int) -> dict[str, Any]:
    """The portal of one of several targets: each has a name of its own."""
    if number == 0:
        return portal
    device = portal["targets"][0]
    return portal | {"targets": [device | {"target_name": f"{device['target_name']}-{number + 1}"}]}


def _path(link: dict[str, Any], delay_ns: int | None, seed: int) -> dict[str, Any]:
    own = {} if delay_ns is None else {"delay_ns": delay_ns}
    return {direction: settings | own for direction, settings in link.items()} | {"seed": seed}
