"""The sidecar of a capture: what is known of single frames, for Wireshark's plugin to show. No table of a trace."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Table, column

SIDECAR: Final = Table(
    "sidecar",
    "one frame of which something is known, in ascending order",
    (
        column("frame", "uint64", "the frame"),
        column("budget_owner", "category:budget_part", "who owned the time that ends with it: most of that since the packet before it, of its connection and either direction", source="method 4"),
        column("cwnd_estimate_bytes", "int64", "the congestion window of the sender whose data it carries or acknowledges, where the sending shows it; of both senders the larger", "bytes", null=True, source="method 5"),
        column("loss_class", "category:retransmission_cause", "what made the sender send it again", source="method 5"),
    ),
)  # fmt: skip
