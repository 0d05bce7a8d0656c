"""The options that `simulate` and `lab run` share, and the settings of the run: the same in both worlds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from iscsitrace.cli.output import quiet
from iscsitrace.cli.sections import OptionSection
from iscsitrace.cli.traffic.link_options import LINK, PATHS
from iscsitrace.cli.traffic.setting_options import Values
from iscsitrace.cli.traffic.settings_command import SettingsCommand, name_of
from iscsitrace.cli.traffic.target_options import DEVICE, TARGET, portal_of
from iscsitrace.cli.traffic.tcp_options import HOSTS, SIMULATED_HOSTS
from iscsitrace.cli.traffic.workload_options import KEYS, WORKLOAD
from iscsitrace.lab.settings import structs
from iscsitrace.lab.settings.table import OPERATIONS, SOCKETS

SEED_LIMIT = 1 << 32

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OWN = (
    click.argument("operation", type=click.Choice(OPERATIONS), metavar="OPERATION"),
    click.option(
        "-o",
        "directory",
        type=click.Path(path_type=Path),
        metavar="DIR",
        required=True,
        help="Folder for the files. It is created if missing.",
    ),
    click.option("--force", "is_forced", is_flag=True, help="Overwrite the files of an earlier run."),
    click.option(
        "--seed",
        type=click.IntRange(0, SEED_LIMIT),
        default=1,
        show_default=True,
        help="Seed of all random choices.",
    ),
    click.option("--json", "is_json", is_flag=True, help="One JSON document with a schema number."),
    quiet("Show no progress bar."),
)


def takes_run(function: _Function) -> _Function:
    """Adds the operation, the folder and the other options that belong to no section."""
    for decorate in reversed(_OWN):
        function = decorate(function)
    return function


SECTIONS = (WORKLOAD, KEYS, LINK, PATHS, HOSTS, DEVICE, TARGET)
"""The sections of a run; others belong to one world."""
SIMULATED = tuple(SIMULATED_HOSTS if section is HOSTS else section for section in SECTIONS)
"""The same for a simulated run, whose hosts know less congestion control."""
SHOWN = (
    *("block-size", "queue-depth", "bytes", "seconds", "random", "think-time", "connections", "sessions", "key"),
    *("rate", "one-way-delay", "queue", "loss", "targets", "target-delay", "congestion-control"),
    *("lun", "service-delay", "fault"),
)
"""The settings that both commands show as options."""
_OF_SOCKETS = {"block-size", "bytes", "seconds", "connections"}


def run_settings(operation: str, seed: int, typed: dict[str, Any]) -> dict[str, Any]:
    """``client``, ``portals`` and ``world`` of a run; takes the values of `SECTIONS` out of ``typed``."""
    if operation in SOCKETS:
        refuse((WORKLOAD, KEYS, DEVICE, TARGET), _OF_SOCKETS, "a bare socket")
    device = DEVICE.take(typed)
    values = {"workload.operation": operation.replace("-", "_")}
    for section in (WORKLOAD, KEYS, LINK, PATHS, HOSTS, TARGET):
        values |= section.take(typed)
    settings = structs.of_run(values, seed)
    client = settings["client"]
    client["workload"] = structs.listed(client["workload"])
    if device["chap"]:
        client["login"] |= {"chap": device["chap"]["initiators"][0], "chap_of_target": device["chap"]["target"]}
    count = len(_checked_paths(values, settings["world"])["paths"])
    settings["portals"] = [portal_of(values, device, number, seed + number) for number in range(count)]
    return settings


def world_settings(seed: int, typed: dict[str, Any]) -> dict[str, Any]:
    """TCP of the hosts and the links between them."""
    values = LINK.take(typed) | PATHS.take(typed) | HOSTS.take(typed)
    return _checked_paths(values, structs.world_of(values, seed))


def _checked_paths(values: Values, world: dict[str, Any]) -> dict[str, Any]:
    count = values.get("target.count", len(world["paths"]))
    if count != len(world["paths"]):
        raise click.UsageError(f"--target-delay is given {len(world['paths'])} times for {count} targets")
    return world


def refuse(sections: tuple[OptionSection[Any], ...], taken: set[str], program: str) -> None:
    """A usage error for settings that a program does not have."""
    ctx, given = click.get_current_context(), click.core.ParameterSource
    assert isinstance(ctx.command, SettingsCommand)  # noqa: S101 -- these sections are in no other command
    for section in sections:
        for each in section.options:
            is_given = ctx.get_parameter_source(str(each.name)) in (given.COMMANDLINE, given.DEFAULT_MAP)
            if is_given and name_of(each) not in taken:
                raise click.UsageError(f"{ctx.command.spelling(each)} does not work with {program}")
