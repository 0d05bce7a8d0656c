"""The tables of a dataset in DuckDB: a view for each, and those of views.py, which have what is asked together.

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
from iscsitrace.fleet import history, rows, views
from iscsitrace.fleet.places import DECLARED
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

    def query(self, text: str, values: Sequence[Any] | dict[str, Any] = ()) -> Answer:
        """The answer to a query; InputInvalid with DuckDB's words if there is none."""
        try:
            found = self._connection.execute(text, values if isinstance(values, dict) else list(values))
            names = tuple(column[0] for column in found.description or ())
            return Answer(names, found.fetchall() if names else [])
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
        for view in (views.UNITS, views.COMMANDS.format(data=data)):
            self._connection.execute(view)
        if "time_breakdown" in self.tables:
            self._connection.execute(views.TIMES)
        if "findings" in self.tables:
            self._connection.execute(views.PROBLEMS)

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
