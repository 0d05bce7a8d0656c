"""iscsitrace: analysis of iSCSI packet captures.

``iscsitrace.read("capture.pcapng")`` returns a :class:`Trace`; everything else is a function of its tables.
Names are imported on first use, so ``import iscsitrace`` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iscsitrace.errors import CaptureUnreadable, IscsitraceError
    from iscsitrace.tables.table import Table
    from iscsitrace.tables.trace import Trace, read, read_taps

__all__ = ["CaptureUnreadable", "IscsitraceError", "Table", "Trace", "__version__", "read", "read_taps"]

__version__: str

_HOMES = {
    "CaptureUnreadable": "iscsitrace.errors",
    "IscsitraceError": "iscsitrace.errors",
    "Table": "iscsitrace.tables.table",
    "Trace": "iscsitrace.tables.trace",
    "read": "iscsitrace.tables.trace",
    "read_taps": "iscsitrace.tables.trace",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from iscsitrace._core import VERSION

        return VERSION
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
