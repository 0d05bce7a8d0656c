"""``iscsitrace simulate``: initiator, TCP, links and targets in virtual time, to captures and their truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from iscsitrace.cli.output import show_json
from iscsitrace.cli.read.sections import Section, SectionedCommand, option
from iscsitrace.cli.traffic import results as traffic_results
from iscsitrace.cli.traffic import run_options, run_results
from iscsitrace.cli.traffic.progress import Progress
from iscsitrace.cli.units import Duration

_DEFAULT_BYTES = 16 << 20
_LIMIT_NS = 3_600_000_000_000


def _world(
    *,
    initiator_host_delay_ns: int,
    target_host_delay_ns: int,
    is_ipv6: bool,
    snaplen: int,
    tcp_log: str,
    is_untapped: bool,
) -> dict[str, Any]:
    return {
        "initiator_host_delay_ns": initiator_host_delay_ns,
        "target_host_delay_ns": target_host_delay_ns,
        "is_ipv6": is_ipv6,
        "snaplen_bytes": snaplen,
        "tcp_log": tcp_log,
        "is_untapped": is_untapped,
    }


WORLD = Section(
    "Simulated world",
    _world,
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
    *run_options.PACKETS,
    option(
        "--tcp-log",
        type=click.Choice(("none", "windows", "pipe")),
        default="windows",
        help="At what changes truth.json logs a sender's windows: of cwnd and ssthresh (windows); also of the peer's "
        "window and the pipe (pipe), which is about every packet.",
    ),
    option(
        "--no-capture",
        "is_untapped",
        is_flag=True,
        help="No captures, and a truth that tells tasks as the initiator saw them: for long runs.",
    ),
)


@click.command(
    cls=SectionedCommand,
    sections=(*run_options.SECTIONS, WORLD),
    epilog="Example:  iscsitrace simulate read --one-way-delay 8ms --rate 320Mbit --block-size 128K --bytes 16M -o DIR",
)
@run_options.takes_run
def command(
    operation: str, directory: Path, is_forced: bool, seed: int, is_json: bool, no_progress: bool, **values: Any
) -> None:
    """Simulates an initiator, its targets, TCP, and the links between them: deterministic, fast, without root.

    Writes initiator.pcapng and target.pcapng (target-2.pcapng ... of further targets), as captured beside each host,
    and truth.json: settings, what the links carried and dropped, and every SCSI task with its instants at both taps.
    The same options give the same bytes. Without --bytes and --seconds a workload moves 16 MiB.

    socket-read and socket-write move bytes over bare TCP between the same hosts. They take
    --bytes, --seconds, --connections, and --block-size bytes with each system call.
    """
    from iscsitrace.lab import simulation

    settings = run_options.run_settings(operation, seed, values)
    workload = settings["client"]["workload"]
    if workload["total_bytes"] is None and workload["duration_ns"] is None:
        workload["total_bytes"] = _DEFAULT_BYTES
    settings["world"] |= WORLD.take(values) | {"limit_ns": max(_LIMIT_NS, 2 * (workload["duration_ns"] or 0))}
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
        show_json(run_results.describe(truth))
    else:
        run_results.show(truth, directory)
    traffic_results.end(truth["results"])
