"""What users of the package get: captures read into a trace that can be diagnosed, drawn and fitted.

Above all rooms that it uses. The commands and the rooms below read a plain trace of tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from iscsitrace.tables import trace as passes
from iscsitrace.tables.schema import DERIVED_TABLES
from iscsitrace.tables.trace import Source, property_of

if TYPE_CHECKING:
    from iscsitrace.notebook.results import Diagnosed, Fitted, Picture
    from iscsitrace.tables.table import Table

_Shown = TypeVar("_Shown", bound="Shown")


class Shown(passes.Trace):
    """What a trace shows beside the tables of its pass: tables computed from them, a diagnosis, plots, a fit."""

    if TYPE_CHECKING:
        # names of schema.DERIVED_TABLES, for type checkers; a test compares the two
        events: Table
        mirrored_writes: Table
        mirror_legs: Table
        streams: Table

    @classmethod
    def of(cls: type[_Shown], found: passes.Trace) -> _Shown:
        """The same trace, with more methods: tables leave the core once, so both share them."""
        made = cls.__new__(cls)
        made.__dict__.update(found.__dict__)
        return made

    def __repr__(self) -> str:
        from iscsitrace.notebook import methods

        return methods.text(self)

    def _repr_html_(self) -> str:
        from iscsitrace.notebook import methods

        return methods.page(self)

    def table(self, name: str) -> Table:
        """The table with this name. InputInvalid for an unknown name, or for a table not requested."""
        if name not in DERIVED_TABLES:
            return super().table(name)
        from iscsitrace.analysis.groups import derived

        return derived.table(self, name)

    def row_count(self, name: str) -> int:
        """Number of rows of a table of the pass, which is not made for it, or of a computed one."""
        return len(self.table(name)) if name in DERIVED_TABLES else super().row_count(name)

    def lacking(self, names: Iterable[str]) -> list[str]:
        """Those of these tables, or of what they are computed from, that were not requested."""
        return super().lacking(of_pass(names))

    def with_tables(self: _Shown, names: Iterable[str]) -> _Shown:
        """A trace that has these tables: this one, or one of the same captures, which are read again.

        InputInvalid if a table is lacking and the source cannot be read again: standard input, a file object.
        """
        found = super().with_tables(of_pass(names))
        return self if found is self else type(self).of(found)

    def diagnose(self, sessions: Sequence[int] = ()) -> Diagnosed:
        """What limits each session, and the problems found, as `iscsitrace diagnose` shows them; ``sessions`` in full.

        Tables that are lacking are read from the captures again.
        """
        from iscsitrace.notebook import methods

        return methods.diagnose(self, sessions)

    def plot(
        self,
        kind: str,
        *,
        session: int | None = None,
        connection: int | None = None,
        cycles: range | None = None,
        time_from_ns: int | None = None,
        time_to_ns: int | None = None,
        to_target: bool | None = None,
    ) -> Picture:
        """A plot, as `iscsitrace plot KIND` draws it; options zoom, with absolute times. docs/plots.md shows the kinds.

        Tables that are lacking are read from the captures again. InputInvalid where there is nothing to draw.
        """
        from iscsitrace.notebook import methods

        zoom = {"session": session, "connection": connection, "cycles": cycles, "to_target": to_target}
        times = {"time_from_ns": time_from_ns, "time_to_ns": time_to_ns}
        return methods.plot(self, kind, **zoom, **times)

    def fit(self, operation: str | None = None) -> Fitted:
        """The model fitted to the steady cycles, as `iscsitrace model fit` does for one capture: ``read`` or ``write``.

        Without an operation it is the one that moved more bytes. InputInvalid where there is nothing to fit.
        """
        from iscsitrace.notebook import methods

        return methods.fit(self, operation)


for _name in DERIVED_TABLES:
    setattr(Shown, _name, property_of(_name))


class Trace(Shown):
    """The tables of one pass: ``trace.cycles``, ``trace.pdus`` ... or ``trace.table("cycles")``; and what they show."""


def of_pass(names: Iterable[str]) -> list[str]:
    """The tables of the pass that these tables are, or are computed from."""
    named = list(names)
    if DERIVED_TABLES.keys().isdisjoint(named):
        return named
    from iscsitrace.analysis.groups import derived

    return derived.of_pass(named)


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
) -> Trace:
    """Reads one or more captures, as one stream, into a :class:`Trace`.

    A source is a path (``"-"`` is standard input), the bytes of a capture, or a binary file object; several are the
    parts of a ring buffer in order of time. pcap or pcapng, plain or compressed by gzip, zstd or lz4, is recognized by
    content.

    ``capture_filter`` is a libpcap filter; it sees the captured length of a packet. ``packet_limit`` stops after that
    many packets. ``time_from_ns`` and ``time_to_ns`` keep packets captured in that window, both ends included: absolute
    nanoseconds since 1970, or, with ``time_is_relative``, after the first packet. ``tables`` names the tables that are
    filled only on request, because they grow with the traffic (schema.ON_REQUEST), and those that are computed from
    others (schema.DERIVED_TABLES); all others always are filled. ``tcp_info`` names files of samples of the kernel's
    TCP_INFO, of any of the hosts: lines of ``ss -tinOH`` behind a time in seconds since 1970. Captures may have
    samples, too. Where there are some, the tables ``senders`` and ``budget`` have the kernel's counters in place of
    estimates.
    ``progress(bytes_done, bytes_total)`` is called about ten times a second; the total is None when unknown.

    Raises CaptureUnreadable for a source that is no capture, or that fails before its first packet, and InputInvalid
    for an unknown table or an impossible limit. Exceptions of a file object or of ``progress`` propagate. Damage within
    a capture, and a source that fails or is empty beside others, raise nothing: ``counters`` counts them.
    """
    found = passes.read(
        source,
        *more,
        capture_filter=capture_filter,
        packet_limit=packet_limit,
        time_from_ns=time_from_ns,
        time_to_ns=time_to_ns,
        time_is_relative=time_is_relative,
        tables=of_pass(tables),
        tcp_info=tcp_info,
        progress=progress,
    )
    return Trace.of(found)
