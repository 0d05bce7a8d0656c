"""Coverage, capture health and comparisons of ``check`` as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from iscsitrace.measure.distribution import percentiles
from iscsitrace.show import inputs
from iscsitrace.show.document import Block, Grid, Section, table
from iscsitrace.wording import cells
from iscsitrace.wording.amounts import percent

if TYPE_CHECKING:
    from iscsitrace.compare.agreement import Agreement
    from iscsitrace.compare.second_opinion import Comparison


def of_tshark(comparison: Comparison) -> dict[str, Any]:
    """The comparison with tshark, for JSON."""
    return {
        "tshark_version": comparison.tshark_version,
        "our_pdu_count": comparison.our_pdu_count,
        "tshark_pdu_count": comparison.tshark_pdu_count,
        "tshark_pdu_count_in_order_of_arrival": comparison.tshark_pdu_count_in_order_of_arrival,
        "matched_pdu_count": comparison.matched_pdu_count,
        "unexplained_count": len(comparison.unexplained),
        "explained": comparison.explained_counts(),
        "differences": [asdict(difference) for difference in comparison.differences],
    }


def sections(
    document: Mapping[str, Any], comparison: Comparison | None, agreement: Agreement | None
) -> Iterator[Section]:
    """The verdict, coverage and counters, then the comparison with tshark and that with the truth of the run."""
    yield Section(
        "", (document["verdict"], inputs.coverage(document["coverage"]), inputs.counters(document["counters"]))
    )
    if kernel := document.get("tcp_info"):
        yield _with_kernel(kernel)
    if comparison:
        yield _with_tshark(comparison)
    if agreement:
        yield _with_truth(agreement)


def _with_kernel(kernel: Mapping[str, Any]) -> Section:
    columns = (
        *("stream", "direction", "samples", "cwnd compared", "cwnd error, median", "p95", "busy, ms"),
        *("receive window, points", "send buffer, points", "retransmitted segments"),
    )
    rows = [
        (
            each["connection"],
            "to target" if each["to_target"] else "to initiator",
            each["sample_count"],
            each["compared_count"],
            _share(each["cwnd_error_median"]),
            _share(each["cwnd_error_p95"]),
            cells.milliseconds(each["busy_ns"]),
            _points(each["rwnd_limited_points"]),
            _points(each["sndbuf_limited_points"]),
            each["retransmitted_segments"],
        )
        for each in kernel["senders"]
    ]
    lines = [_clock(each) for each in kernel["clocks"]]
    if not rows:
        lines.append("no sample belongs to a connection of the capture: addresses or ports differ")
    return Section("Estimates against the kernel's TCP_INFO", (*lines, *_grids(columns, rows)))


def _clock(clock: Mapping[str, Any]) -> str:
    bounds = tuple("?" if each is None else cells.milliseconds(each) for each in (clock["low_ns"], clock["high_ns"]))
    found = f"{clock['file']}: offset to the clock of the capture {cells.milliseconds(clock['offset_ns'])} ms"
    if not clock["is_known"]:
        return f"{clock['file']}: assumed to be the clock of the capture; the samples do not bound the offset"
    share = percent(clock["contradicted_count"] / clock["bound_count"])
    return f"{found} (bounds {bounds[0]} to {bounds[1]} ms; {share} of {clock['bound_count']:,} bounds contradict it)"


def _share(value: float | None) -> str:
    return "" if value is None else percent(value)


def _points(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f}"


def _with_tshark(comparison: Comparison) -> Section:
    columns = ("frame", "stream", "difference", "explanation", "evidence")
    rows = [
        (each.frame, each.connection, each.text, each.explanation or "UNEXPLAINED", each.evidence)
        for each in comparison.differences
    ]
    line = (
        f"PDUs: iscsitrace {comparison.our_pdu_count:,}, tshark {comparison.tshark_pdu_count:,} "
        f"({comparison.tshark_pdu_count_in_order_of_arrival:,} without out-of-order reassembly), "
        f"equal {comparison.matched_pdu_count:,}; differences: {len(comparison.differences):,}, "
        f"unexplained: {len(comparison.unexplained):,}"
    )
    return Section(f"Comparison with {comparison.tshark_version}", (line, *_grids(columns, rows)))


def _with_truth(agreement: Agreement) -> Section:
    columns = ("stream", "subject", "difference")
    rows = [(each.connection, each.subject, each.text) for each in agreement.differences]
    line = (
        f"compared: {agreement.cycle_count:,} commands with {agreement.value_count:,} values, "
        f"{agreement.parameter_count:,} parameters, losses of {agreement.loss_count:,} senders; "
        f"differences: {len(agreement.differences):,}"
    )
    tap = f", captured at the {agreement.tap}" if agreement.tap else ""
    blocks: tuple[Block, ...] = (line, *_host_times(agreement.host_times_ns), *_grids(columns, rows))
    return Section(f"Comparison with the truth of the run{tap}", blocks)


def _host_times(times_ns: Sequence[int]) -> Iterator[str]:
    if times_ns:
        found = percentiles(np.asarray(times_ns))
        p50, p95, most = (cells.milliseconds(found[name]) for name in ("p50", "p95", "max"))
        of = f"n {found['n']:,}: p50 {p50}, p95 {p95}, max {most} ms"
        yield f"time in the initiator's host (latency of the program minus that of the command), {of}"


def _grids(columns: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> tuple[Grid, ...]:
    return (table(columns, rows),) if rows else ()
