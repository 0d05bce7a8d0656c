"""``iscsitrace simulate``: initiator, TCP, links and targets in virtual time, to captures and their truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from iscsitrace.cli.traffic import run_options
from iscsitrace.cli.traffic.settings_command import SettingsCommand, settings_section
from iscsitrace.cli.traffic.target_options import faults_of, lists_faults
from iscsitrace.lab.settings import structs
from iscsitrace.show import run_results
from iscsitrace.show.line import ProgressBar, say
from iscsitrace.show.terminal import show_json

_DEFAULT_BYTES = 16 << 20

WORLD = settings_section("Simulated world", "initiator.host-delay", "target.host-delay", "capture")


@click.command(
    cls=SettingsCommand,
    sections=(*run_options.SIMULATED, WORLD),
    shown=run_options.SHOWN,
    epilog="Example:  iscsitrace simulate read --one-way-delay 8ms --rate 320Mbit --block-size 128K --bytes 16M -o DIR",
)
@run_options.takes_run
@lists_faults("simulated")
def command(
    operation: str, directory: Path, is_forced: bool, seed: int, is_json: bool, is_quiet: bool, **values: Any
) -> None:
    """Simulate an initiator, its targets, TCP, and the links between them: deterministic, fast, without root.

    Writes initiator.pcapng and target.pcapng (target-2.pcapng ... of further targets), captured at each host,
    and truth.json: settings, packets that the links carried and dropped, and every SCSI command with its times at both
    taps. The same options make the same files. Without --bytes and --seconds a workload transfers 16 MiB; with timed
    faults it lasts until 5 s after the last.

    OPERATION is read, write or mixed; socket-read and socket-write transfer bytes over plain TCP between the same
    hosts. These two take the size of a system call (--block-size), --bytes, --seconds and --connections.
    """
    from iscsitrace.lab import fault_catalogue as catalogue
    from iscsitrace.lab import simulation
    from iscsitrace.lab.faults.fault import SIMULATED
    from iscsitrace.lab.faults.settings import duration_ns
    from iscsitrace.lab.run_files import INITIATOR, targets

    faults = faults_of(values)
    settings = run_options.run_settings(operation, seed, values)
    catalogue.require_in(SIMULATED, faults, [INITIATOR, *targets(len(settings["portals"]))])
    workload = settings["client"]["workload"]
    if workload["total_bytes"] is None and workload["duration_ns"] is None:
        workload["duration_ns"] = duration_ns(faults)
        workload["total_bytes"] = None if workload["duration_ns"] else _DEFAULT_BYTES
    settings["world"] |= {"is_untapped": False} | structs.fields_of_world(WORLD.take(values))
    settings["world"]["limit_ns"] = max(structs.LIMIT_NS, 2 * (workload["duration_ns"] or 0))
    progress = ProgressBar("simulating", is_wanted=not is_quiet)
    try:
        truth = simulation.run(
            settings,
            directory,
            lambda elapsed_ns, packets: progress.show(elapsed_ns, workload["duration_ns"], f"{packets} packets"),
            faults=faults,
            is_forced=is_forced,
            keeps_unfinished=True,
        )
    finally:
        progress.close()
    if is_json:
        show_json(run_results.describe(truth))
    else:
        run_results.show(truth, directory)
    if "unfinished" in truth:
        say(f"iscsitrace: {simulation.why_unfinished(truth)}", err=True)
    run_results.end_initiator(truth["results"], is_unfinished="unfinished" in truth)
