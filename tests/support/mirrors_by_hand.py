"""Hosts and their commands, written by hand: the tables that the core would produce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iscsitrace.relate.mirrors import account
from iscsitrace.relate.mirrors.account import Account
from iscsitrace.tables.table import Source
from tests.support.tables_by_hand import MS, table

SECOND = 1_000 * MS

Write = tuple[float, int, int, float]
"""Start (ms), first block, number of blocks, duration (ms)."""


class Hosts:
    """Sessions of one or more hosts, and their commands, as the tables that the core would produce."""

    def __init__(self) -> None:
        self.sessions: list[dict[str, Any]] = []
        self.connections: list[dict[str, Any]] = []
        self.cycles: list[dict[str, Any]] = []
        self.starts: list[dict[str, Any]] = []
        self.budget: list[dict[str, Any]] = []
        self.units: list[dict[str, Any]] = []

    def session(self, target: str, host: str = "iqn.host", rtt_ms: int = 2) -> int:
        number = len(self.sessions)
        self.sessions.append({"session": number, "initiator_name": host, "target_name": target})
        self.connections.append(
            {
                "connection": number,
                "session": number,
                "is_iscsi": True,
                "initiator_address": "10.0.0.1",
                "target_address": f"10.0.1.{number}",
                "rtt_to_target_min_ns": rtt_ms * MS,
                "rtt_to_initiator_min_ns": 0,
            }
        )
        return number

    def ask(self, session: int, asked: Sequence[Write], operation: str = "write", **columns: Any) -> Hosts:
        for at, lba, blocks, length in asked:
            row = {
                "session": session,
                "connection": session,
                "lun": 0,
                "operation": operation,
                f"is_{operation}": True,
                "lba": lba,
                "block_count": blocks,
                "bytes": blocks * 512,
                "data_bytes": blocks * 512,
                "command_first_ns": SECOND + round(at * MS),
                "status_ns": SECOND + round((at + length) * MS),
                "is_complete": True,
            }
            self.cycles.append(row | columns)
        return self

    def source(self) -> Source:
        self.cycles.sort(key=lambda row: row["command_first_ns"])
        cycles = [
            row | {"cycle": number, "command_frame": 2 * number + 1, "status_frame": 2 * number + 2}
            for number, row in enumerate(self.cycles)
        ]
        rows = {
            "sessions": self.sessions,
            "connections": self.connections,
            "cycles": cycles,
            "budget": self.budget,
            "logical_units": self.units,
            "senders": [],
        }
        made = {name: table(name, *each) for name, each in rows.items()}
        return made.__getitem__

    def found(self) -> list[Account]:
        return account.of_trace(self.source())


def in_order(count: int, blocks: int = 256, period: float = 20.0, length: float = 5.0) -> list[Write]:
    return [(period * number, 10_000 + blocks * number, blocks, length) for number in range(count)]


def two(first: Sequence[Write], second: Sequence[Write], **named: Any) -> list[Account]:
    hosts = Hosts()
    hosts.ask(hosts.session("iqn.a"), first)
    hosts.ask(hosts.session("iqn.b", **named), second)
    return hosts.found()
