"""Parallel streams written by hand: the bytes, losses and waits of each connection, as tables."""

from __future__ import annotations

from typing import Any

from iscsitrace.relate.jobs import streams
from iscsitrace.relate.jobs.streams import Job
from tests.support.tables_by_hand import MS, table

SECOND = 1_000 * MS


class Work:
    """Connections of sessions, with their bytes and losses, as the tables that the core would produce."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("sessions", "connections", "cycles", "budget", "recoveries", "senders")
        }

    def stream(
        self,
        length_ms: int,
        *,
        start_ms: int = 0,
        tasks: int = 20,
        size: int = 65_536,
        operation: str = "read",
        target: str | None = None,
        host: str = "iqn.host",
        session: int | None = None,
        rtt_ms: int = 10,
        sent_again: int = 0,
    ) -> int:
        """A connection whose commands follow each other without a pause."""
        number = len(self.rows["connections"])
        if session is None:
            session = number
            name = f"iqn.{number}" if target is None else target
            self.rows["sessions"].append({"session": session, "initiator_name": host, "target_name": name})
        self.rows["connections"].append(
            {
                "connection": number,
                "session": session,
                "is_iscsi": True,
                "rtt_to_target_min_ns": rtt_ms * MS,
                "rtt_to_initiator_min_ns": 0,
                "packets_to_initiator": 1_000,
                "packets_to_target": 700,
                "retransmitted_packets_to_target": 7,
                "retransmitted_packets_to_initiator": sent_again,
            }
        )
        for place in range(tasks):
            begin = SECOND + start_ms * MS + place * length_ms * MS // tasks
            self.rows["cycles"].append(
                {
                    "cycle": len(self.rows["cycles"]),
                    "session": session,
                    "connection": number,
                    "operation": operation,
                    f"is_{operation}": True,
                    "bytes": size,
                    "data_bytes": size,
                    "command_first_ns": begin,
                    "status_ns": SECOND + start_ms * MS + (place + 1) * length_ms * MS // tasks,
                    "is_complete": True,
                }
            )
        return number

    def lost(self, connection: int, *losses: tuple[int, str, int], exit_bytes: int | None = None) -> Work:
        """Losses: time (ms), how they were detected, and the pipe then; whether the first ended slow start."""
        for at, cause, pipe in losses:
            row = {"connection": connection, "cause": cause, "pipe_before_bytes": pipe, "frame_first": 1_000 + at}
            self.rows["recoveries"].append(row | {"time_first_ns": SECOND + at * MS, "retransmitted_packets": 2})
        self.rows["senders"].append({"connection": connection, "ssthresh_guess_bytes": exit_bytes})
        return self

    def waited(self, connection: int, part: str, begin_ms: int, end_ms: int) -> Work:
        row = {"connection": connection, "session": connection, "part": part, "frame": 7}
        times = {"time_first_ns": SECOND + begin_ms * MS, "time_last_ns": SECOND + end_ms * MS}
        self.rows["budget"].append(row | times)
        return self

    def jobs(self) -> list[Job]:
        made = {name: table(name, *rows) for name, rows in self.rows.items()}
        return streams.find(made.__getitem__)

    def job(self) -> Job:
        (job,) = self.jobs()
        return job


def connections(job: Job) -> list[int]:
    return [run.connection for run in job.runs]
