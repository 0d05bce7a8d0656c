"""The tables of a dataset in DuckDB: a view for each, and views with the names of hosts and volumes.

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
from iscsitrace.fleet.rows import DECLARED
from iscsitrace.fleet.store import Manifest, stores
from iscsitrace.tables.schema import PURPOSES
from iscsitrace.wording.command_status import of_columns
from iscsitrace.wording.status_classes import INFO

COMMANDS: Final = "commands"
TIMES: Final = "times"
PROBLEMS: Final = "problems"
_OF_COMMANDS: Final = ("cycles", "connections", "sessions", "logical_units", "task_management")
_OF_PERIODS: Final = {COMMANDS: (), TIMES: ("time_breakdown",), PROBLEMS: ("findings",)}
_CODES: Final = ("status", "sense_key", "asc", "ascq", "response")
_NULL: Final = 255
_UNITS_VIEW: Final = """
CREATE VIEW _units AS
SELECT tap, session, lun, coalesce(any_value(designator),
    any_value(vendor) || ' ' || any_value(product) || ' ' || any_value(unit_serial_number)) AS name
FROM logical_units GROUP BY tap, session, lun
"""
_COMMANDS_VIEW: Final = """
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
_TIMES_VIEW: Final = _NAMED.format(view="times", table="time_breakdown", addresses=_FIRST_ADDRESSES, key="session")
"""The time breakdown with the names of its sessions."""
_PROBLEMS_VIEW: Final = _NAMED.format(view="problems", table="findings", addresses="connections", key="connection")
"""The findings with the names of their sessions, or of their connections where there is no session."""


@dataclass(frozen=True)
class QueryResult:
    """The rows of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    @property
    def records(self) -> list[dict[str, Any]]:
        """For JSON: dates and times as text."""
        return [dict(zip(self.columns, map(_plain, row), strict=True)) for row in self.rows]


class Database:
    """A dataset as views; a context manager."""

    def __init__(self, dataset: Path, spill: Path | None = None) -> None:
        """InputInvalid if there is no dataset, ExtraMissing without DuckDB.

        ``spill``: a folder for what does not fit into memory.
        """
        self.dataset = dataset
        self.manifests = manifests(dataset)
        try:
            import duckdb
        except ImportError as error:
            raise ExtraMissing("SQL", "duckdb", "fleet") from error
        self._connection = duckdb.connect(config={"temp_directory": str(spill)} if spill else {})
        self._error: type[Exception] = duckdb.Error
        self.tables = tuple(name for name in DECLARED if any(name in each.tables for each in self.manifests))
        for name in self.tables:
            self._add_view(name, rows.arrow_schema(name))
        self._add_view(history.TABLE, history.arrow_schema())
        if set(_OF_COMMANDS) <= set(self.tables):
            self._add_commands()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def query(self, text: str, values: Sequence[Any] | dict[str, Any] = ()) -> QueryResult:
        """The answer to a query; InputInvalid with DuckDB's words if there is none."""
        # DuckDB would fail with a bad_cast
        text.encode()
        try:
            found = self._connection.execute(text, values if isinstance(values, dict) else list(values))
            names = tuple(column[0] for column in found.description or ())
            return QueryResult(names, found.fetchall() if names else [])
        except self._error as error:
            raise InputInvalid(f"DuckDB: {str(error).splitlines()[0]}") from error

    def require(self, name: str) -> None:
        """InputInvalid unless the dataset has what a command reads."""
        wanted = (*_OF_COMMANDS, *_OF_PERIODS[name]) if name in _OF_PERIODS else (name,)
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
        for view in (_UNITS_VIEW, _COMMANDS_VIEW.format(data=data)):
            self._connection.execute(view)
        if "time_breakdown" in self.tables:
            self._connection.execute(_TIMES_VIEW)
        if "findings" in self.tables:
            self._connection.execute(_PROBLEMS_VIEW)

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
