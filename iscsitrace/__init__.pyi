# The names of the package for type checkers; __init__.py imports each on first use.
from iscsitrace.api import Trace, read
from iscsitrace.errors import CaptureUnreadable, IscsitraceError
from iscsitrace.tables.table import Table
from iscsitrace.tapped import read_taps

__all__ = ["CaptureUnreadable", "IscsitraceError", "Table", "Trace", "__version__", "read", "read_taps"]

__version__: str
