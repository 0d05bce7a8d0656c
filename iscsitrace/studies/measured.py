"""Measurements of a run: throughput from its truth, time breakdown and k from the capture at the initiator.

Both cover the time after the warm-up. Nothing is run here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import iscsitrace
from iscsitrace.errors import InputInvalid
from iscsitrace.fit import regression as fit
from iscsitrace.fit import steady
from iscsitrace.lab.settings.kinds import Value
from iscsitrace.lab.settings.structs import call_bytes, copy_count, is_tuned, queue_depth
from iscsitrace.measure import budget, busy
from iscsitrace.studies import from_truth
from iscsitrace.studies.points import WarmUp
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables

SOCKET: Final = "socket"
"""The mode of a plain TCP transfer: it has no commands, and its second half counts as steady state."""
DELAY_LEAST_NS: Final = 50_000
"""Below this delay k is not reported: the hosts' time is of the same size."""
_TABLES: Final = tuple(dict.fromkeys((*steady.NEEDED, "budget")))


@dataclass(frozen=True)
class Stretch:
    """The part of a run that is measured."""

    start_ns: int
    """The end of the warm-up."""
    end_ns: int
    call_count: int
    byte_count: int

    @property
    def throughput_bytes_per_s(self) -> float:
        """Throughput of its calls."""
        return self.byte_count * 1e9 / (self.end_ns - self.start_ns)


def of_run(truth: dict[str, Any], capture: Path | None, values: dict[str, Value], warm_up: WarmUp) -> dict[str, Any]:
    """The fields of a `PointResult` that are measured; InputInvalid for a run shorter than its warm-up."""
    results = truth["results"]
    if "mode" not in results:
        return _of_others(results, capture, warm_up)
    if results["mode"] == SOCKET:
        return {
            "throughput_bytes_per_s": results["bytes"] * 1e9 / results["elapsed_ns"],
            "steady_throughput_bytes_per_s": results["steady_bytes_per_s"],
        }
    is_timed = bool(warm_up.seconds) and "workload.seconds" in values
    stretch = (
        timed_stretch(truth, values, warm_up.seconds) if is_timed else steady_stretch(truth, values, warm_up.calls)
    )
    found: dict[str, Any] = {
        "throughput_bytes_per_s": results["bytes"] * 1e9 / results["elapsed_ns"],
        "steady_throughput_bytes_per_s": stretch.throughput_bytes_per_s,
        "call_count": stretch.call_count,
        **from_truth.of_connections(truth, values, stretch.start_ns, stretch.end_ns),
        **from_truth.of_streams(truth, values, stretch.start_ns, stretch.end_ns, is_timed=is_timed),
    }
    if not is_tuned(values):
        found["period_ns"] = (stretch.end_ns - stretch.start_ns) / stretch.call_count * queue_depth(values)
    return found if capture is None else found | _captured(capture, stretch)


def _of_others(results: dict[str, Any], capture: Path | None, warm_up: WarmUp) -> dict[str, Any]:
    """The same for a foreign initiator, which keeps no truth: from its capture, and the throughput that it reports."""
    found: dict[str, Any] = {"throughput_bytes_per_s": float(results["throughput_bytes_per_s"])}
    if capture is None:
        return found | {"steady_throughput_bytes_per_s": found["throughput_bytes_per_s"]}
    trace = iscsitrace.read(capture, tables=_TABLES)
    stretch, byte_count = captured_stretch(trace.cycles, warm_up.calls, results.get("started_ns", 0))
    found |= {
        "steady_throughput_bytes_per_s": stretch.throughput_bytes_per_s,
        "period_ns": (stretch.end_ns - stretch.start_ns) / stretch.call_count,
        "call_count": stretch.call_count,
    }
    return found | _read(trace, capture, stretch) | {"byte_count": byte_count}


def captured_stretch(cycles: Table, warm_up_calls: int, started_ns: int = 0) -> tuple[Stretch, int]:
    """The measured stretch of a capture, with one command a call; and the bytes of all commands with status GOOD.

    Commands that ended before ``started_ns`` are the kernel's, which looks for partitions.
    """
    ended = sorted(
        (row["status_ns"], row["bytes"])
        for row in cycles.rows()
        if row["operation"] in {"read", "write"} and row["status"] == 0 and (row["status_ns"] or 0) > started_ns
    )
    if len(ended) <= warm_up_calls + 1:
        raise InputInvalid(f"{len(ended)} commands are too few: the warm-up alone takes {warm_up_calls}")
    # the stretch starts at the end of a command
    first = max(warm_up_calls, 1)
    counted = ended[first:]
    stretch = Stretch(ended[first - 1][0], counted[-1][0], len(counted), sum(size for _, size in counted))
    return stretch, sum(size for _, size in ended)


