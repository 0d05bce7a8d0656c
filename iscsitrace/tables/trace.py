"""A trace: the result of one pass over one or more captures, as tables.

``read`` runs the pass in the compiled core. A trace never changes; its tables are made on first use. What users get is
``iscsitrace.api.Trace``, which can also be diagnosed, drawn and fitted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from threading import Thread, get_native_id
from typing import TYPE_CHECKING, Any, BinaryIO

from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables.schema import (
    CATEGORIES,
    DERIVED_TABLES,
    ON_REQUEST,
    SCHEMA_VERSION,
    TABLES,
    TAPPED_TABLES,
    WORDS,
)

if TYPE_CHECKING:
    from iscsitrace.tables.coverage import Coverage
    from iscsitrace.tables.kernel import Offset
    from iscsitrace.tables.table import Table

try:
    from iscsitrace import _core
except ImportError as error:  # a source tree without the compiled core; reading says so, all else works
    _core_missing: ImportError | None = error
else:
    _core_missing = None

_LOADING_NICENESS = 10
_WITH_KERNEL = ("senders", "budget")
_ONE_TAP = "table {} needs two or more captures of the same traffic, from different taps"
_INT64 = -(1 << 63), (1 << 63) - 1
_UINT64_MAX = (1 << 64) - 1

Source = str | os.PathLike[str] | os.PathLike[bytes] | bytes | BinaryIO


class TraceTables:
    """The tables of one pass: ``trace.cycles``, ``trace.pdus`` ... or ``trace.table("cycles")``."""

    if TYPE_CHECKING:
        # names of schema.TABLES, for type checkers; a test compares the two
        connections: Table
        sessions: Table
        parameters: Table
        icmp_errors: Table
        host_questions: Table
        logical_units: Table
        alua_states: Table
        pdus: Table
        cycles: Table
        rounds: Table
        write_starts: Table
        logins: Table
        task_management: Table
        nops: Table
        texts: Table
        logouts: Table
        rejects: Table
        asyncs: Table
        snacks: Table
        violations: Table
        segments: Table
        sacks: Table
        window: Table
        rtt: Table
        round_trips: Table
        retransmissions: Table
        recoveries: Table
        flights: Table
        senders: Table
        tcp_info: Table
        budget: Table
        counters: Table

    def __init__(self, core_pass: _core.Pass, options: dict[str, Any], tcp_info_file_count: int = 0) -> None:
        """Wraps the result of the core; use :func:`read`."""
        self._pass = core_pass
        self._tables: dict[str, Table] = {}
        self._estimated: dict[str, Table] = {}
        self._file_count = tcp_info_file_count
        self._words = CATEGORIES | WORDS
        self._read_again: Callable[[list[str]], TraceTables] | None = None
        self.options = options
        """The options of :func:`read`, part of the provenance of results."""

    def lacking(self, names: Iterable[str]) -> list[str]:
        """Those of these tables that were not requested."""
        return [name for name in dict.fromkeys(names) if name in ON_REQUEST and name not in self.options["tables"]]

    def with_tables(self, names: Iterable[str]) -> TraceTables:
        """A trace that has these tables: this one, or one of the same captures, which are read again.

        InputInvalid if a table is lacking and the source cannot be read again: standard input, a file object.
        """
        lacking = self.lacking(names)
        if not lacking:
            return self
        if self._read_again is None:
            raise InputInvalid(f"tables {', '.join(lacking)} are filled only on request: read(..., tables={lacking})")
        return self._read_again([*self.options["tables"], *lacking])

    def table(self, name: str) -> Table:
        """The table with this name. InputInvalid for an unknown name, or for a table not requested."""
        if name in self._tables:
            return self._tables[name]
        if name in TAPPED_TABLES:
            raise InputInvalid(_ONE_TAP.format(name))
        if name not in TABLES:
            raise unknown(name)
        if name in ON_REQUEST and name not in self.options["tables"]:
            raise InputInvalid(f"table {name} is filled only on request: read(..., tables=[{name!r}])")
        return self._stored(name)

    def kept(self, name: str, make: Callable[[Callable[[str], Table]], Table]) -> Table:
        """A table that is computed from others: made when it is first asked for, and then kept."""
        if name not in self._tables:
            self._tables[name] = make(self.table)
        return self._tables[name]

    def _stored(self, name: str) -> Table:
        """A table of the pass, also one that was filled for another, with the kernel's counters for estimates."""
        if name not in self._tables:
            found = self.estimated(name)
            if name in _WITH_KERNEL and len(self.estimated("tcp_info")):
                found = self._with_kernel(name)
            elif name == "tcp_info" and self.clocks:
                found = self._on_one_clock(found)
            self._tables[name] = found
        return self._tables[name]

    def estimated(self, name: str) -> Table:
        """A table of the pass as the packets alone have it, without TCP_INFO, and its times as they were sampled."""
        if name not in self._estimated:
            from iscsitrace.tables import phases
            from iscsitrace.tables.table import Table

            masks = self._pass.masks(name)
            derived = phases.DERIVED if name == "cycles" else None
            take, count = partial(self._pass.column, name), self._pass.row_count(name)
            self._estimated[name] = Table.of_pass(TABLES[name], take, count, masks, self._words, derived)
        return self._estimated[name]

    def _with_kernel(self, name: str) -> Table:
        from iscsitrace.tables import kernel
        from iscsitrace.tables.table import Table

        estimated, samples = self.estimated(name), self._stored("tcp_info")
        columns = {each: estimated.raw(each) for each in estimated}
        if name == "senders":
            columns = kernel.senders(columns, samples, self.connections)
        else:
            columns = kernel.budget(columns, samples, self.connections, self.cycles)
        return Table(TABLES[name], columns, None, self._words)

    def _on_one_clock(self, samples: Table) -> Table:
        """The samples of files with times of the capture's clock."""
        import numpy

        from iscsitrace.tables.table import Table

        columns = {each: samples.raw(each) for each in samples}
        offsets = [0, *(each.offset_ns for each in self.clocks)]
        columns["time_ns"] = columns["time_ns"] + numpy.array(offsets)[columns["source"]]
        order = numpy.lexsort((columns["time_ns"], columns["to_target"], columns["connection"]))
        columns = {each: values[order] for each, values in columns.items()}
        return Table(TABLES["tcp_info"], columns, None, self._words)

    @cached_property
    def clocks(self) -> tuple[Offset, ...]:
        """The clock of each file of samples of TCP_INFO against that of the capture."""
        from iscsitrace.tables.kernel import clock_offset

        samples = self.estimated("tcp_info") if self._file_count else None
        return tuple(
            clock_offset(
                samples.select(samples.raw("source") == number + 1), self.connections, self._stored("segments")
            )
            for number in range(self._file_count)
            if samples is not None
        )

    def row_count(self, name: str) -> int:
        """Number of rows of a table, which is not made for it unless it is of several taps."""
        if name in TAPPED_TABLES:
            return len(self.table(name))
        if name in _WITH_KERNEL and len(self.estimated("tcp_info")):
            return len(self._stored(name))
        made = self._tables.get(name, self._estimated.get(name))
        return self._pass.row_count(name) if made is None else len(made)

    @property
    def is_tapped(self) -> bool:
        """Whether captures of further taps are beside it, so that it has the tables schema.TAPPED_TABLES."""
        return False

    def tap_of(self, connection: int, *, to_target: bool) -> str:
        """What sentences call the tap that shows how the sender of a direction behaved: ``tap``, as there is one."""
        return "tap"

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
        """TCP packets among them."""
        return self._pass.tcp_packet_count

    @property
    def start_ns(self) -> int:
        """The zero of all times that are shown: the first packet of the captures, read or skipped; 0 without one."""
        return min((each["time_first_ns"] for each in self.inputs if each["time_first_ns"] is not None), default=0)

    @property
    def first_packet(self) -> tuple[int, int] | None:
        """Capture time (ns) and bytes on the wire of the first packet read; None where there is none."""
        return self._pass.first_packet

    @cached_property
    def coverage(self) -> list[Coverage]:
        """Shares of bytes and PDUs that were decoded, per connection and direction; the total last."""
        from iscsitrace.tables import coverage

        return coverage.measure(self.connections)

    @property
    def provenance(self) -> dict[str, Any]:
        """Provenance of the tables: schema number, tool and version, inputs, options."""
        return {
            "schema": SCHEMA_VERSION,
            "tool": {"name": "iscsitrace", "version": _core.VERSION},
            "input": self.inputs,
            "options": self.options,
        }


