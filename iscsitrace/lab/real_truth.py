"""The truth of a run in the real world, in the form of a simulation's: logs of links, TCP_INFO of connections.

Computes from recorded data; reads and writes no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iscsitrace.lab.actors import RunningTarget
from iscsitrace.lab.link_process import RunningLink
from iscsitrace.lab.recording import TcpInfoSamples

Row = dict[str, int | str | bool]
"""One sample of a connection."""

_MICROSECOND_NS = 1_000
_NAMES = ("local_address", "local_port", "remote_address", "remote_port", "congestion_control")


def of_links(access: RunningLink | None, paths: Sequence[RunningLink]) -> dict[str, Any]:
    """``access`` and ``paths`` as in a simulation; ``access_process`` and ``path_process`` of the links' processes."""
    return {
        "access": access and access.log["link"],
        "access_process": access and _process(access),
        "paths": [link.log["link"] for link in paths],
        "path_process": [_process(link) for link in paths],
    }


def _process(link: RunningLink) -> dict[str, Any]:
    return {name: value for name, value in link.log.items() if name != "link"}


def of_ends(
    at_initiator: TcpInfoSamples, at_targets: Sequence[TcpInfoSamples], targets: Sequence[RunningTarget]
) -> dict[str, Any]:
    """``initiator_ends`` and ``target_ends`` of the connections, by target and initiator port."""
    initiator_ends = []
    for number, target in enumerate(targets):
        rows = [row for row in at_initiator.rows if row["remote_address"] == target.address]
        initiator_ends += [{"target": number, **end} for end in _ends(rows, "local_port", "remote_port", target.port)]
    return {
        "initiator_ends": initiator_ends,
        "target_ends": [
            _ends(samples.rows, "remote_port", "local_port", target.port)
            for samples, target in zip(at_targets, targets, strict=True)
        ],
        "tcp_info_missed_counts": [samples.missed_count for samples in (at_initiator, *at_targets)],
    }


def _ends(rows: list[Row], initiator_port: str, target_port: str, port: int) -> list[dict[str, Any]]:
    rows_of: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["time_ns"]):
        if row[target_port] == port:
            rows_of.setdefault(int(row[initiator_port]), []).append(row)
    return [_end(number, of_port) for number, of_port in sorted(rows_of.items())]


def _end(initiator_port: int, rows: list[Row]) -> dict[str, Any]:
    """One end of a connection: totals from its last sample, windows from every sample."""
    last = rows[-1]
    # some fields are missing until they have a value
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _NAMES]
    columns = {name: [row.get(name) for row in rows] for name in names}
    return {
        "initiator_port": initiator_port,
        "snd_mss": max(int(row.get("snd_mss_bytes", 0)) for row in rows),
        # the last sample, of a socket that is about to be closed, does not have it
        "congestion_control": next(
            (row[name] for row in reversed(rows) if (name := "congestion_control") in row), None
        ),
        "retransmitted_segment_count": last.get("total_retrans_segments", 0),
        "windows": {
            "time_ns": columns["time_ns"],
            "cwnd": columns.get("snd_cwnd_segments"),
            "ssthresh": columns.get("snd_ssthresh_segments"),
            "snd_wnd_bytes": columns.get("snd_wnd_bytes"),
            "pipe": [_pipe(row) for row in rows],
            "srtt_us": [int(row.get("rtt_ns", 0)) // _MICROSECOND_NS for row in rows],
            "unacked": columns.get("unacked_segments"),
        },
        "tcp_info": columns,
    }


def _pipe(row: dict[str, int | str | bool]) -> int:
    """Segments in the network as the kernel counts them (tcp_packets_in_flight)."""
    out, again, arrived, lost = (
        int(row.get(f"{name}_segments", 0)) for name in ("unacked", "retrans", "sacked", "lost")
    )
    return out + again - arrived - lost
