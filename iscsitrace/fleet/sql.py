"""The tables of a dataset in DuckDB: a view for each, and ``commands``, which has what is asked of commands together.

A view reads the committed Parquet files where they are; nothing is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from iscsitrace.errors import ExtraMissing, InputInvalid
from iscsitrace.fleet import history, rows
from iscsitrace.fleet.store import Manifest, stores
from iscsitrace.tables.schema import PURPOSES, TABLES
from iscsitrace.wording.command_status import of_columns
from iscsitrace.wording.status_classes import INFO

COMMANDS: Final = "commands"
_OF_COMMANDS: Final = ("cycles", "connections", "sessions", "logical_units", "task_management")
_CODES: Final = ("status", "sense_key", "asc", "ascq", "response")
_NULL: Final = 255


@dataclass(frozen=True)
class Answer:
    """The rows of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    @property
    def records(self) -> list[dict[str, Any]]:
        """For JSON: dates and times as text."""
        return [dict(zip(self.columns, map(_plain, row), strict=True)) for row in self.rows]


class Database:
    """A dataset as views; a context manager."""

    def __init__(self, dataset: Path) -> None:
        """InputInvalid if there is no dataset, ExtraMissing without DuckDB."""
        self.dataset = dataset
        self.manifests = manifests(dataset)
        try:
            import duckdb
        except ImportError as error:
            raise ExtraMissing("SQL", "duckdb", "fleet") from error
        self._connection = duckdb.connect()
        self._error: type[Exception] = duckdb.Error
        self.tables = tuple(name for name in TABLES if any(name in each.tables for each in self.manifests))
        for name in self.tables:
            self._add_view(name, rows.arrow_schema(name))
        self._add_view(history.TABLE, history.arrow_schema())
        if set(_OF_COMMANDS) <= set(self.tables):
            self._add_commands()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def query(self, text: str, values: Sequence[Any] = ()) -> Answer:
        """The answer to a query; InputInvalid with DuckDB's words if there is none."""
        try:
            found = self._connection.execute(text, list(values))
            names = tuple(column[0] for column in found.description or ())
            return Answer(names, found.fetchall() if names else [])
        except self._error as error:
            raise InputInvalid(f"DuckDB: {str(error).splitlines()[0]}") from error

    def require(self, name: str) -> None:
        """InputInvalid unless the dataset has what a command reads."""
        wanted = _OF_COMMANDS if name == COMMANDS else (name,)
        missing = [each for each in wanted if each not in (*self.tables, history.TABLE)]
        if missing:
            raise InputInvalid(f"{self.dataset} lacks the tables {', '.join(missing)}: it was made with --tables")

    def _add_view(self, name: str, schema: Any) -> None:
        files = self.dataset.absolute() / name
        if any(files.glob("tap=*/day=*/*.parquet")):
            pattern = _quoted(f"{_escaped(str(files))}/tap=*/day=*/*.parquet")
            source = f"read_parquet({pattern}, hive_partitioning=true, hive_types={{'tap': VARCHAR, 'day': DATE}})"
        else:
            self._connection.register(f"{name}_empty", schema.empty_table())
            source = f"(SELECT *, NULL::VARCHAR AS tap, NULL::DATE AS day FROM {name}_empty)"  # noqa: S608 -- our names
        self._connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {source}")  # noqa: S608 -- likewise

    def _add_commands(self) -> None:
        self._connection.register("_statuses", self._statuses())
        data = ", ".join(_quoted(name) for name, purpose in PURPOSES.items() if purpose == "data")
        self._connection.execute(_COMMANDS_VIEW.format(data=data))

    def _statuses(self) -> Any:
        """What each combination of codes in the dataset means: one row each, and only those that are no success."""
        import pyarrow

        codes = ", ".join(f'coalesce("{code}", {_NULL})::UTINYINT AS "{code}"' for code in _CODES)
        found = self.query(
            f"SELECT DISTINCT {codes}, operation IN ('read', 'write') AS is_read_or_write FROM cycles "  # noqa: S608
            "WHERE status <> 0 OR response <> 0"
        )
        columns = [np.array(each, dtype=np.uint8) for each in zip(*found.rows, strict=True)] or [
            np.zeros(0, np.uint8)
        ] * 6
        statuses, places = of_columns(*columns[:4], response=columns[4], is_read_or_write=columns[5] == 1)
        meant = [statuses[place] if place >= 0 else None for place in places.tolist()]
        return pyarrow.table(
            {
                **dict(zip(_CODES, columns, strict=False)),
                "is_read_or_write": pyarrow.array(columns[5] == 1),
                "status_text": pyarrow.array([each and each.text for each in meant], pyarrow.string()),
                "is_error": pyarrow.array([bool(each and each.severity != INFO) for each in meant], pyarrow.bool_()),
            }
        )


