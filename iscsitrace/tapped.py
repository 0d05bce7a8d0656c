"""Captures of several taps, as users read them; beside ``iscsitrace.api``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from iscsitrace.api import Trace, of_pass
from iscsitrace.tables.trace import Source
from iscsitrace.taps import reading


class TappedTrace(Trace, reading.TappedTables):
    """The trace of the tap that is nearest to the initiator; it also has the tables ``legs`` and ``taps``."""


def read_taps(
    taps: Mapping[str, Source | Sequence[Source]],
    *,
    are_synchronised: bool = False,
    tables: Iterable[str] = (),
    **options: Any,
) -> TappedTrace:
    """Reads captures of the same traffic at two to eight taps, into the trace of the tap nearest to the initiator.

    ``taps`` has the captures of each tap by its name, in any order: which is nearer to the initiator is seen from the
    packets. ``are_synchronised`` trusts the clocks. ``tables`` and other options are those of :func:`read`. The trace
    also has the tables ``legs`` and ``taps``. Raises what :func:`read` raises, and InputInvalid if the captures do not
    show the same traffic at different taps.
    """
    found = reading.read_taps(taps, are_synchronised=are_synchronised, tables=of_pass(tables), **options)
    return TappedTrace.of(found)