def unknown(name: str) -> InputInvalid:
    """The error for a table that is not declared."""
    return InputInvalid(f"unknown table {name}; there are {', '.join((*TABLES, *DERIVED_TABLES))}")


def property_of(name: str) -> property:
    """The table of that name as a property of a trace, documented with the schema's meaning of a row."""
    is_asked = name in ON_REQUEST or name in DERIVED_TABLES
    asked = f"; only when read with ``tables=[{name!r}]``" if is_asked else ""
    row = (TABLES | DERIVED_TABLES)[name].row
    return property(lambda trace: trace.table(name), doc=f"A row is {row}{asked}.")


for _name in TABLES:
    setattr(TraceTables, _name, property_of(_name))


def hide_secret(text: str) -> str:
    """A ``key=value`` text, without the value of a secret (RFC 7143 section 12.1)."""
    key, _, value = text.partition("=")
    return f"{key}=(hidden)" if value and key.strip() in _core.SECRET_KEYS else text


def load_meanwhile(*modules: str) -> Thread:
    """Imports modules in a thread, in parallel to the core: NumPy loads as long as the core reads hundreds of MB."""
    # no daemon thread: an interpreter that exits while NumPy is loading crashes
    loading = Thread(target=_load, args=modules)
    loading.start()
    return loading


