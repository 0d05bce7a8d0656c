"""What limits a session, and which known problems it has: findings with evidence and advice, from tables."""

from typing import Final

from iscsitrace import measure

NEEDED: Final = (*measure.NEEDED, "write_starts", "retransmissions", "violations")
"""Tables on request that a diagnosis reads. The others confirm mirrors and the causes of slow streams, and tell who
breaks RFC 7143."""
