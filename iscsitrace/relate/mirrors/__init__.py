"""Mirrors: sessions of one host that carry the same writes, as a software RAID1 over iSCSI targets does."""

from typing import Final

RECOGNISING: Final = ("write_starts",)
"""Tables filled on request that make recognition sure; without them a mirror may be a stripe."""
NEEDED: Final = (*RECOGNISING, "budget", "senders")
"""Tables filled on request that an account of mirrors and their causes needs."""
