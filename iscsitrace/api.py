"""What users of the package get: captures read into a trace that can be diagnosed, drawn and fitted.

It imports the other packages, and none of them imports it: they read a plain trace of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from iscsitrace.tables import trace as passes
from iscsitrace.tables.schema import DERIVED_TABLES
from iscsitrace.tables.trace import property_of

if TYPE_CHECKING:
    from iscsitrace.notebook.methods import Diagnosed, Fitted, Picture
    from iscsitrace.tables.table import Table

_Trace = TypeVar("_Trace", bound="Trace")
_Options = ParamSpec("_Options")


class Trace(passes.TraceTables):
    """The tables of one pass: ``trace.cycles``, ``trace.pdus`` ... or ``trace.table("cycles")``; what is computed from
    them; a diagnosis, plots and a fit.
    """

    if TYPE_CHECKING:
        # names of schema.DERIVED_TABLES, for type checkers; a test compares the two
        events: Table
        mirrored_writes: Table
        mirror_legs: Table
        streams: Table

    @classmethod
    def of(cls: type[_Trace], found: passes.TraceTables) -> _Trace:
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
        from iscsitrace.events import derived

        return derived.table(self, name)

    def row_count(self, name: str) -> int:
        """Number of rows of a table of the pass, which is not made for it, or of a computed one."""
        return len(self.table(name)) if name in DERIVED_TABLES else super().row_count(name)

    def lacking(self, names: Iterable[str]) -> list[str]:
        """Those of these tables, or of what they are computed from, that were not requested."""
        return super().lacking(of_pass(names))

    def with_tables(self: _Trace, names: Iterable[str]) -> _Trace:
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
        by: str | None = None,
    ) -> Picture:
        """A plot, as `iscsitrace plot KIND` draws it; options zoom, with absolute times.

        `iscsitrace docs plots` shows the kinds.

        ``by`` is what ``latency`` and ``time_breakdown`` tell commands apart by: ``lun``, ``operation`` or ``session``.
        Tables that are lacking are read from the captures again. InputInvalid where there is nothing to draw.
        """
        from iscsitrace.notebook import methods

        zoom = {"session": session, "connection": connection, "cycles": cycles, "to_target": to_target}
        times = {"time_from_ns": time_from_ns, "time_to_ns": time_to_ns}
        return methods.plot(self, kind, by, **zoom, **times)

    def fit(self, operation: str | None = None) -> Fitted:
        """The model fitted to the steady cycles, as `iscsitrace model fit` does for one capture: ``read`` or ``write``.

        Without an operation it is the one that moved more bytes. InputInvalid where there is nothing to fit.
        """
        from iscsitrace.notebook import methods

        return methods.fit(self, operation)


for _name in DERIVED_TABLES:
    setattr(Trace, _name, property_of(_name))


def of_pass(names: Iterable[str]) -> list[str]:
    """The tables of the pass that these tables are, or are computed from."""
    named = list(names)
    if DERIVED_TABLES.keys().isdisjoint(named):
        return named
    from iscsitrace.events import derived

    return derived.of_pass(named)


def _shown(read_pass: Callable[_Options, passes.TraceTables]) -> Callable[_Options, Trace]:
    """The same, of tables that are computed from others too, and with the methods of :class:`Trace`."""

    @wraps(read_pass)
    def read(*sources: _Options.args, **options: _Options.kwargs) -> Trace:
        if "tables" in options:
            options["tables"] = of_pass(cast("Iterable[str]", options["tables"]))
        return Trace.of(read_pass(*sources, **options))

    return read


read = _shown(passes.read)
