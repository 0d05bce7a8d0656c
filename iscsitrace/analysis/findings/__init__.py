"""What limits a session, and which known diseases it has: findings with evidence and advice, from tables."""

from typing import Final

from iscsitrace.analysis.session import OF_SUBJECTS

NEEDED: Final = (*OF_SUBJECTS, "write_starts", "retransmissions")
"""Tables filled on request that an examined trace has to have; the others make mirrors, and causes of streams, sure."""
