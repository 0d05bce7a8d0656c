"""Events: what happened in a capture, as the rows of one table in order of time. One file for each family."""

from typing import Final

NEEDED: Final = ("budget", "recoveries", "retransmissions", "violations")
"""Tables filled on request that events are made from."""
