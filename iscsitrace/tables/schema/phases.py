"""Columns of ``cycles`` that follow from its timestamps; ``tables/phases.py`` computes them."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import column

DERIVED_CYCLE_COLUMNS: Final = (
    column("request_ns", "int64", "read: command_first to data_first; no data: command_first to status", "ns", null=True, source="method 3"),
    column("grant_ns", "int64", "write with R2T: command_first to r2t_first", "ns", null=True, source="method 3"),
    column("transfer_ns", "int64", "read: data_first to data_last; write: r2t_first (command_first without R2T) to the last data byte", "ns", null=True, source="method 3"),
    column("service_ns", "int64", "write: last data byte to status", "ns", null=True, source="method 3"),
    column("status_wait_ns", "int64", "read: data_last to status, 0 if the status is in the last Data-In", "ns", null=True, source="method 3"),
    column("ack_ns", "int64", "data_last to data_acked", "ns", null=True, source="method 3"),
    column("turnaround_ns", "int64", "status to next_command", "ns", null=True, source="method 3"),
    column("latency_ns", "int64", "command_first to status: the sum of request, grant, transfer, service and status_wait", "ns", null=True, source="method 3"),
    column("period_ns", "int64", "command_first to next_command: latency + turnaround", "ns", null=True, source="method 3"),
)  # fmt: skip
"""Columns of ``cycles`` that are differences of its timestamps; computed on use, always exported."""
