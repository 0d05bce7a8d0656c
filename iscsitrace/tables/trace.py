"""A trace: what one pass over one or more captures left, as tables.

``read`` runs the pass in the compiled core; no other module of the reading side imports it. A trace is read once and
never changes; its tables are made when they are first asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from threading import Thread, get_native_id
from typing import TYPE_CHECKING, Any, BinaryIO

from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables.schema import CATEGORIES, ON_REQUEST, SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from iscsitrace.tables.coverage import Coverage
    from iscsitrace.tables.table import Table

try:
    from iscsitrace import _core
except ImportError as error:  # a source tree without the compiled core; reading says so, all else works
    _core_missing: ImportError | None = error
else:
    _core_missing = None

_LOADING_NICENESS = 10
_INT64 = -(1 << 63), (1 << 63) - 1
_UINT64_MAX = (1 << 64) - 1

Source = str | os.PathLike[str] | os.PathLike[bytes] | bytes | BinaryIO


class Trace:
    """The tables of one pass: ``trace.cycles``, ``trace.pdus`` ... or ``trace.table("cycles")``."""

    def __init__(self, core_pass: _core.Pass, operations: tuple[str, ...], options: dict[str, Any]) -> None:
        """Wraps what the core left; use :func:`read`."""
        self._pass = core_pass
        self._tables: dict[str, Table] = {}
        self._words = CATEGORIES | {"operation": operations}
        self.options = options
        """The options that :func:`read` was given: part of the results' provenance."""

    def table(self, name: str) -> Table:
        """The table of that name. InputInvalid when there is none, or when the pass was not asked to fill it."""
        if name in self._tables:
            return self._tables[name]
        if name not in TABLES:
            raise InputInvalid(f"no table is called {name}; there are {', '.join(TABLES)}")
        if name in ON_REQUEST and name not in self.options["tables"]:
            raise InputInvalid(f"table {name} is filled only when asked for: read(..., tables=[{name!r}])")
        from iscsitrace.tables import phases
        from iscsitrace.tables.table import Table

        masks = self._pass.masks(name)
        columns = self._pass.columns(name)
        derived = phases.DERIVED if name == "cycles" else None
        self._tables[name] = Table(TABLES[name], columns, masks, self._words, derived)
        return self._tables[name]

    def keep(self, table: Table) -> None:
        """Keeps a table that was computed from the others: one of schema.DERIVED_TABLES."""
        self._tables[table.name] = table

    def row_count(self, name: str) -> int:
        """Rows of a table, without making it."""
        return len(self._tables[name]) if name in self._tables else self._pass.row_count(name)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """One dict per source: format, compression, link types, interfaces, packet and byte counts, times (ns)."""
        return self._pass.inputs

    @property
    def packet_count(self) -> int:
        """Packets read, after the capture filter and the time window."""
        return self._pass.packet_count

    @property
    def tcp_packet_count(self) -> int:
        """Of these, TCP packets."""
        return self._pass.tcp_packet_count

    @property
    def first_packet(self) -> tuple[int, int] | None:
        """Of the first packet read: capture time (ns) and bytes on the wire; None when there is none."""
        return self._pass.first_packet

    @property
    def connections(self) -> Table:
        """One row per TCP connection, numbered as Wireshark's tcp.stream."""
        return self.table("connections")

    @property
    def sessions(self) -> Table:
        """One row per iSCSI session."""
        return self.table("sessions")

    @property
    def parameters(self) -> Table:
        """One row per login key and connection: who offered what, what is in force."""
        return self.table("parameters")

    @property
    def pdus(self) -> Table:
        """One row per iSCSI PDU; only when read with ``tables=["pdus"]``, as by default."""
        return self.table("pdus")

    @property
    def cycles(self) -> Table:
        """One row per SCSI task, with instants, and phases computed from them."""
        return self.table("cycles")

    @property
    def rounds(self) -> Table:
        """One row per R2T and the Data-Out burst that answers it."""
        return self.table("rounds")

    @property
    def logins(self) -> Table:
        """One row per Login Request and its answer."""
        return self.table("logins")

    @property
    def task_management(self) -> Table:
        """One row per Task Management Function Request and its answer."""
        return self.table("task_management")

    @property
    def write_starts(self) -> Table:
        """One row per write whose first data were captured; only when read with ``tables=["write_starts"]``."""
        return self.table("write_starts")

    @property
    def nops(self) -> Table:
        """One row per ping and its echo, or one-way NOP."""
        return self.table("nops")

    @property
    def texts(self) -> Table:
        """One row per Text Request and its answer."""
        return self.table("texts")

    @property
    def logouts(self) -> Table:
        """One row per Logout Request and its answer."""
        return self.table("logouts")

    @property
    def rejects(self) -> Table:
        """One row per Reject."""
        return self.table("rejects")

    @property
    def asyncs(self) -> Table:
        """One row per Asynchronous Message."""
        return self.table("asyncs")

    @property
    def snacks(self) -> Table:
        """One row per SNACK Request."""
        return self.table("snacks")

    @property
    def segments(self) -> Table:
        """One row per TCP packet of an iSCSI connection; only when read with ``tables=["segments"]``."""
        return self.table("segments")

    @property
    def sacks(self) -> Table:
        """One row per block of a selective acknowledgment; only when read with ``tables=["sacks"]``."""
        return self.table("sacks")

    @property
    def window(self) -> Table:
        """One row per change of a sender's outstanding data; only when read with ``tables=["window"]``."""
        return self.table("window")

    @property
    def round_trips(self) -> Table:
        """One row per round-trip sample between the tap and one end; only when read with ``tables=["round_trips"]``."""
        return self.table("round_trips")

    @property
    def retransmissions(self) -> Table:
        """One row per packet that was sent again; only when read with ``tables=["retransmissions"]``."""
        return self.table("retransmissions")

    @property
    def recoveries(self) -> Table:
        """One row per loss and its repair; only when read with ``tables=["recoveries"]``."""
        return self.table("recoveries")

    @property
    def flights(self) -> Table:
        """One row per run of payload packets without a pause; only when read with ``tables=["flights"]``."""
        return self.table("flights")

    @property
    def senders(self) -> Table:
        """One row per direction of an iSCSI connection; only when read with ``tables=["senders"]``."""
        return self.table("senders")

    @property
    def budget(self) -> Table:
        """One row per stretch of time with one owner; only when read with ``tables=["budget"]``."""
        return self.table("budget")

    @property
    def counters(self) -> Table:
        """One row per oddity of the input and connection (null: the capture as a whole)."""
        return self.table("counters")

    @cached_property
    def coverage(self) -> list[Coverage]:
        """Which share of the bytes and PDUs is explained: per connection and direction, the total last."""
        from iscsitrace.tables import coverage

        return coverage.measure(self.connections)

    @property
    def provenance(self) -> dict[str, Any]:
        """What made these tables: schema number, tool and version, inputs, options."""
        import iscsitrace

        return {
            "schema": SCHEMA_VERSION,
            "tool": {"name": "iscsitrace", "version": iscsitrace.__version__},
            "input": self.inputs,
            "options": self.options,
        }


