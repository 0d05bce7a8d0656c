"""The sidecar of a capture: results for single frames, which Wireshark's plugin shows. It is no table of a trace."""

from __future__ import annotations

from typing import Final

from iscsitrace.tables.schema.declaration import Declaration, column

SIDECAR: Final = Declaration(
    "sidecar",
    "one frame with results, in ascending order",
    (
        column("frame", "uint64", "the frame"),
        column("budget_owner", "category:budget_part", "part of the time breakdown that the time before it is attributed to: the largest since the previous packet of its connection, in either direction", source="method 4"),
        column("cwnd_estimate_bytes", "int64", "estimated congestion window of the sender whose data it carries or acknowledges; the larger if both apply", "bytes", null=True, source="method 5"),
        column("loss_class", "category:retransmission_cause", "cause of the retransmission", source="method 5"),
        column("violation", "str", "the violations of RFC 7143 that it shows, each with the name of its rule", null=True),
    ),
)  # fmt: skip
