"""A drawn run in the simulated world: its truth, whole captures for the truth, and those that a diagnosis gets."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.unseen.drawing import Draw
from iscsitrace.lab import fault_catalogue, simulation
from iscsitrace.lab.settings import structs
from tests.support.capture_file import Record, read_records, write_pcapng

TAPS: Final = ("initiator", "target")
OWN_PORT: Final = 40_000
"""The initiator's port of the first session: the one that is judged."""
_TCP_PORTS: Final = struct.Struct(">HH")
_PORTS_AT: Final = 34
"""In a frame of Ethernet and IPv4 without options."""


@dataclass(frozen=True)
class Made:
    """A run: its truth, and its captures by tap."""

    truth: Mapping[str, Any]
    whole: Mapping[str, Path]
    shown: Mapping[str, Path]
    """Without the packets of foreign sessions, cut by the snaplen, and begun late."""
    from_ns: int = 0
    """When the captures that are shown begin."""


def make(draw: Draw, folder: Path) -> Made:
    """Runs it. RuntimeError if a command failed."""
    settings = structs.of_run(draw.values, draw.run_seed)
    workload, world = settings["client"]["workload"], settings["world"]
    workload["sessions"] = 1 + draw.foreign_count
    world["tcp_log"] = "pipe"
    for path in world["paths"]:
        path["is_logging_packets"] = True
    settings["portals"][0]["faults"] = draw.storage
    faults = [fault_catalogue.parse(text) for text in draw.faults]
    truth = simulation.run(settings, folder / "whole", lambda *_: False, faults=faults, is_forced=True)
    if truth["results"]["errors"]:
        raise RuntimeError(f"{draw.kind} {draw.number}: {truth['results']['errors'][0]}")
    whole = {tap: folder / "whole" / f"{tap}.pcapng" for tap in TAPS}
    if not (draw.foreign_count or draw.snaplen or draw.late_share):
        return Made(truth, whole, whole)
    from_ns = _from_ns(truth, draw.late_share)
    shown = {tap: _shown(file, folder / f"{tap}.pcapng", draw, from_ns) for tap, file in whole.items()}
    return Made(truth, whole, shown, from_ns)


def _from_ns(truth: Mapping[str, Any], share: float) -> int:
    """When this share of the commands had begun; 0 without any."""
    begun = sorted(truth["cycles"]["initiator"]["command_first_ns"])
    return int(begun[int(share * len(begun))]) if share else 0


def _shown(whole: Path, file: Path, draw: Draw, from_ns: int) -> Path:
    records, link_type = read_records(whole)
    own = [record for record in records if record.time_ns >= from_ns and (not draw.foreign_count or is_own(record))]
    length = draw.snaplen or None
    return write_pcapng(file, [replace(record, data=record.data[:length]) for record in own], link_type)


def is_own(record: Record) -> bool:
    """Whether a packet belongs to the session that is judged."""
    return OWN_PORT in _TCP_PORTS.unpack_from(record.data, _PORTS_AT)
