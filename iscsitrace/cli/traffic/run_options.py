"""The options of runs, the same in both worlds: of links, TCP, workload and login keys; those that `simulate` and `lab
run` share; and the settings of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from iscsitrace.cli.output import quiet
from iscsitrace.cli.sections import Function, OptionSection, decorated, option
from iscsitrace.cli.traffic.settings_command import (
    Named,
    SettingsCommand,
    SettingsOption,
    Values,
    name_of,
    of_section,
    settings_section,
)
from iscsitrace.cli.traffic.target_options import DEVICE, TARGET, portal_of
from iscsitrace.cli.units import Quantity, Size
from iscsitrace.lab.settings import structs, table
from iscsitrace.lab.settings.kinds import ValueKind, one_of
from iscsitrace.lab.settings.table import (
    DIRECTIONS,
    KERNEL_CONTROLS,
    MOST_CONNECTIONS,
    OPERATIONS,
    SETTINGS,
    SIMULATED_CONTROLS,
)
from iscsitrace.wording.quantities import parse_count

if TYPE_CHECKING:
    from iscsitrace.lab.faults.fault import Fault


_OF_PATHS = ("link.target-delays", "link.access-rate")

LINK = settings_section(
    "Link",
    *(name for name in of_section("link") if name not in _OF_PATHS),
    *(f"link.{direction}" for direction in DIRECTIONS),
)

PATHS = settings_section("Paths", "target.count", *_OF_PATHS)
"""The targets, each with a path of its own; the paths have the settings of the link."""


def _sockets(
    *,
    congestion_control: str | None,
    send_buffer: int | None,
    receive_buffer: int | None,
    mss: int | None,
    is_nagle: bool | None,
) -> dict[str, Any]:
    return {
        "congestion_control": congestion_control,
        "send_buffer_bytes": send_buffer,
        "receive_buffer_bytes": receive_buffer,
        "mss_bytes": mss,
        "is_nagle": bool(is_nagle),
    }


_MSS = SETTINGS["tcp.mss"].kind

SOCKETS = OptionSection(
    "Sockets (the kernel's defaults if not set)",
    _sockets,
    option("--congestion-control", metavar="NAME", help="TCP_CONGESTION, like reno or cubic."),
    option("--send-buffer", type=Size(), help="SO_SNDBUF. The kernel doubles it for its overhead."),
    option("--receive-buffer", type=Size(), help="SO_RCVBUF. The kernel doubles it for its overhead."),
    option("--mss", type=click.IntRange(_MSS.least, _MSS.most), metavar=_MSS.name, help="TCP_MAXSEG."),
    option("--nagle/--no-nagle", "is_nagle", default=None, help="Nagle's algorithm (off)."),
)


def _hosts(controls: ValueKind) -> OptionSection[Values]:
    return settings_section(
        "TCP of both hosts",
        "tcp",
        *(
            option(
                f"--{host}-tcp",
                type=Named(f"{host}.tcp", "a setting of TCP", limited={"congestion-control": controls}),
                multiple=True,
                help=f"One of these for {of}.",
            )
            for host, of in (("initiator", "the initiator, like nagle=no"), ("target", "the targets, like mss=536"))
        ),
        limited={"tcp.congestion-control": controls},
    )


HOSTS = _hosts(one_of(*KERNEL_CONTROLS))
SIMULATED_HOSTS = _hosts(one_of(*SIMULATED_CONTROLS))


_DEFAULT_SECONDS_NS = 5_000_000_000


class Digests(Quantity):
    """``none``, ``crc32c``, or both, the preferred one first."""

    name = "DIGESTS"
    _WORDS: ClassVar = {"none": "None", "crc32c": "CRC32C"}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """The RFC's words; fails with a line that lists the digests."""
        words = value.lower().split(",")
        if any(word not in self._WORDS for word in words):
            self.fail(f"{value!r} is not a digest; write none, crc32c or crc32c,none", param, ctx)
        return [self._WORDS[word] for word in words]


class CountOrSearch(Quantity):
    """A number, or ``auto``, ``auto:model``, ``auto:golden``: the run searches for the number."""

    name = f"1-{MOST_CONNECTIONS}|auto[:RULE]"
    _RULES: ClassVar = {"auto": "model", "auto:model": "model", "auto:golden": "golden"}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Values:
        """The setting of the number, or of the rule; fails with a line that shows what to write."""
        if isinstance(value, dict):
            return value
        number = parse_count(str(value))
        if number is not None and 1 <= number <= MOST_CONNECTIONS:
            return {"workload.connections": number}
        if value not in self._RULES:
            self.fail(f"{value!r}: write 1 to {MOST_CONNECTIONS}, or {', '.join(self._RULES)}", param, ctx)
        return {"workload.connections": 1, "workload.connections-rule": self._RULES[value]}


def lasting(workload: dict[str, Any], faults: Sequence[Fault] = ()) -> dict[str, Any]:
    """A workload in real time: without bytes and seconds it lasts 5 s; with timed faults, until 5 s after the last."""
    from iscsitrace.lab.faults.settings import duration_ns

    if workload.get("total_bytes") is None and workload.get("duration_ns") is None:
        return workload | {"duration_ns": duration_ns(faults) or _DEFAULT_SECONDS_NS}
    return workload


WORKLOAD = settings_section(
    "Workload",
    "workload",
    own={
        "workload.connections": option(
            "--connections",
            type=CountOrSearch(),
            default="1",
            show_default=True,
            help="Connections per session (MC/S). With auto the run searches for the best number: by the model "
            "(auto:model) or by golden-section search (auto:golden).",
        )
    },
)

KEYS = settings_section(
    "Login keys",
    *(
        option(
            f"--{name}-digest",
            type=SettingsOption(f"initiator.keys.{name.title()}Digest", Digests()),
            help="none, crc32c, or crc32c,none.",
        )
        for name in ("header", "data")
    ),
    option(
        "--key",
        "keys",
        type=Named("initiator.keys", "a login key", is_emptied=True),
        multiple=True,
        help="Any operational key, like MaxBurstLength=65536 or InitialR2T=Yes. Without a value the key is not sent.",
    ),
)


SEED_LIMIT = 1 << 32

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


def takes_run(function: Function) -> Function:
    """Adds the operation, the folder and the other options that belong to no section."""
    return decorated(function, _OWN)


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
    if operation in table.SOCKETS:
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
