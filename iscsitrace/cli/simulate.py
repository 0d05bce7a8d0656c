"""``iscsitrace simulate``: initiator, TCP, link and target in virtual time, to captures and their truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from iscsitrace.cli import traffic_results, units
from iscsitrace.cli.link_options import DIRECTIONS, LINK
from iscsitrace.cli.output import show_heading, show_json, show_line, show_table
from iscsitrace.cli.sections import Section, SectionedCommand, option
from iscsitrace.cli.target_options import TARGET
from iscsitrace.cli.tcp_options import HOSTS
from iscsitrace.cli.traffic_progress import Progress
from iscsitrace.cli.units import Duration, Rate, Size
from iscsitrace.cli.workload_options import KEYS, MODES, WORKLOAD

_DEFAULT_BYTES = 16 << 20
_LIMIT_NS = 3_600_000_000_000
_SEED_LIMIT = 1 << 32


def _world(
    *,
    target_count: int | None,
    target_delays: tuple[int, ...],
    access_rate: int | None,
    initiator_host_delay_ns: int,
    target_host_delay_ns: int,
    is_ipv6: bool,
    snaplen: int,
    tcp_log: str,
) -> dict[str, Any]:
    if target_count is None:
        target_count = max(1, len(target_delays))
    if target_delays and len(target_delays) != target_count:
        raise click.UsageError(f"--target-delay stands {len(target_delays)} times for {target_count} targets")
    return {
        "target_count": target_count,
        "target_delays": target_delays or (None,) * target_count,
        "access_rate": access_rate,
        "hosts": {
            "initiator_host_delay_ns": initiator_host_delay_ns,
            "target_host_delay_ns": target_host_delay_ns,
            "is_ipv6": is_ipv6,
            "snaplen_bytes": snaplen,
            "tcp_log": tcp_log,
        },
    }


WORLD = Section(
    "World",
    _world,
    option("--targets", "target_count", type=click.IntRange(1, 64), help="How many targets, each with a link (1)."),
    option(
        "--target-delay",
        "target_delays",
        type=Duration(),
        multiple=True,
        help="One-way delay to one target after the other.",
    ),
    option("--access-rate", type=Rate(), help="Rate of a line next to the initiator that all links share."),
    option(
        "--initiator-host-delay",
        "initiator_host_delay_ns",
        type=Duration(),
        default="0s",
        help="From the arrival of bytes to the initiator's having read them (0s); TCP answers at once.",
    ),
    option(
        "--target-host-delay", "target_host_delay_ns", type=Duration(), default="0s", help="The same of every target."
    ),
    option("--ipv6", "is_ipv6", is_flag=True, help="IPv6 instead of IPv4."),
    option("--snaplen", type=Size(), default="0", help="Bytes of a packet that the captures keep (all)."),
    option(
        "--tcp-log",
        type=click.Choice(("none", "windows", "pipe")),
        default="windows",
        help="At what changes truth.json logs a sender's windows: of cwnd and ssthresh (windows); also of the peer's "
        "window and the pipe (pipe), which is about every packet.",
    ),
)


@click.command(
    cls=SectionedCommand,
    sections=(WORKLOAD, KEYS, LINK, WORLD, HOSTS, TARGET),
    epilog="Example:  iscsitrace simulate read --one-way-delay 8ms --rate 320Mbit --block-size 128K --bytes 16M -o DIR",
)
@click.argument("operation", type=click.Choice(MODES))
@click.option(
    "-o",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    required=True,
    help="Folder, made if it is not there.",
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite the files of an earlier run.")
@click.option(
    "--seed", type=click.IntRange(0, _SEED_LIMIT), default=1, show_default=True, help="Of all that is random."
)
@click.option("--json", "is_json", is_flag=True, help="One JSON document with a schema number.")
@click.option("--no-progress", is_flag=True, help="Draw no progress bar.")
def command(
    operation: str, directory: Path, is_forced: bool, seed: int, is_json: bool, no_progress: bool, **values: Any
) -> None:
    """Simulates an initiator, its targets, TCP, and the links between them: deterministic, fast, without root.

    Writes initiator.pcapng and target.pcapng (target-2.pcapng ... of further targets), as captured beside each host,
    and truth.json: settings, what the links carried and dropped, and every SCSI task with its instants at both taps.
    The same options give the same bytes.
    """
    from iscsitrace.lab import simulation, truth_file

    settings = _settings(operation, seed, values)
    workload = settings["client"]["workload"]
    progress = Progress("simulating", is_wanted=not no_progress)
    try:
        truth = simulation.run(
            settings,
            directory,
            lambda elapsed_ns, packets: progress.show(elapsed_ns, workload["duration_ns"], f"{packets} packets"),
            is_forced=is_forced,
        )
    finally:
        progress.close()
    if is_json:
        kept = ("captures", "started_ns", "ended_ns", "packet_counts")
        show_json(
            truth_file.envelope("simulation")
            | {name: truth[name] for name in kept}
            | traffic_results.describe(truth["results"])
        )
    else:
        _show(truth, directory)
    traffic_results.end(truth["results"])


def _settings(operation: str, seed: int, values: dict[str, Any]) -> dict[str, Any]:
    """The simulation as the core takes it."""
    workload = WORKLOAD.take(values) | {"operation": operation, "seed": seed}
    if workload["total_bytes"] is None and workload["duration_ns"] is None:
        workload["total_bytes"] = _DEFAULT_BYTES
    offers, link, world, portal = (section.take(values) for section in (KEYS, LINK, WORLD, TARGET))
    if portal["status"] == "apart_held" and values["nagle"] is None:
        values["target_tcp"] = (("nagle", True), *values["target_tcp"])
    hosts = HOSTS.take(values)
    portals = [_numbered(portal, number) | {"seed": seed + number} for number in range(world["target_count"])]
    login: dict[str, Any] = {"offers": offers}
    if portal["chap"]:
        login |= {"chap": portal["chap"]["initiators"][0], "chap_of_target": portal["chap"]["target"]}
    access = (
        {direction: {"rate_bps": world["access_rate"]} for direction in DIRECTIONS} if world["access_rate"] else None
    )
    return {
        "client": {"login": login, "isid_seed": seed, "challenge_seed": seed, "workload": workload},
        "portals": portals,
        "world": {
            **hosts,
            **world["hosts"],
            "access": access,
            "paths": [_path(link, delay_ns, seed + number) for number, delay_ns in enumerate(world["target_delays"])],
            "limit_ns": max(_LIMIT_NS, 2 * (workload["duration_ns"] or 0)),
            "seed": seed,
        },
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


def _show(truth: dict[str, Any], directory: Path) -> None:
    results = truth["results"]
    traffic_results.show(results, has_parameters=False)
    show_heading("Links")
    rows = []
    for name, log in (("access", truth["access"]), *((f"target {n}", log) for n, log in enumerate(truth["paths"], 1))):
        for direction in DIRECTIONS if log else ():
            counters, line = log[direction]["counters"], log[direction]["line"]
            rows.append(
                (
                    name,
                    direction.replace("_", " "),
                    counters["arrived"]["count"],
                    counters["arrived"]["bytes"],
                    *(counters[fate]["count"] for fate in ("queue_full", "lost", "lost_in_burst", "overtaken")),
                    units.milliseconds(line["busy_ns"]) if line else None,
                )
            )
    headings = ("packets", "bytes", "queue full", "lost", "lost in burst", "overtaken", "line busy ms")
    show_table(("link", "direction", *headings), rows)
    ends = (
        ("initiator", truth["initiator_ends"]),
        *((f"target {n}", ends) for n, ends in enumerate(truth["target_ends"], 1)),
    )
    resent = {name: sum(end["retransmitted_segment_count"] for end in found) for name, found in ends}
    show_line("retransmitted segments: " + ", ".join(f"{name} {count}" for name, count in resent.items()))
    show_heading("Files")
    captures = (truth["captures"]["initiator"], *truth["captures"]["targets"])
    show_table(
        ("file", "packets"),
        [(str(directory / name), count) for name, count in zip(captures, truth["packet_counts"], strict=True)]
        + [(str(directory / "truth.json"), None)],
    )
