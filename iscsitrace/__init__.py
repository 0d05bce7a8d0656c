"""iscsitrace: analysis of iSCSI packet captures.

``iscsitrace.read("capture.pcapng")`` returns a :class:`Trace`; everything else is a function of its tables.
Names are imported on first use, so ``import iscsitrace`` is cheap; __init__.pyi has them for type checkers.
"""

from __future__ import annotations

from importlib import import_module

__all__ = ["CaptureUnreadable", "IscsitraceError", "Table", "Trace", "__version__", "read", "read_taps"]

_HOMES = {
    "CaptureUnreadable": "iscsitrace.errors",
    "IscsitraceError": "iscsitrace.errors",
    "Table": "iscsitrace.tables.table",
    "Trace": "iscsitrace.api",
    "read": "iscsitrace.api",
    "read_taps": "iscsitrace.tapped",
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
