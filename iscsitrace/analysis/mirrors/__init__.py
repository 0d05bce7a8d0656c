"""Mirrors: sessions of one host that carry the same writes, as those of a software RAID1 over iSCSI targets do."""
