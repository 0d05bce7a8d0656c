"""What is measured: facts of every session, connection and story, and of each of them its commands, path and waits.

It measures and does not judge.
"""

from typing import Final

NEEDED: Final = ("budget", "recoveries", "senders")
"""Tables filled on request without which no session can be measured."""