def timed_stretch(truth: dict[str, Any], values: dict[str, Value], warm_up_s: float) -> Stretch:
    """From the end of the warm-up to the end of the duration, after which no call is started."""
    begun_ns = int(truth["results"]["started_ns"])
    start_ns = begun_ns + round(warm_up_s * 1e9)
    end_ns = begun_ns + round(float(str(values["workload.seconds"])) * 1e9)
    ended = _ended(truth)
    copies = copy_count(values)
    counted = ended[(ended[:, 0] > start_ns) & (ended[:, 0] <= end_ns)]
    calls = len(counted) // (_commands_per_call(values) * copies)
    if end_ns <= start_ns or not calls:
        raise InputInvalid(f"{end_ns - begun_ns} ns are too short: the warm-up alone takes {start_ns - begun_ns} ns")
    return Stretch(start_ns, end_ns, calls, int(counted[:, 1].sum()) // copies)


def _ended(truth: dict[str, Any]) -> NDArray[np.int64]:
    """When each command of the workload completed, and its bytes; in order of time."""
    ended = from_truth.commands(truth)[:, [from_truth.ENDED, from_truth.SIZE]]
    return ended[np.argsort(ended[:, 0], kind="stable")]


def steady_stretch(truth: dict[str, Any], values: dict[str, Value], warm_up_calls: int) -> Stretch:
    """From the end of the warm-up to the end of the last call."""
    ended = _ended(truth)
    copies = copy_count(values)
    per_call = _commands_per_call(values) * copies
    calls = len(ended) // per_call
    if calls <= warm_up_calls:
        raise InputInvalid(f"{calls} system calls are too few: the warm-up alone takes {warm_up_calls}")
    first = warm_up_calls * per_call
    start_ns = int(ended[first - 1, 0]) if first else int(truth["results"]["started_ns"])
    counted: NDArray[np.int64] = ended[first : calls * per_call]
    return Stretch(start_ns, int(counted[-1, 0]), calls - warm_up_calls, int(counted[:, 1].sum()) // copies)


def _commands_per_call(values: dict[str, Value]) -> int:
    most = values.get("workload.max-transfer") or values.get("workload.block-size") or call_bytes(values)
    return -(-call_bytes(values) // int(str(most)))


def _session_of(cycles: Table) -> int:
    """The first session with commands: one for discovery has none."""
    return min((row["session"] for row in cycles.rows(("session",)) if row["session"] is not None), default=0)


def _captured(capture: Path, stretch: Stretch) -> dict[str, Any]:
    return _read(iscsitrace.read(capture, tables=_TABLES), capture, stretch)


def _read(trace: TraceTables, capture: Path, stretch: Stretch) -> dict[str, Any]:
    found: dict[str, Any] = {"packets_per_command": packets_per_command(trace.cycles, stretch)}
    rows = busy.rows_of(budget.rows_of(trace.budget, session=_session_of(trace.cycles)))
    if len(rows):
        span = np.array([[stretch.start_ns], [stretch.end_ns]], dtype=np.int64)
        (parts_ns,) = budget.of_cycles(rows, *span)
        total_ns = int(parts_ns.sum())
        parts = dict(zip(budget.PARTS, (int(ns) for ns in parts_ns), strict=True))
        whole = budget.Budget(parts)
        found |= {
            "idle_fraction": whole.idle_fraction,
            "limiter": whole.limiter if total_ns else None,
            "parts_ns": {part: ns / stretch.call_count for part, ns in parts.items()},
        }
    points = steady.points(trace.table, capture.parent.name)
    if points:
        fitted = fit.fit(points)
        found |= {
            "steady": tuple(points),
            "k": fitted.k.value if fitted.d_ns.value >= DELAY_LEAST_NS else None,
            "d_ns": fitted.d_ns.value,
            "s_ns": fitted.s_ns.value,
            "c_bytes_per_s": fitted.c_bytes_per_s and fitted.c_bytes_per_s.value,
        }
    return found


def packets_per_command(cycles: Table, stretch: Stretch) -> float | None:
    """Mean packets with data of the reads and writes that ended in a stretch; None where none did."""
    ended_ns = cycles["status_ns"]
    is_counted = (ended_ns > stretch.start_ns) & (ended_ns <= stretch.end_ns)
    is_counted &= np.isin(cycles["operation"], ("read", "write"))
    counts = cycles[is_counted]["data_packet_count"]
    return float(counts.mean()) if len(counts) else None
