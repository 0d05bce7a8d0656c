"""How the writes of a session get their data across: the negotiated parameters, as far as they were used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.model.setting import LOGIN_KEYS, Solicitation
from iscsitrace.tables.table import Table

_NAMES: Final = {key: name for name, key in LOGIN_KEYS.items()}
_LAST: Final = np.iinfo(np.uint32).max


def measure(parameters: Table, writes: Table, rounds: Table) -> tuple[Solicitation, frozenset[str]]:
    """The parameters that decide the R2T rounds, and the names of those that are assumed.

    ``writes`` and ``rounds`` are the session's complete writes and its R2Ts. Parameters count as they were used
    (docs/method.md, section 8): InitialR2T=No of an initiator that sends nothing unsolicited counts as Yes, and a
    target whose R2Ts ask for less than MaxBurstLength counts with these bursts. *Why:* usage decides how many RTTs a
    write takes. A session without writes has its parameters as negotiated.
    """
    negotiated = _negotiated(parameters)
    found = replace(Solicitation(), **negotiated)
    if len(writes):
        found = _as_used(found, negotiated, writes, rounds)
    # where InitialR2T=Yes and ImmediateData=No FirstBurstLength is not negotiated (RFC 7143, section 13.14)
    return found, frozenset() if "first_burst_bytes" in negotiated else frozenset({"first_burst_bytes"})


def _negotiated(parameters: Table) -> dict[str, Any]:
    """Values by field of Solicitation, from the first connection that logged in: the leading one, on which the
    parameters of the whole session are negotiated (RFC 7143, section 13).
    """
    connections = parameters.raw("connection")
    wanted = parameters.select(parameters.each(_is_of_writes) & (connections == connections.min(initial=_LAST)))
    rows = wanted.rows(("key", "effective_target"))
    texts = {_NAMES[row["key"]]: row["effective_target"] for row in rows if row["effective_target"]}
    return {name: text == "Yes" if name.startswith("is_") else int(text, 0) for name, text in texts.items()}


def _is_of_writes(parameters: Table) -> NDArray[np.bool_]:
    return np.fromiter((key in _NAMES for key in parameters.raw("key").tolist()), np.bool_, len(parameters))


def _as_used(found: Solicitation, negotiated: dict[str, Any], writes: Table, rounds: Table) -> Solicitation:
    block_bytes = int(writes.raw("bytes").max())
    immediate, unsolicited = (
        int(writes.raw(name).astype(np.int64).max()) for name in ("immediate_bytes", "unsolicited_bytes")
    )
    burst = int(rounds.raw("desired_data_transfer_length").max(initial=0))

    def limit(name: str, seen: int) -> int:
        """As negotiated; else as seen, if R2Ts requested the rest, and else at least the default."""
        default: int = getattr(found, name)
        return default if name in negotiated or not seen else seen if burst else max(seen, default)

    first_burst = limit("first_burst_bytes", immediate + unsolicited)
    largest = found.max_burst_bytes
    is_full = "max_burst_bytes" in negotiated and burst >= min(largest, block_bytes - immediate - unsolicited)
    # everything that may go unsolicited went with the command
    is_all_immediate = negotiated.get("is_initial_r2t") is False and immediate >= min(first_burst, block_bytes)
    return replace(
        found,
        is_initial_r2t=not unsolicited and not is_all_immediate,
        is_immediate_data=immediate > 0,
        first_burst_bytes=first_burst,
        max_burst_bytes=burst if burst and not is_full else largest,
        max_recv_data_segment_bytes=limit("max_recv_data_segment_bytes", immediate),
    )
