"""``iscsitrace lab``: the real world, in network namespaces of this machine, and experiments in either world.

``up`` to try, ``run`` for a workload, ``list`` and ``run NAME`` for experiments.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from iscsitrace.cli.output import show_json, show_line, show_table
from iscsitrace.cli.read.sections import Section, SectionedCommand, option
from iscsitrace.cli.stop_signals import wishing
from iscsitrace.cli.traffic import experiment, run_options, run_results
from iscsitrace.cli.traffic import results as traffic_results
from iscsitrace.cli.traffic.design_options import DESIGN
from iscsitrace.cli.traffic.link_options import LINK
from iscsitrace.cli.traffic.progress import Progress
from iscsitrace.cli.traffic.run_options import PATHS, RUN_MODES, SEED_LIMIT, world_settings
from iscsitrace.cli.traffic.target_options import TARGET
from iscsitrace.cli.traffic.tcp_options import HOSTS
from iscsitrace.cli.traffic.workload_options import KEYS, WORKLOAD, lasting

_WAIT_S = 0.1
# what other programs can be told; the rest of the sections is ours alone
_TARGET_OPTIONS = {"logical_units", "target_name", "chap"}
_CAPTURED = {"both": ("initiator", "target"), "none": ()}
_DESIGN = {"driver", "receive"}
_INITIATOR_OPTIONS = {"block_size", "queue_depth", "seconds", "is_random"}


def _programs(
    *,
    target_program: str,
    initiator_program: str,
    driver: str,
    receive: str,
    capture_at: str,
    is_bypassed: bool,
    is_ipv6: bool,
    snaplen: int,
) -> dict[str, Any]:
    return {
        "target": target_program,
        "initiator": initiator_program,
        "driver": driver,
        "receive": receive,
        "capture_at": _CAPTURED.get(capture_at, (capture_at,)),
        "is_bypassed": is_bypassed,
        "world": {"is_ipv6": is_ipv6, "snaplen_bytes": snaplen},
    }


PROGRAMS = Section(
    "Real world",
    _programs,
    option(
        "--target-program",
        type=click.Choice(("iscsitrace", "tgt", "istgt")),
        default="iscsitrace",
        show_default=True,
        help="tgt and istgt take --lun, --name and --chap of the target's options.",
    ),
    option(
        "--initiator-program",
        type=click.Choice(("iscsitrace", "iscsi-perf", "open-iscsi")),
        default="iscsitrace",
        show_default=True,
        help="iscsi-perf takes --block-size, --queue-depth, --seconds and --random of the workload's options; "
        "open-iscsi, which dd reads, --block-size and --seconds.",
    ),
    *DESIGN,
    option(
        "--capture",
        "capture_at",
        type=click.Choice(("both", "initiator", "target", "none")),
        default="both",
        show_default=True,
        help="Beside which hosts.",
    ),
    option("--bypass", "is_bypassed", is_flag=True, help="Veth pairs in place of the links."),
    *run_options.PACKETS,
)


@click.command(
    cls=SectionedCommand,
    sections=(LINK, PATHS, HOSTS),
    epilog="Example:  iscsitrace lab up --one-way-delay 8ms --rate 320Mbit",
)
@click.option("--seed", type=click.IntRange(0, SEED_LIMIT), default=1, show_default=True, help="Of all losses.")
@click.option(
    "--log",
    "log_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What links carried and dropped, as JSON.",
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite that file.")
@click.option("--bypass", "is_bypassed", is_flag=True, help="Veth pairs in place of the links.")
def up(seed: int, log_path: Path | None, is_forced: bool, is_bypassed: bool, **values: Any) -> None:
    """Builds the namespaces and the links, says how to use them, and removes them at Ctrl-C or SIGTERM."""
    from iscsitrace.lab import real, real_truth, truth_file

    if is_bypassed:
        run_options.refuse((LINK, PATHS), {"target_count"}, "a bypass")
        if log_path:
            raise click.UsageError("--log goes with links, not with --bypass")
    if log_path:
        truth_file.require_new([log_path], is_forced=is_forced)
    settings = world_settings(seed, values)
    with wishing() as wish:
        with real.up(settings, is_bypassed=is_bypassed) as world:
            rows = [
                (host, place.address, place.address_v6, place.interfaces[0].name, f"ip netns exec {place.namespace}")
                for host, place in world.hosts.items()
            ]
            show_table(("host", "IPv4", "IPv6", "device", "to run a command there"), rows)
            show_line("Ctrl-C removes all of it.")
            sys.stdout.flush()
            while not wish.is_there:
                time.sleep(_WAIT_S)
        logs = real_truth.of_links(world.access, world.paths)
        run_results.show_all_links(logs)
        if log_path:
            truth_file.write(log_path, truth_file.envelope("link") | {"settings": settings} | logs)


@click.command(
    cls=SectionedCommand,
    sections=(*run_options.SECTIONS, PROGRAMS),
    epilog="Example:  iscsitrace lab run read --one-way-delay 8ms --rate 320Mbit --block-size 128K --bytes 16M -o DIR",
)
@run_options.takes_run
def run(
    operation: str, directory: Path, is_forced: bool, seed: int, is_json: bool, no_progress: bool, **values: Any
) -> None:
    """Runs a workload over the kernel's TCP and emulated links: the same options as simulate, in real time.

    Writes initiator.pcapng and target.pcapng (target-2.pcapng ... of further targets), as captured beside each host,
    and truth.json: settings, what the links carried and dropped, every SCSI task of our initiator, and TCP_INFO of both
    ends over time. Without --bytes and --seconds a workload lasts 5 s. The first Ctrl-C ends it in order.

    socket-read and socket-write move bytes over bare TCP between the same hosts.

    The name of an experiment in place of the operation runs that: see `iscsitrace lab list`, and
    `iscsitrace lab run NAME --help`.
    """
    from iscsitrace.lab import real

    if values["target_program"] != "iscsitrace":
        run_options.refuse((TARGET,), _TARGET_OPTIONS, values["target_program"])
    if values["initiator_program"] != "iscsitrace":
        run_options.refuse((WORKLOAD, KEYS), _INITIATOR_OPTIONS, values["initiator_program"])
        run_options.refuse(
            (PROGRAMS,), {str(each.name) for each in PROGRAMS.options} - _DESIGN, values["initiator_program"]
        )
    if values["is_bypassed"]:
        run_options.refuse((LINK, PATHS), {"target_count"}, "a bypass")
    programs = PROGRAMS.take(values)
    settings = run_options.run_settings(operation, seed, values)
    settings["client"]["workload"] = lasting(settings["client"]["workload"])
    settings["world"] |= programs.pop("world")
    progress = Progress("running", is_wanted=not no_progress)
    with wishing() as wish, ExitStack() as stack:
        stack.callback(progress.close)

        def watch(seen: dict[str, Any]) -> bool:
            progress.show_workload(seen)
            return wish.is_there

        truth = real.run(settings, directory, watch, programs=real.Programs(**programs), is_forced=is_forced)
    if is_json:
        show_json(run_results.describe(truth))
    else:
        run_results.show(truth, directory)
    if run_results.is_ours(truth):
        traffic_results.end(truth["results"])


class _Lab(click.Group):
    """A group in which ``run`` takes an operation, or the name of an experiment in its place."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments mean."""
        if args[0] == "run" and _is_experiment(args[1:]):
            return "run", experiment.command, args[1:]
        return super().resolve_command(ctx, args)


def _is_experiment(words: list[str]) -> bool:
    """Whether a run is one of an experiment: its first word is no operation and no option, or one of them is a file."""
    first = words[0] if words else "-"
    return (not first.startswith("-") and first not in RUN_MODES) or any(word.endswith(".toml") for word in words)


@click.group(cls=_Lab, epilog="Example:  iscsitrace lab run read --one-way-delay 8ms --rate 320Mbit --bytes 16M -o DIR")
def command() -> None:
    """The real world: network namespaces of this machine, and emulated links between them. Needs root.

    And experiments: a workload over a grid of settings, beside the model; in the simulated world, or in this one.

    Nothing outside the namespaces is touched, and they are removed at the end, whatever the reason.
    """


command.add_command(up)
command.add_command(run)
command.add_command(experiment.command, "run NAME")
command.add_command(experiment.list_command, "list")
