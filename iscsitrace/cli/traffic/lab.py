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

from iscsitrace.cli.read.sections import Section, SectionedCommand, option
from iscsitrace.cli.stop_signals import wishing
from iscsitrace.cli.traffic import experiment, run_options
from iscsitrace.cli.traffic.link_options import LINK, PATHS
from iscsitrace.cli.traffic.run_options import SEED_LIMIT, world_settings
from iscsitrace.cli.traffic.setting_options import settings_section
from iscsitrace.cli.traffic.target_options import DEVICE, TARGET
from iscsitrace.cli.traffic.tcp_options import HOSTS
from iscsitrace.cli.traffic.workload_options import KEYS, WORKLOAD, lasting
from iscsitrace.lab.settings import structs
from iscsitrace.lab.settings.table import OPERATIONS
from iscsitrace.outputs import initiator_results, run_results
from iscsitrace.outputs.run_progress import Progress
from iscsitrace.outputs.terminal import show_json

_WAIT_S = 0.1
# options that other programs have; the rest of the sections is for ours alone
_TARGET_OPTIONS = {"--lun", "--name", "--chap"}
_INITIATOR_OPTIONS = {"--block-size", "--queue-depth", "--seconds", "--random"}
_CAPTURED = {"both": ("initiator", "target"), "none": ()}
_BYPASS = option("--bypass", "is_bypassed", is_flag=True, help="Connect the hosts by veth pairs, without links.")

PROGRAMS = settings_section(
    "Real world", "target.program", "initiator.program", "initiator.driver", "initiator.receive"
)


def _captures(*, capture_at: str, is_bypassed: bool) -> dict[str, Any]:
    return {"capture_at": _CAPTURED.get(capture_at, (capture_at,)), "is_bypassed": is_bypassed}


CAPTURES = Section(
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
    cls=SectionedCommand,
    sections=(LINK, PATHS, HOSTS),
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
def up(seed: int, log_path: Path | None, is_forced: bool, is_bypassed: bool, **values: Any) -> None:
    """Create the namespaces and links, show how to use them, and remove them at Ctrl-C or SIGTERM."""
    from iscsitrace.lab import real, real_truth, truth_file

    if is_bypassed:
        run_options.refuse((LINK, PATHS), {"--targets"}, "a bypass")
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
            run_results.show_hosts(rows)
            sys.stdout.flush()
            while not wish.is_there:
                time.sleep(_WAIT_S)
        logs = real_truth.of_links(world.access, world.paths)
        run_results.show_all_links(logs)
        if log_path:
            truth_file.write(log_path, truth_file.envelope("link") | {"settings": settings} | logs)


@click.command(
    cls=SectionedCommand,
    sections=(*run_options.SECTIONS, PROGRAMS, CAPTURES, PACKETS),
    epilog="Example:  iscsitrace lab run read --one-way-delay 8ms --rate 320Mbit --block-size 128K --bytes 16M -o DIR",
)
@run_options.takes_run
def run(
    operation: str, directory: Path, is_forced: bool, seed: int, is_json: bool, no_progress: bool, **values: Any
) -> None:
    """Run a workload over the kernel's TCP and emulated links, in real time, with the options of simulate.

    Writes initiator.pcapng and target.pcapng (target-2.pcapng ... of further targets), captured at each host,
    and truth.json: settings, packets that the links carried and dropped, every SCSI command of our initiator, and
    TCP_INFO of both ends over time. Without --bytes and --seconds a workload lasts 5 s. The first Ctrl-C ends it in
    order.

    socket-read and socket-write transfer bytes over plain TCP between the same hosts.

    With the name of an experiment instead of an operation it runs the experiment: see `iscsitrace lab list`, and
    `iscsitrace lab run NAME --help`.
    """
    from iscsitrace.lab import real

    programs = structs.programs_of(PROGRAMS.take(values))
    if programs["target"] != "iscsitrace":
        run_options.refuse((DEVICE, TARGET), _TARGET_OPTIONS, programs["target"])
    if programs["initiator"] != "iscsitrace":
        run_options.refuse((WORKLOAD, KEYS), _INITIATOR_OPTIONS, programs["initiator"])
        run_options.refuse((PROGRAMS,), {"--target-program", "--initiator-program"}, programs["initiator"])
    if values["is_bypassed"]:
        run_options.refuse((LINK, PATHS), {"--targets"}, "a bypass")
    programs |= CAPTURES.take(values)
    settings = run_options.run_settings(operation, seed, values)
    settings["client"]["workload"] = lasting(settings["client"]["workload"])
    settings["world"] |= structs.fields_of_world(PACKETS.take(values))
    del settings["world"]["limit_ns"]
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
        initiator_results.end(truth["results"])


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
    """Whether a run is that of an experiment: the first word is neither operation nor option, or a word is a file."""
    first = words[0] if words else "-"
    return (not first.startswith("-") and first not in OPERATIONS) or any(word.endswith(".toml") for word in words)


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
