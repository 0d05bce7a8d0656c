"""The cost of a run: the efficiency on its line, and CPU time per byte."""

from __future__ import annotations

from typing import Any, Final

from iscsitrace.lab.settings import structs as settings
from iscsitrace.lab.settings.kinds import Value
from iscsitrace.wording import amounts

_BITS: Final = 8


def of_run(
    truth: dict[str, Any], values: dict[str, Value], throughput_bytes_per_s: float | None, captured_bytes: int
) -> dict[str, Any]:
    """The fields of a `PointResult` about cost. A foreign initiator reports no byte count; its capture shows it."""
    outcome = truth["results"]
    byte_count = outcome.get("bytes", captured_bytes)
    of_targets = [log["cpu"] for log in truth.get("target_logs", ()) if log]
    together = {name: sum(each[name] for each in of_targets) for name in of_targets[0]} if of_targets else None
    return {
        "efficiency": efficiency(values, throughput_bytes_per_s),
        "cpu_s_per_gigabyte": amounts.seconds_per_gigabyte(outcome.get("cpu"), byte_count),
        "target_cpu_s_per_gigabyte": amounts.seconds_per_gigabyte(together, byte_count),
    }


def efficiency(values: dict[str, Value], throughput_bytes_per_s: float | None) -> float | None:
    """Application throughput / rate of the line in the direction of the data; None without a rate."""
    is_read = str(values.get("workload.operation", "read")).endswith("read")
    rate = settings.link_of(values, "to-initiator" if is_read else "to-target").get("rate_bps")
    return None if not rate or throughput_bytes_per_s is None else throughput_bytes_per_s * _BITS / float(rate)
