"""``iscsitrace lab``: the real world, in network namespaces of this machine; ``up`` to try, ``run`` for a workload."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from iscsitrace.cli import traffic_results, units
from iscsitrace.cli.link_options import DIRECTIONS, LINK
from iscsitrace.cli.output import show_heading, show_json, show_line, show_table
from iscsitrace.cli.sections import Section, SectionedCommand, option
from iscsitrace.cli.stop_signals import wishing
from iscsitrace.cli.target_options import TARGET
from iscsitrace.cli.tcp_options import HOSTS
from iscsitrace.cli.traffic_progress import Progress
from iscsitrace.cli.units import Size
from iscsitrace.cli.workload_options import KEYS, MODES, WORKLOAD

_DEFAULT_SECONDS_NS = 5_000_000_000
_WAIT_S = 0.1
_SEED_LIMIT = 1 << 32
# what other programs can be told; the rest of the sections is ours alone
_TARGET_OPTIONS = {"logical_units", "target_name", "chap"}
_CAPTURED = {"both": ("initiator", "target"), "none": ()}
_INITIATOR_OPTIONS = {"block_size", "queue_depth", "seconds", "is_random"}


def _programs(
    *, target_program: str, initiator_program: str, capture_at: str, is_bypassed: bool, is_ipv6: bool, snaplen: int
) -> dict[str, Any]:
    return {
        "target": target_program,
        "initiator": initiator_program,
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
        type=click.Choice(("iscsitrace", "iscsi-perf")),
        default="iscsitrace",
        show_default=True,
        help="iscsi-perf takes --block-size, --queue-depth, --seconds and --random of the workload's options.",
    ),
    option(
        "--capture",
        "capture_at",
        type=click.Choice(("both", "initiator", "target", "none")),
        default="both",
        show_default=True,
        help="Beside which host.",
    ),
    option("--bypass", "is_bypassed", is_flag=True, help="A veth pair in place of the link."),
    option("--ipv6", "is_ipv6", is_flag=True, help="IPv6 instead of IPv4."),
    option("--snaplen", type=Size(), default="0", help="Bytes of a packet that the captures keep (all)."),
)


@click.command(
    cls=SectionedCommand,
    sections=(LINK, HOSTS),
    epilog="Example:  iscsitrace lab up --one-way-delay 8ms --rate 320Mbit",
)
@click.option("--seed", type=click.IntRange(0, _SEED_LIMIT), default=1, show_default=True, help="Of all losses.")
@click.option("--log", "log_path", type=click.Path(path_type=Path), help="What the link carried and dropped, as JSON.")
@click.option("--force", "is_forced", is_flag=True, help="Overwrite that file.")
@click.option("--bypass", "is_bypassed", is_flag=True, help="A veth pair in place of the link.")
def up(seed: int, log_path: Path | None, is_forced: bool, is_bypassed: bool, **values: Any) -> None:
    """Builds the namespaces and the link, says how to use them, and removes them at Ctrl-C or SIGTERM."""
    from iscsitrace.lab import real, truth_file

    if log_path:
        truth_file.require_new([log_path], is_forced=is_forced)
    path = LINK.take(values) | {"seed": seed}
    hosts = HOSTS.take(values)
    with wishing() as wish:
        with real.up({**hosts, "paths": [path]}, is_bypassed=is_bypassed) as world:
            rows = []
            for end in real.ENDS:
                place = world.place(end)
                enter = f"ip netns exec {place.namespace}"
                rows.append((end, place.address, place.address_v6, place.interfaces[0].name, enter))
            show_table(("end", "IPv4", "IPv6", "device", "to run a command there"), rows)
            show_line("Ctrl-C removes all of it.")
            sys.stdout.flush()
            while not wish.is_there:
                time.sleep(_WAIT_S)
        if world.link is not None:
            _show_link(world.link.log["link"], world.link.log["lateness"])
            if log_path:
                settings = {**hosts, "paths": [path]}
                truth_file.write(log_path, truth_file.envelope("link") | {"settings": settings} | world.link.log)


@click.command(
    cls=SectionedCommand,
    sections=(WORKLOAD, KEYS, LINK, HOSTS, TARGET, PROGRAMS),
    epilog="Example:  iscsitrace lab run read --one-way-delay 8ms --rate 320Mbit --block-size 128K --bytes 16M -o DIR",
)
@click.argument("operation", type=click.Choice(MODES))
@click.option(
    "-o", "directory", type=click.Path(path_type=Path), required=True, help="Folder, made if it is not there."
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite the files of an earlier run.")
@click.option(
    "--seed", type=click.IntRange(0, _SEED_LIMIT), default=1, show_default=True, help="Of all that is random."
)
@click.option("--json", "is_json", is_flag=True, help="One JSON document with a schema number.")
@click.option("--no-progress", is_flag=True, help="Draw no progress bar.")
def run(
    operation: str,
    directory: Path,
    is_forced: bool,
    seed: int,
    is_json: bool,
    no_progress: bool,
    **values: Any,
) -> None:
    """Runs a workload over the kernel's TCP and an emulated link: the same options as simulate, in real time.

    Writes initiator.pcapng and target.pcapng, as captured beside each host, and truth.json: settings, what the link
    carried and dropped, every SCSI task of our initiator, and TCP_INFO of both ends over time. Without --bytes and
    --seconds a workload lasts 5 s. The first Ctrl-C ends it in order.
    """
    from iscsitrace.lab import real

    if values["target_program"] != "iscsitrace":
        _refuse((TARGET,), _TARGET_OPTIONS, values["target_program"])
    if values["initiator_program"] != "iscsitrace":
        _refuse((WORKLOAD, KEYS), _INITIATOR_OPTIONS, values["initiator_program"])
    settings, programs = _settings(operation, seed, values)
    progress = Progress("running", is_wanted=not no_progress)
    with wishing() as wish, ExitStack() as stack:
        stack.callback(progress.close)

        def watch(seen: dict[str, Any]) -> bool:
            if seen["is_running"]:
                done, total = ("bytes", "total_bytes") if seen["total_bytes"] else ("elapsed_ns", "duration_ns")
                progress.show(seen[done], seen[total], f"{units.megabytes(seen['bytes'])} MB")
            return wish.is_there

        truth = real.run(settings, directory, watch, programs=real.Programs(**programs), is_forced=is_forced)
    is_ours = programs["initiator"] == "iscsitrace"
    if is_json:
        kept = ("captures", "started_ns", "ended_ns", "packet_counts", "capture_dropped_counts")
        results = traffic_results.describe(truth["results"]) if is_ours else truth["results"]
        show_json({name: truth[name] for name in ("schema", "tool", "kind", *kept)} | results)
    else:
        _show(truth, directory, is_ours=is_ours)
    if is_ours:
        traffic_results.end(truth["results"])


def _refuse(sections: tuple[Section[Any], ...], taken: set[str], program: str) -> None:
    """A usage error for options that a program cannot be told."""
    ctx = click.get_current_context()
    for section in sections:
        for each in section.options:
            is_given = ctx.get_parameter_source(str(each.name)) is click.core.ParameterSource.COMMANDLINE
            if is_given and each.name not in taken:
                raise click.UsageError(f"{each.opts[0]} cannot be told to {program}")


def _settings(operation: str, seed: int, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of a simulation with one target, and the programs."""
    programs = PROGRAMS.take(values)
    workload = WORKLOAD.take(values) | {"operation": operation, "seed": seed}
    if workload["total_bytes"] is None and workload["duration_ns"] is None:
        workload["duration_ns"] = _DEFAULT_SECONDS_NS
    offers, link, portal = (section.take(values) for section in (KEYS, LINK, TARGET))
    if portal["status"] == "apart_held" and values["nagle"] is None:
        values["target_tcp"] = (("nagle", True), *values["target_tcp"])
    login: dict[str, Any] = {"offers": offers}
    if portal["chap"]:
        login |= {"chap": portal["chap"]["initiators"][0], "chap_of_target": portal["chap"]["target"]}
    settings = {
        "client": {"login": login, "isid_seed": seed, "challenge_seed": seed, "workload": workload},
        "portals": [portal | {"seed": seed}],
        "world": {**HOSTS.take(values), "paths": [link | {"seed": seed}], "seed": seed, **programs.pop("world")},
    }
    return settings, programs


