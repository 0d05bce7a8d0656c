"""Errors shown to the user: one line each, with the exit code of the command.

The name of the class shows who has to act. Nothing here prints or exits; cli/ does.
"""

from __future__ import annotations


class IscsitraceError(Exception):
    """Base of all errors of the package; ``str()`` is the one line to print."""

    exit_code = 2


class CaptureUnreadable(IscsitraceError):
    """The input is no capture, or cannot be opened or read."""


class InputInvalid(IscsitraceError):
    """An invalid argument: an unknown table, a row of ``cycles`` that does not exist, a bad capture filter."""


class MemoryShort(IscsitraceError):
    """More memory is needed than a command may use."""


class CaptureRefused(IscsitraceError):
    """A capture that cannot start or continue: no such interface, a bad filter, an output file that fails."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        """The core's word for it: no_such_interface, interface, filter, output, settings, stopped."""


class PermissionLacking(CaptureRefused):
    """This user has no permission to capture on an interface."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "permission")


class OutputExists(IscsitraceError):
    """An output file exists already; nothing was written."""


class ExtraMissing(IscsitraceError):
    """An optional Python package is not installed."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'iscsitrace[{extra}]'")


class ToolMissing(IscsitraceError):
    """An external program is not installed, or failed."""


class TrafficImpossible(IscsitraceError):
    """Traffic that cannot be generated: invalid settings, an unknown host, a port in use."""
