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
