"""What limits a session, and which known diseases it has: findings with evidence and advice, from tables."""

from typing import Final

NEEDED: Final = ("budget", "recoveries", "senders")
"""Tables filled on request that an examined trace has to have."""
