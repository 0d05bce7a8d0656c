"""A report as plain lines, for a pipe: one for all traffic, and one for each session."""

from __future__ import annotations

from iscsitrace.watch.columns import clock, count, joined, latency, milliseconds, rate, session_names, size
from iscsitrace.watch.figures import WatchLine, hang_sentence
from iscsitrace.watch.watcher import Report
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.cells import percent
from iscsitrace.wording.parts import BY_NAME


def lines_of(report: Report) -> list[str]:
    """The lines of an interval."""
    load, pace = report.whole, report.pace
    lines = [
        f"{clock(report.to_ns)} all: read {rate(load.read_bytes_per_s)} MB/s, "
        f"write {rate(load.write_bytes_per_s)} MB/s, "
        f"{count(load.iops)} IOPS, {latency(load.latency_ns)}, {wording.count(report.new_packets, 'packet')}"
    ]
    if pace.lag_ns > 10**9 or pace.is_reduced or pace.left_out_packets:
        reduced = ", no time breakdown, RTT and owin" if pace.is_reduced else ""
        left_out = f", {pace.left_out_packets} packets skipped so far" if pace.left_out_packets else ""
        lines.append(f"  cannot keep up: lag {pace.lag_ns / 1e9:.1f} s{reduced}{left_out}")
    if report.dropped:
        lines.append(f"  the capture dropped {report.dropped} packets so far")
    names = session_names(report.sessions, report.connections) if len(report.sessions) > 1 else {}
    listed = report.listed[0]
    for line in listed:
        name = f" ({joined(names[line.number])})" if names else ""
        lines.append(f"  session {line.number}{name}: {_session(line, report.to_ns - report.from_ns)}")
    if more := len(report.present[0]) - len(listed):
        lines.append(f"  {wording.count(more, 'more session')}, less busy than these")
    hanging = [line for line in listed if line.hang.is_shown]
    lines += [f"  {hang_sentence(line.number, line.hang, line.open_task_count)}" for line in hanging]
    for found in report.findings:
        if found.since_ns == report.to_ns:
            cost = f", {found.cost}" if found.cost else ""
            lines.append(f"  session {found.session}: {found.name} ({found.severity}{cost}): {found.text}")
    for row in report.counters:
        if row["new"] and row["severity"] != "info":
            lines.append(f"  {row['severity']}: {row['name']} +{row['new']}: {row['meaning']}")
    return lines


def _session(line: WatchLine, interval_ns: int) -> str:
    budget, load = line.budget, line.load
    idle = (
        f", idle {percent(budget.idle_fraction)} % of {wording.time(budget.jobs_ns)} busy"
        if budget and budget.jobs_ns
        else ""
    )
    limiter = f" ({BY_NAME[budget.limiter].label})" if budget and budget.limiter else ""
    depth = "" if load.queue_depth_max is None else f", QD {load.queue_depth_max}"
    rtt = "" if line.rtt_smoothed_ns is None else f", RTT {milliseconds(line.rtt_smoothed_ns)} ms"
    owin = "" if line.owin_peak_bytes is None else f", owin {size(line.owin_peak_bytes)}"
    # in flight for the whole interval: it is in none of these figures
    is_old = line.hang.oldest_ns >= interval_ns > 0
    oldest = f", oldest command in flight for {wording.time(line.hang.oldest_ns)}" if is_old else ""
    again = f", {wording.count(line.retransmitted, 'retransmission')}" if line.retransmitted else ""
    return (
        f"read {rate(load.read_bytes_per_s)} MB/s, write {rate(load.write_bytes_per_s)} MB/s, "
        f"{count(load.iops)} IOPS, {latency(load.latency_ns)}{depth}{idle}{limiter}{rtt}{owin}{again}{oldest}"
    )
