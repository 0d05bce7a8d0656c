"""A session as it was measured: what was asked for, over which path, with which waits."""

from typing import Final

OF_SUBJECTS: Final = ("budget", "recoveries", "senders")
"""Tables filled on request without which nothing can be examined."""