def hide_secret(text: str) -> str:
    """A ``key=value`` text without its value, when that is a secret (RFC 7143 section 12.1); any other as it is."""
    key, _, value = text.partition("=")
    return f"{key}=(hidden)" if value and key.strip() in _core.SECRET_KEYS else text


def load_meanwhile(module: str) -> None:
    """Begins to import a module: loading NumPy takes as long as the core takes for hundreds of MB, and can go on while
    the core reads.
    """
    # no daemon: an interpreter that ends while NumPy is being loaded crashes
    Thread(target=_load, args=(module,)).start()


def _load(module: str) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, get_native_id(), _LOADING_NICENESS)
    import_module(module)


def _check_range(name: str, number: int | None, least: int, most: int) -> None:
    if number is not None and not least <= number <= most:
        raise InputInvalid(f"{name} is {number}; it has to be from {least} to {most}")


def read(
    source: Source,
    *more: Source,
    capture_filter: str | None = None,
    packet_limit: int | None = None,
    time_from_ns: int | None = None,
    time_to_ns: int | None = None,
    time_is_relative: bool = False,
    tables: Iterable[str] = ("pdus",),
    progress: Callable[[int, int | None], None] | None = None,
) -> Trace:
    """Reads one or more captures, as one stream, into a :class:`Trace`.

    A source is a path (``"-"`` is standard input), the bytes of a capture, or a binary file object; several are the
    parts of a ring buffer in order of time. pcap and pcapng, plain or compressed by gzip, zstd or lz4, are told apart
    by content.

    ``capture_filter`` is a libpcap filter, for which a packet is as long as what was captured of it; ``packet_limit``
    stops after so many packets; ``time_from_ns`` and ``time_to_ns`` keep packets captured in that window, both ends
    included: absolute nanoseconds since 1970, or, with ``time_is_relative``, after the first packet. ``tables`` names
    the tables that grow with the traffic and are only filled when asked for (schema.ON_REQUEST); all others always are.
    ``progress(bytes_done, bytes_total)`` is called about ten times a second; the total is None when unknown.

    Raises CaptureUnreadable when a source is no capture or cannot be read, before any packet was, and InputInvalid for
    a table or limit that cannot be meant. What a file object or ``progress`` raises is let through. Damage within a
    capture, and a source that fails or is empty while others are read, raise nothing: they are counted in ``counters``.
    """
    if _core_missing is not None:
        raise InputInvalid(f"the compiled core is missing, build it with 'maturin develop': {_core_missing}")
    wanted = sorted(set(tables))
    for name in wanted:
        if name not in TABLES:
            raise InputInvalid(f"no table is called {name}; there are {', '.join(TABLES)}")
    _check_range("packet_limit", packet_limit, 1, _UINT64_MAX)
    _check_range("time_from_ns", time_from_ns, *_INT64)
    _check_range("time_to_ns", time_to_ns, *_INT64)
    if time_from_ns is not None and time_to_ns is not None and time_from_ns > time_to_ns:
        raise InputInvalid(f"time_from_ns ({time_from_ns}) is after time_to_ns ({time_to_ns})")
    try:
        (capture_filter or "").encode()
    except UnicodeEncodeError as error:
        raise InputInvalid(f"capture_filter is no text: {capture_filter!r}") from error
    options: dict[str, Any] = {
        "capture_filter": capture_filter,
        "packet_limit": packet_limit,
        "time_from_ns": time_from_ns,
        "time_to_ns": time_to_ns,
        "time_is_relative": time_is_relative,
        "tables": [name for name in wanted if name in ON_REQUEST],
    }
    sources = [os.fsdecode(each) if isinstance(each, os.PathLike) else each for each in (source, *more)]
    load_meanwhile("iscsitrace.tables.phases")
    try:
        core_pass = _core.read(sources, progress=progress, **options)
    except _core.CaptureError as error:
        raise CaptureUnreadable(str(error)) from error
    return Trace(core_pass, tuple(_core.OPERATIONS), options)
