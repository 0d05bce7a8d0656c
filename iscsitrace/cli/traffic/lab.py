"""``iscsitrace lab``: the real world, in network namespaces of this machine, and experiments in either world.

``up`` to try, ``run`` for a workload, ``list`` and ``run NAME`` for experiments.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.process import wishing
from iscsitrace.cli.sections import OptionSection, option
from iscsitrace.cli.traffic import experiment, run_options
from iscsitrace.cli.traffic.run_options import HOSTS, KEYS, LINK, PATHS, SEED_LIMIT, WORKLOAD, lasting, world_settings
from iscsitrace.cli.traffic.settings_command import SettingsCommand, settings_section
from iscsitrace.cli.traffic.target_options import DEVICE, TARGET, faults_of, lists_faults
from iscsitrace.lab.settings import structs
from iscsitrace.lab.settings.table import OPERATIONS
from iscsitrace.show import run_results
from iscsitrace.show.line import ProgressBar, say
from iscsitrace.show.terminal import show_json

if TYPE_CHECKING:
    from iscsitrace.lab.real import World

_WAIT_S = 0.1
# settings that other programs have; the rest of the sections is for ours alone
_TARGET_OPTIONS = {"lun", "name", "chap", "fault"}
_INITIATOR_OPTIONS = {"block-size", "queue-depth", "seconds", "random"}
_CAPTURED = {"both": ("initiator", "target"), "none": ()}
_BYPASS = option("--bypass", "is_bypassed", is_flag=True, help="Connect the hosts by veth pairs, without links.")
# what open-iscsi, LIO and tgt take in guests
_WORKLOAD_OF_GUESTS = {
    *("block-size", "system-call-size", "queue-depth", "bytes", "seconds", "random", "read-share"),
    *("max-transfer", "think-time", "start-lba", "span", "sessions", "mirror"),
}
_TARGET_OF_GUESTS = {*_TARGET_OPTIONS, "target-key"}
_NAMESPACES, _GUESTS = "namespaces", "guests"
_WORLD = click.option(
    "--world",
    "world_kind",
    type=click.Choice((_NAMESPACES, _GUESTS)),
    default=_NAMESPACES,
    show_default=True,
    help="Hosts: network namespaces of this machine's kernel, or virtual machines with Debian's kernel (QEMU), "
    "open-iscsi, LIO and tgt.",
)


def _named(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in values:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE", ctx, param)
        found[name] = value
    return found


def _of_guests(**values: Any) -> dict[str, Any]:
    return values


GUESTS = OptionSection(
    "Guests",
    _of_guests,
    option(
        "--offloads",
        "is_offloading",
        is_flag=True,
        help="Keep segmentation and receive offloads of the guests' "
        "network cards on: captures then have packets larger than on a wire.",
    ),
    option(
        "--node-setting",
        "node_settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_named,
        help="A setting of open-iscsi, like node.session.timeo.replacement_timeout=5. Repeatable.",
    ),
    option(
        "--multipath-setting",
        "multipath_settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_named,
        help="A default of multipath.conf, like no_path_retry=queue; multipathd joins several --sessions. Repeatable.",
    ),
    option(
        "--sysctl",
        "sysctls",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_named,
        help="A sysctl of every guest, like net.ipv4.tcp_retries2=5. Repeatable.",
    ),
)

PROGRAMS = settings_section(
    "Real world", "target.program", "initiator.program", "initiator.driver", "initiator.receive"
)


def _captures(*, capture_at: str, is_bypassed: bool) -> dict[str, Any]:
    return {"capture_at": _CAPTURED.get(capture_at, (capture_at,)), "is_bypassed": is_bypassed}


CAPTURES = OptionSection(
    "Real world",
    _captures,
    option(
        "--capture",
        "capture_at",
        type=click.Choice(("both", "initiator", "target", "none")),
        default="both",
        show_default=True,
        help="Hosts to capture at.",
    ),
    _BYPASS,
)
PACKETS = settings_section("Real world", "capture.is-ipv6", "capture.snaplen")


@click.command(
    cls=SettingsCommand,
    sections=(LINK, PATHS, HOSTS),
    shown=run_options.SHOWN,
    epilog="Example:  iscsitrace lab up --one-way-delay 8ms --rate 320Mbit",
)
@click.option("--seed", type=click.IntRange(0, SEED_LIMIT), default=1, show_default=True, help="Seed of all losses.")
@click.option(
    "--log",
    "log_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write what the links carried and dropped, as JSON.",
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite that file if it exists.")
@click.option("--bypass", "is_bypassed", is_flag=True, help="Connect the hosts by veth pairs, without links.")
@_WORLD
def up(seed: int, log_path: Path | None, is_forced: bool, is_bypassed: bool, world_kind: str, **values: Any) -> None:
    """Create the hosts and links, show how to use them, and remove them at Ctrl-C or SIGTERM."""
    from iscsitrace.lab import run_files
    from iscsitrace.lab.real import truth_of_links

    if is_bypassed:
        run_options.refuse((LINK, PATHS), {"targets"}, "a bypass")
        if log_path:
            raise click.UsageError("--log goes with links, not with --bypass")
        if world_kind == _GUESTS:
            raise click.UsageError("guests are joined by links, not by a bypass")
    if log_path:
        run_files.require_new([log_path], is_forced=is_forced)
    settings = world_settings(seed, values)
    with wishing() as wish:
        with _hosts(world_kind, settings, is_bypassed=is_bypassed) as (world, ways):
            rows = [
                (host, place.address, place.address_v6, place.interfaces[0].name, ways[host])
                for host, place in world.hosts.items()
            ]
            run_results.show_hosts(rows)
            sys.stdout.flush()
            while not wish.is_there:
                time.sleep(_WAIT_S)
        logs = truth_of_links(world.access, world.paths)
        run_results.show_all_links(logs)
        if log_path:
            run_files.write_truth(log_path, run_files.envelope("link") | {"settings": settings} | logs)


@contextmanager
def _hosts(world_kind: str, settings: dict[str, Any], *, is_bypassed: bool) -> Iterator[tuple[World, dict[str, str]]]:
    """The running hosts, and the command that enters each."""
    if world_kind == _GUESTS:
        from iscsitrace.lab.guests import world

        with world.up(settings, _say(is_json=False)) as found:
            shells = {
                host: f"socat -,raw,echo=0,escape=0x1d UNIX:{guest.shell_path}" for host, guest in found.guests.items()
            }
            yield found.outside, shells
    else:
        from iscsitrace.lab import real

        with real.up(settings, is_bypassed=is_bypassed) as made:
            yield made, {host: f"ip netns exec {place.namespace}" for host, place in made.hosts.items()}


@click.command(
    cls=SettingsCommand,
    sections=(*run_options.SECTIONS, PROGRAMS, CAPTURES, PACKETS, GUESTS),
    shown=(*run_options.SHOWN, "bypass"),
    epilog="Example:  iscsitrace lab run read --one-way-delay 8ms --rate 320Mbit --block-size 128K --bytes 16M -o DIR",
)
@_WORLD
@run_options.takes_run
@lists_faults("namespaces", "guests")
def run(
    operation: str,
    directory: Path,
    is_forced: bool,
    seed: int,
    is_json: bool,
    is_quiet: bool,
    world_kind: str,
    **values: Any,
) -> None:
    """Run a workload over the kernel's TCP and emulated links, in real time, with the options of simulate.

    Writes initiator.pcapng and target.pcapng (target-2.pcapng ... of further targets), captured at each host,
    and truth.json: settings, packets that the links carried and dropped, every SCSI command of our initiator, and
    TCP_INFO of both ends over time. Without --bytes and --seconds a workload lasts 5 s; with timed faults until 5 s
    after the last. The first Ctrl-C ends it in order.

    OPERATION is read, write or mixed; socket-read and socket-write transfer bytes over plain TCP between the same
    hosts.

    With the name of an experiment instead of an operation it runs the experiment: see `iscsitrace lab list`, and
    `iscsitrace lab run NAME --help`.
    """
    from iscsitrace.lab import fault_catalogue as catalogue
    from iscsitrace.lab.run_files import INITIATOR, targets

    programs = structs.programs_of(PROGRAMS.take(values))
    target, initiator = programs.get("target", "iscsitrace"), programs.get("initiator", "iscsitrace")
    if world_kind == _GUESTS:
        run_options.refuse((DEVICE, TARGET), _TARGET_OF_GUESTS, _GUESTS)
        run_options.refuse((WORKLOAD,), _WORKLOAD_OF_GUESTS, _GUESTS)
        run_options.refuse((PROGRAMS,), {"target-program", "initiator-program"}, _GUESTS)
        run_options.refuse((CAPTURES,), {"capture"}, _GUESTS)
    else:
        run_options.refuse((GUESTS,), set(), _NAMESPACES)
        if target != "iscsitrace":
            run_options.refuse((DEVICE, TARGET), _TARGET_OPTIONS, target)
        if initiator != "iscsitrace":
            run_options.refuse((WORKLOAD, KEYS), _INITIATOR_OPTIONS, initiator)
            run_options.refuse((PROGRAMS,), {"target-program", "initiator-program"}, initiator)
    if values["is_bypassed"]:
        run_options.refuse((LINK, PATHS), {"targets"}, "a bypass")
    captures, of_guests, faults = CAPTURES.take(values), GUESTS.take(values), faults_of(values)
    is_ours = target == initiator == "iscsitrace"
    if values["faults"] and world_kind != _GUESTS and not is_ours:
        raise click.UsageError(f"--fault does not work with {target}, only with our own programs, or in guests")
    if world_kind == _GUESTS and len(faults) < len(values["faults"]):
        raise click.UsageError("faults of single commands are those of our target: not in guests")
    settings = run_options.run_settings(operation, seed, values)
    catalogue.require_in(world_kind, faults, [INITIATOR, *targets(len(settings["portals"]))])
    settings["client"]["workload"] = lasting(settings["client"]["workload"], faults)
    settings["world"] |= structs.fields_of_world(PACKETS.take(values))
    del settings["world"]["limit_ns"]
    progress = ProgressBar("running", is_wanted=not is_quiet)
    with wishing() as wish, ExitStack() as stack:
        stack.callback(progress.close)

        def watch(seen: dict[str, Any]) -> bool:
            progress.show_workload(seen)
            return wish.is_there

        if world_kind == _GUESTS:
            from iscsitrace.lab.guests import world

            own = world.target_program(programs, settings)
            in_guests = world.GuestPrograms(own, capture_at=captures["capture_at"], faults=tuple(faults), **of_guests)
            truth = world.run(settings, directory, watch, _say(is_json), programs=in_guests, is_forced=is_forced)
        else:
            from iscsitrace.lab import real

            in_namespaces = real.Programs(**programs, **captures, faults=tuple(faults))
            truth = real.run(settings, directory, watch, programs=in_namespaces, is_forced=is_forced)
    if is_json:
        show_json(run_results.describe(truth))
    else:
        run_results.show(truth, directory)
    if run_results.is_ours(truth):
        run_results.end_initiator(truth["results"])


def _say(is_json: bool) -> Callable[[str], None]:
    """Shows a line about what is going on, beside a document on stderr."""
    return lambda line: say(line, err=is_json)


class _Lab(click.Group):
    """A group in which ``run`` takes an operation or the name of an experiment."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the arguments."""
        if args[0] == "run" and _is_experiment(args[1:]):
            return "run", experiment.command, args[1:]
        return super().resolve_command(ctx, args)


def _is_experiment(words: list[str]) -> bool:
    """Whether a run is that of an experiment: the first word is neither operation nor option, or a word is its file."""
    first = words[0] if words else "-"
    if not first.startswith("-") and first not in OPERATIONS:
        return True
    pairs = pairwise(["", *words])
    return any(
        word.endswith(".toml") and "--settings" not in (before, word.partition("=")[0]) for before, word in pairs
    )


@click.group(cls=_Lab, epilog="Example:  iscsitrace lab run read --one-way-delay 8ms --rate 320Mbit --bytes 16M -o DIR")
def command() -> None:
    """Run workloads in network namespaces of this machine with emulated links between them (needs root).

    Run experiments, too: a workload over a grid of settings, compared with the model, simulated or in namespaces.

    Nothing outside the namespaces changes, and they are removed at the end, for whatever reason it ends.
    """


command.add_command(up)
command.add_command(run)
command.add_command(experiment.command, "run NAME")
command.add_command(experiment.list_command, "list")