def _load(*modules: str) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, get_native_id(), _LOADING_NICENESS)
    for module in modules:
        # what is not installed is said by who needs it
        with suppress(ImportError):
            import_module(module)


def named(sources: Iterable[Source]) -> list[str | bytes | BinaryIO]:
    """Sources as the core takes them: paths as text."""
    return [os.fsdecode(each) if isinstance(each, os.PathLike) else each for each in sources]


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
    tcp_info: Iterable[str | os.PathLike[str]] = (),
    progress: Callable[[int, int | None], None] | None = None,
) -> TraceTables:
    """Reads one or more captures, as one stream, into a :class:`Trace`.

    A source is a path (``"-"`` is standard input), the bytes of a capture, or a binary file object; several are the
    parts of a ring buffer in order of time. pcap or pcapng, plain or compressed by gzip, zstd or lz4, is recognized by
    content.

    ``capture_filter`` is a libpcap filter; it sees the captured length of a packet. ``packet_limit`` stops after that
    many packets. ``time_from_ns`` and ``time_to_ns`` keep packets captured in that window, both ends included: absolute
    nanoseconds since 1970, or, with ``time_is_relative``, after the first packet. ``tables`` names the tables that are
    filled only on request, because they grow with the traffic (schema.ON_REQUEST), and, for ``iscsitrace.read``, those
    that are computed from others (schema.DERIVED_TABLES); all others always are filled. ``tcp_info`` names files of
    samples of the kernel's TCP_INFO, of any of the hosts: lines of ``ss -tinOH`` behind a time in seconds since 1970.
    Captures may have samples, too. Where there are some, the tables ``senders`` and ``budget`` have the kernel's
    counters in place of estimates.
    ``progress(bytes_done, bytes_total)`` is called about ten times a second; the total is None when unknown.

    Raises CaptureUnreadable for a source that is no capture, or that fails before its first packet, and InputInvalid
    for an unknown table or an impossible limit. Exceptions of a file object or of ``progress`` propagate. Damage within
    a capture, and a source that fails or is empty beside others, raise nothing: ``counters`` counts them.
    """
    if _core_missing is not None:
        raise InputInvalid(f"the compiled core is missing, build it with 'maturin develop': {_core_missing}")
    wanted = set(tables)
    for name in sorted(wanted):
        if name in TAPPED_TABLES:
            raise InputInvalid(_ONE_TAP.format(name))
        if name not in TABLES:
            raise unknown(name)
    _check_range("packet_limit", packet_limit, 1, _UINT64_MAX)
    _check_range("time_from_ns", time_from_ns, *_INT64)
    _check_range("time_to_ns", time_to_ns, *_INT64)
    if time_from_ns is not None and time_to_ns is not None and time_from_ns > time_to_ns:
        raise InputInvalid(f"time_from_ns ({time_from_ns}) is after time_to_ns ({time_to_ns})")
    try:
        (capture_filter or "").encode()
    except UnicodeEncodeError as error:
        raise InputInvalid(f"capture_filter is not valid text: {capture_filter!r}") from error
    options: dict[str, Any] = {
        "capture_filter": capture_filter,
        "packet_limit": packet_limit,
        "time_from_ns": time_from_ns,
        "time_to_ns": time_to_ns,
        "time_is_relative": time_is_relative,
        "tables": [name for name in sorted(wanted) if name in ON_REQUEST],
    }
    files: list[tuple[str, str]] = []
    if sample_files := [*tcp_info]:
        from iscsitrace.tables.kernel import read_samples

        files = read_samples(sample_files)
        options["tcp_info"] = [name for name, _ in files]
    selection = {name: value for name, value in options.items() if name not in ("tables", "tcp_info")}
    filled = {*options["tables"]}
    if files or filled & {*_WITH_KERNEL}:
        filled |= {"tcp_info", "segments"} if files else {"tcp_info"}
    load_meanwhile("iscsitrace.tables.phases")
    try:
        core_pass = _core.read(
            named((source, *more)), progress=progress, tables=sorted(filled), tcp_info_files=files, **selection
        )
    except _core.CaptureError as error:
        raise CaptureUnreadable(str(error)) from error
    trace = TraceTables(core_pass, options, len(files))
    if all(_is_stored(each) for each in (source, *more)):
        named_files = tuple(name for name, _ in files)
        trace._read_again = lambda names: read(source, *more, **selection, tables=names, tcp_info=named_files)
    return trace


def _is_stored(source: Source) -> bool:
    """Whether it can be read again: not a pipe, nor a file object."""
    if isinstance(source, bytes):
        return True
    return isinstance(source, str | os.PathLike) and source != "-" and Path(os.fsdecode(source)).is_file()
