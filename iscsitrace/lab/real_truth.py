"""What is known of a run in the real world, in the form of a simulation's truth: the link's log, TCP_INFO of the ends.

Functions of what was recorded; reads and writes nothing.
"""

from __future__ import annotations

from typing import Any

from iscsitrace.lab import truth_file
from iscsitrace.lab.link_process import RunningLink
from iscsitrace.lab.recording import Samples

_MICROSECOND_NS = 1_000
_NAMES = ("local_address", "local_port", "remote_address", "remote_port", "congestion_control")


def of_link(link: RunningLink | None) -> dict[str, Any]:
    """``access`` and ``paths`` as of a simulation; ``path_process`` has what only a link in real time has."""
    if link is None:
        return {"access": None, "paths": [], "path_process": []}
    process = {name: value for name, value in link.log.items() if name != "link"}
    truth_file.pack_busy_times(link.log["link"])
    return {"access": None, "paths": [link.log["link"]], "path_process": [process]}


def of_ends(at_initiator: Samples, at_target: Samples, port: int) -> dict[str, Any]:
    """``initiator_ends`` and ``target_ends`` of the connections to a port of the target, by their initiator's port."""
    return {
        "initiator_ends": _ends(at_initiator, "local_port", "remote_port", port),
        "target_ends": [_ends(at_target, "remote_port", "local_port", port)],
        "tcp_info_missed_count": {"initiator": at_initiator.missed_count, "target": at_target.missed_count},
    }


def _ends(samples: Samples, initiator_port: str, target_port: str, port: int) -> list[dict[str, Any]]:
    rows_of: dict[int, list[dict[str, int | str | bool]]] = {}
    for row in sorted(samples.rows, key=lambda row: row["time_ns"]):
        if row[target_port] == port:
            rows_of.setdefault(int(row[initiator_port]), []).append(row)
    return [_end(number, rows) for number, rows in sorted(rows_of.items())]


def _end(initiator_port: int, rows: list[dict[str, int | str | bool]]) -> dict[str, Any]:
    """One end, as the last sample of it says; its windows at every sample, as the simulated ones at every change."""
    last = rows[-1]
    # some fields come only with their first value
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _NAMES]
    columns = {name: [row.get(name) for row in rows] for name in names}
    return {
        "initiator_port": initiator_port,
        "snd_mss": max(int(row.get("snd_mss_bytes", 0)) for row in rows),
        # the look at a socket that is closed does not tell it
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
