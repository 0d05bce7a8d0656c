"""The measured session: its commands, its path, its negotiated parameters and its waits."""

from typing import Final

NEEDED: Final = ("budget", "recoveries", "senders")
"""Tables filled on request without which no session can be measured."""
