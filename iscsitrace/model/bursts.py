"""The bursts of a write: unsolicited data with its command, and what R2Ts ask for (RFC 7143, section 13).

```text
  0        immediate     unsolicited        R2T          R2T     block
  |----------------|-----------------|-------------|-------------|
                      up to FirstBurstLength   each up to MaxBurstLength
```
"""

from __future__ import annotations

from iscsitrace.model.setting import Setting


def first_burst_bytes(setting: Setting) -> int:
    """Bytes sent with the command: immediate data (section 13.11) and, with InitialR2T=No, the rest of the first burst
    (section 13.10).
    """
    keys = setting.solicitation
    limit = min(setting.block_bytes, keys.first_burst_bytes)
    if not keys.is_initial_r2t:
        return limit
    return min(limit, keys.max_recv_data_segment_bytes) if keys.is_immediate_data else 0


def solicited_bytes(setting: Setting) -> tuple[int, ...]:
    """Bytes that each R2T requests, in order: MaxBurstLength (section 13.13), and the remainder in the last."""
    left, most = setting.block_bytes - first_burst_bytes(setting), setting.solicitation.max_burst_bytes
    whole, rest = divmod(left, most)
    return (most,) * whole + ((rest,) if rest else ())
