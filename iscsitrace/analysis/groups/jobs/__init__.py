"""Jobs that several connections carry together, as streams beside each other: which they are, and how even."""

from typing import Final

NEEDED: Final = ("budget", "recoveries", "senders", "retransmissions")
"""Tables filled on request that tell why a stream is slow."""
