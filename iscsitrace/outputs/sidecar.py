"""The sidecar: a text file beside a capture with what is known of its frames, for Wireshark's plugin to show.

Tab-separated lines: which capture it belongs to, the names of the columns, then one line per frame of which something
is known (``iscsitrace/tables/schema/sidecar.py``), empty where nothing is. Written in chunks; the same capture gives
the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from iscsitrace.analysis.measures.frames import facts
from iscsitrace.errors import InputInvalid
from iscsitrace.outputs.csv_writer import write_csv
from iscsitrace.tables.trace import Trace

SUFFIX = ".iscsitrace"
TABLES = ("segments", "budget", "window", "retransmissions")
"""What a trace has to be read with."""

_FORMAT = "iscsitrace-sidecar"
_VERSION = 1


def path_of(capture: Path, directory: Path | None = None) -> Path:
    """Where the plugin looks for the sidecar of a capture; or the same name in another folder."""
    return (directory or capture.parent) / f"{capture.name}{SUFFIX}"


def write(trace: Trace, stream: BinaryIO, capture_bytes: int) -> int:
    """Writes the sidecar of a capture that was read whole; how many frames it tells of.

    ``capture_bytes`` is the size of the capture's file as it is on disk. InputInvalid for a capture without a packet.
    """
    if trace.first_packet is None:
        raise InputInvalid("there is no packet in it, so there is nothing to say of any")
    time_ns, wire_bytes = trace.first_packet
    identity = {
        "frames": trace.packet_count,
        "first_frame_time": time_ns,
        "first_frame_length": wire_bytes,
        "size": capture_bytes,
    }
    line = "\t".join([_FORMAT, str(_VERSION), *(f"{name}={value}" for name, value in identity.items())])
    stream.write(f"{line}\n".encode())
    rows = facts(*(trace.table(name) for name in TABLES))
    write_csv(rows, stream, separator="\t")
    return len(rows)