_COMMANDS_VIEW: Final = """
CREATE VIEW commands AS
WITH units AS (
    SELECT tap, session, lun, any_value(designator) AS designator, any_value(unit_serial_number) AS serial,
        any_value(vendor) AS vendor, any_value(product) AS product
    FROM logical_units GROUP BY tap, session, lun
), aborts AS (
    SELECT tap, referenced_cycle AS cycle, min(response_ns) AS aborted_ns FROM task_management
    WHERE referenced_cycle IS NOT NULL AND response_ns IS NOT NULL GROUP BY ALL
), named AS (
    SELECT c.*,
        coalesce(s.initiator_name, n.initiator_address) AS initiator,
        coalesce(s.target_name, n.target_address) AS target,
        u.designator, u.vendor, u.product, u.serial, n.time_last_ns AS connection_last_ns, a.aborted_ns,
        c.is_aborted OR a.aborted_ns IS NOT NULL OR n.has_fin OR n.has_rst AS is_over,
        coalesce(e.is_error, false) AS is_error, e.status_text,
        c.operation IS NULL OR c.operation IN ({data})
            OR c.operation = 'other' AND (c.is_read OR c.is_write) AND c.bytes IS DISTINCT FROM 0 AS is_data,
        c.status_ns IS NULL AND c.status IS NULL AND NOT c.is_complete AND NOT c.has_capture_gap AS is_open
    FROM cycles c
    LEFT JOIN connections n ON n.tap = c.tap AND n.connection = c.connection
    LEFT JOIN sessions s ON s.tap = c.tap AND s.session = c.session
    LEFT JOIN units u ON u.tap = c.tap AND u.session = c.session AND u.lun = c.lun
    LEFT JOIN aborts a ON a.tap = c.tap AND a.cycle = c.cycle
    LEFT JOIN _statuses e ON e.status = coalesce(c.status, 255) AND e.sense_key = coalesce(c.sense_key, 255)
        AND e."asc" = coalesce(c."asc", 255) AND e.ascq = coalesce(c.ascq, 255)
        AND e.response = coalesce(c.response, 255)
        AND e.is_read_or_write IS NOT DISTINCT FROM (c.operation IN ('read', 'write'))
)
SELECT * EXCLUDE (designator, vendor, product, serial, connection_last_ns, aborted_ns, is_over),
    is_open AND is_over AS is_lost,
    coalesce(designator, vendor || ' ' || product || ' ' || serial,
        'LUN ' || lun || ' of ' || target) AS volume,
    CASE WHEN status_ns IS NOT NULL THEN status_ns
        WHEN is_open THEN greatest(command_first_ns, coalesce(aborted_ns, connection_last_ns, command_first_ns))
        ELSE command_first_ns END AS end_ns
FROM named
"""
"""Names, volume and end of each command.

``is_open``: without a status, unless the capture may have missed it; ``is_lost``: and it never gets one, as it was
aborted or its connection was closed; ``end_ns``: its status, else its abort or the last packet of its connection;
``is_error``: a status that a healthy device does not send; ``is_data``: it reads, writes or erases data.
"""


def manifests(dataset: Path) -> list[Manifest]:
    """The last commit of each tap; InputInvalid if there is none."""
    found = [manifest for store in stores(dataset) if (manifest := store.manifest()) is not None]
    if not found:
        raise InputInvalid(f"{dataset} has no rows yet: 'iscsitrace fleet run' has committed nothing")
    return found


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escaped(path: str) -> str:
    """A path as a pattern that matches it alone."""
    return "".join(f"[{each}]" if each in "*?[" else each for each in path)


def _plain(value: Any) -> Any:
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return str(value)
