"""A simulated run in a folder: a capture at each tap, and the truth. Needs neither root nor real time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab import run_files, traffic
from iscsitrace.lab.faults import settings as fault_settings
from iscsitrace.lab.faults.fault import SIMULATED, Fault, hits_of_link, truth_of_faults
from iscsitrace.lab.settings.table import SIMULATED_CONTROLS
from iscsitrace.wording import amounts


def run(
    settings: Mapping[str, Any],
    directory: Path,
    watch: Callable[[int, int], bool],
    *,
    capture_at: Sequence[str] = ("initiator", "target"),
    faults: Sequence[Fault] = (),
    is_forced: bool = False,
    keeps_unfinished: bool = False,
) -> dict[str, Any]:
    """Simulates, and writes ``initiator.pcapng``, ``target.pcapng`` ... and ``truth.json``; the truth.

    ``capture_at``: the hosts to capture at, in a world with taps. ``faults`` happen to the run.

    The folder is created if missing. OutputExists if
    one of the files exists and ``is_forced`` is not set; TrafficImpossible for invalid settings, and for a run that
    does not end, unless ``keeps_unfinished``: then its truth has ``unfinished``. A failed run leaves no files.
    """
    settings = fault_settings.with_faults(settings, faults, SIMULATED)
    for host in ("initiator", "target"):
        control = settings["world"].get(f"{host}_tcp", {}).get("congestion_control")
        if control not in (None, *SIMULATED_CONTROLS):
            known = ", ".join(SIMULATED_CONTROLS)
            name = f"{host}.tcp.congestion-control"
            raise TrafficImpossible(f"{name}: simulated hosts have no {control}; there are {known}")
    initiator, *targets = (run_files.INITIATOR, *run_files.targets(len(settings["portals"])))
    hosts = run_files.hosts(len(targets), () if settings["world"].get("is_untapped") else capture_at)
    names = {host: run_files.capture_name(host) for host in hosts}
    with run_files.made_in(directory, list(names.values()), is_forced=is_forced) as folder:
        file_of = {host: folder / name for host, name in names.items()}
        found = traffic.simulate(settings, [file_of.get(host) for host in (initiator, *targets)], watch)
        truth = run_files.envelope("simulation")
        truth["captures"] = {"initiator": names.get(initiator), "targets": [names.get(host) for host in targets]}
        truth |= found
        if "unfinished" in truth and not keeps_unfinished:
            raise TrafficImpossible(why_unfinished(truth))
        hits = truth.pop("fault_hits")
        for log in filter(None, (truth["access"], *truth["paths"])):
            run_files.pack_busy_times(log)
            hits += hits_of_link(log)
        truth["faults"] = truth_of_faults(faults, hits, truth["started_ns"], truth["ended_ns"])
        run_files.write_truth(folder / run_files.TRUTH, truth)
    return truth


def why_unfinished(truth: Mapping[str, Any]) -> str:
    """Why a run was cut off, as a sentence without full stop: of a truth with ``unfinished``."""
    lasted = amounts.time(truth["ended_ns"] - truth["started_ns"])
    return f"the simulation ended early, after {lasted} of virtual time: {_UNFINISHED[truth['unfinished']]}"


_UNFINISHED: Final = {
    "nothing_left": "both sides wait for each other, and no timer runs",
    "time_limit": "the initiator had not finished within the time limit",
}
