"""Jobs that several connections carry as parallel streams: which they are, and how even the streams are."""

from typing import Final

NEEDED: Final = ("budget", "recoveries", "senders", "retransmissions")
"""Tables filled on request that show the cause of a slow stream."""
