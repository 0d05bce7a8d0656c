"""The errors that a person sees: one line each, and the exit code that the command gives for it.

The name says who has to act. Nothing here prints or exits; cli/ does.
"""

from __future__ import annotations


class IscsitraceError(Exception):
    """Base of all errors of the package; ``str()`` is one line for a person."""

    exit_code = 2


class CaptureUnreadable(IscsitraceError):
    """The input is no capture, or could not be opened or read at all."""


class InputInvalid(IscsitraceError):
    """An argument that cannot be meant: an unknown table, a cycle that does not exist, a bad capture filter."""


class CaptureRefused(IscsitraceError):
    """An interface that cannot be captured on as asked: there is none of that name, a bad filter, a file that fails."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        """In one word, as the core has it: no_such_interface, interface, filter, output, settings, stopped."""


class PermissionLacking(CaptureRefused):
    """This user may not capture on an interface."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "permission")


class OutputExists(IscsitraceError):
    """A file that would be overwritten; nothing was written."""


class ExtraMissing(IscsitraceError):
    """A Python package that only some functions need is not installed."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'iscsitrace[{extra}]'")


class ToolMissing(IscsitraceError):
    """A program of another project is not installed, or did not do its work."""


class TrafficImpossible(IscsitraceError):
    """Traffic that cannot be made as asked: settings that make no sense, an unknown host, a port that is taken."""