def _show(truth: dict[str, Any], directory: Path, *, is_ours: bool) -> None:
    results = truth["results"]
    if is_ours:
        traffic_results.show(results, has_parameters=False)
    else:
        rate = units.megabytes(results["throughput_bytes_per_s"])
        show_line(f"{rate} MB/s, {results['iops']} IOPS of {units.size(results['read_bytes'])}")
    for log, process in zip(truth["paths"], truth["path_process"], strict=True):
        show_heading("Link")
        _show_link(log, process["lateness"])
    ends = (("initiator", truth["initiator_ends"]), ("target", truth["target_ends"][0]))
    resent = {name: sum(end["retransmitted_segment_count"] for end in found) for name, found in ends}
    show_line("retransmitted segments: " + ", ".join(f"{name} {count}" for name, count in resent.items()))
    show_heading("Files")
    names = (truth["captures"]["initiator"], *truth["captures"]["targets"])
    counts = zip(names, truth["packet_counts"], truth["capture_dropped_counts"], strict=True)
    rows: list[tuple[object, ...]] = [(directory / name, count, lost) for name, count, lost in counts if name]
    show_table(("file", "packets", "not captured"), [*rows, (directory / "truth.json", None, None)])


def _show_link(log: dict[str, Any], lateness: dict[str, Any]) -> None:
    fates = ("arrived", "delivered", "queue_full", "lost", "lost_in_burst", "overtaken")
    rows = [
        (direction.replace("_", " "), *(log[direction]["counters"][fate]["count"] for fate in fates))
        for direction in DIRECTIONS
    ]
    show_table(("direction", *(fate.replace("_", " ") for fate in fates)), rows)
    late = [units.milliseconds(lateness[name]) for name in ("median_ns", "p99_ns", "max_ns")]
    show_line(f"frames left late by: median {late[0]} ms, p99 {late[1]} ms, max {late[2]} ms")


@click.group(epilog="Example:  iscsitrace lab run read --one-way-delay 8ms --rate 320Mbit --bytes 16M -o DIR")
def command() -> None:
    """The real world: two network namespaces of this machine, and an emulated link between them. Needs root.

    Nothing outside the namespaces is touched, and they are removed at the end, whatever the reason.
    """


command.add_command(up)
command.add_command(run)
