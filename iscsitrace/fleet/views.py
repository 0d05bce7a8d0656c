"""Views over the tables of a dataset, as SQL: commands, times and findings with the names of hosts and volumes."""

from __future__ import annotations

from typing import Final

UNITS: Final = """
CREATE VIEW _units AS
SELECT tap, session, lun, coalesce(any_value(designator),
    any_value(vendor) || ' ' || any_value(product) || ' ' || any_value(unit_serial_number)) AS name
FROM logical_units GROUP BY tap, session, lun
"""
COMMANDS: Final = """
CREATE VIEW commands AS
WITH named AS (
    SELECT c.*,
        coalesce(s.initiator_name, n.initiator_address) AS initiator,
        coalesce(s.target_name, n.target_address) AS target,
        u.name AS unit,
        coalesce(e.is_error, false) AS is_error, e.status_text,
        c.operation IS NULL OR c.operation IN ({data})
            OR c.operation = 'other' AND (c.is_read OR c.is_write) AND c.bytes IS DISTINCT FROM 0 AS is_data,
        c.status_ns IS NULL AND c.status IS NULL AND NOT c.is_complete AND NOT c.has_capture_gap AS is_open
    FROM cycles c
    LEFT JOIN connections n ON n.tap = c.tap AND n.connection = c.connection
    LEFT JOIN sessions s ON s.tap = c.tap AND s.session = c.session
    LEFT JOIN _units u ON u.tap = c.tap AND u.session = c.session AND u.lun = c.lun
    LEFT JOIN _statuses e ON e.status = coalesce(c.status, 255) AND e.sense_key = coalesce(c.sense_key, 255)
        AND e."asc" = coalesce(c."asc", 255) AND e.ascq = coalesce(c.ascq, 255)
        AND e.response = coalesce(c.response, 255)
        AND e.is_read_or_write IS NOT DISTINCT FROM (c.operation IN ('read', 'write'))
)
SELECT * EXCLUDE (unit), coalesce(unit, 'LUN ' || lun || ' of ' || target) AS volume FROM named
"""
"""Names and volume of each command.

``is_open``: without a status, unless the capture may have missed it; ``is_error``: a status that a healthy device does
not send; ``is_data``: it reads, writes or erases data.
"""

_NAMED: Final = """
CREATE VIEW {view} AS
SELECT t.*,
    coalesce(s.initiator_name, n.initiator_address) AS initiator,
    coalesce(s.target_name, n.target_address) AS target,
    CASE WHEN t.lun IS NULL THEN 'several volumes, or none, of ' || coalesce(s.target_name, n.target_address)
        ELSE coalesce(u.name, 'LUN ' || t.lun || ' of ' || coalesce(s.target_name, n.target_address)) END AS volume
FROM {table} t
    LEFT JOIN sessions s ON s.tap = t.tap AND s.session = t.session
    LEFT JOIN _units u ON u.tap = t.tap AND u.session = t.session AND u.lun = t.lun
    LEFT JOIN {addresses} n ON n.tap = t.tap AND n.{key} = t.{key}
"""
_FIRST_ADDRESSES: Final = """(
    SELECT tap, session, arg_min(initiator_address, connection) AS initiator_address,
        arg_min(target_address, connection) AS target_address
    FROM connections GROUP BY tap, session
)"""
TIMES: Final = _NAMED.format(view="times", table="time_breakdown", addresses=_FIRST_ADDRESSES, key="session")
"""The time breakdown with the names of its sessions."""
PROBLEMS: Final = _NAMED.format(view="problems", table="findings", addresses="connections", key="connection")
"""The findings with the names of their sessions, or of their connections where there is no session."""
