"""Metrics for Prometheus: one interval, and totals since the start. `server` serves them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from iscsitrace.watch.figures import CAUSES, Line
from iscsitrace.watch.server import MetricsServer
from iscsitrace.watch.watcher import Report, Watcher
from iscsitrace.watch.web_config import OPEN, Access

_LABELS: Final = ("session", "target")


class Exposition(Collector):
    """Metrics of the last report, and totals since the start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics: list[Metric] = []

    def update(self, report: Report, watcher: Watcher) -> None:
        """Makes the metrics of a report in advance, so that a scrape does not wait."""
        metrics = list(_metrics(report, watcher))
        with self._lock:
            self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics to the registry."""
        with self._lock:
            yield from self._metrics


def serve(exposition: Exposition, address: str, port: int, access: Access = OPEN) -> MetricsServer:
    """Serves the metrics at ``http://ADDRESS:PORT/metrics``; InputInvalid if the port is not available."""
    registry = CollectorRegistry()
    registry.register(exposition)
    return MetricsServer(registry, address, port, access)


def _metrics(report: Report, watcher: Watcher) -> Iterator[Metric]:
    volume = watcher.totals.all
    yield _counter("iscsitrace_packets", "packets read", report.packet_count)
    yield _counter("iscsitrace_tasks", "SCSI commands that are no longer in flight", volume.cycle_count)
    yield _counter("iscsitrace_read_bytes", "payload to the initiator", volume.read_bytes)
    yield _counter("iscsitrace_write_bytes", "payload to the target", volume.write_bytes)
    yield _gauge("iscsitrace_lag_seconds", "lag behind the input", report.pace.lag_ns / 1e9)
    yield _counter(
        "iscsitrace_left_out_packets",
        "packets skipped because the view could not keep up",
        report.pace.left_out_packets,
    )
    yield _gauge(
        "iscsitrace_is_reduced", "1 while there is no time breakdown, RTT and owin", int(report.pace.is_reduced)
    )
    oddities = CounterMetricFamily("iscsitrace_oddities", "counters of the capture", labels=("name", "severity"))
    for row in report.counters:
        oddities.add_metric((row["name"], row["severity"]), row["count"])
    yield oddities
    findings = GaugeMetricFamily(
        "iscsitrace_finding_share", "recent findings, share of the time", labels=("session", "name")
    )
    for found in report.findings:
        findings.add_metric((str(found.session), found.name), found.share or 0.0)
    yield findings
    headline = GaugeMetricFamily(
        "iscsitrace_headline_cost_seconds", "recent headline, the time that it costs", labels=("name", "severity")
    )
    if report.headline is not None:
        cost_ns = report.headline.cost_ns or 0.0
        headline.add_metric((report.headline.name, report.headline.severity), cost_ns / 1e9)
    yield headline
    yield from _of_sessions(report.sessions)


def _of_sessions(lines: list[Line]) -> Iterator[Metric]:
    def gauges(name: str, what: str, value: Any) -> Metric:
        metric = GaugeMetricFamily(f"iscsitrace_session_{name}", what, labels=_LABELS)
        for line in lines:
            found = value(line)
            if found is not None:
                metric.add_metric(_labels(line), found)
        return metric

    yield gauges(
        "read_bytes_per_second", "read throughput of the last interval", lambda line: line.load.read_bytes_per_s
    )
    yield gauges(
        "write_bytes_per_second", "write throughput of the last interval", lambda line: line.load.write_bytes_per_s
    )
    yield gauges("tasks_per_second", "commands per second in the last interval", lambda line: line.load.iops)
    yield gauges("open_tasks", "commands in flight", lambda line: line.open_task_count)
    yield gauges(
        "oldest_command_seconds",
        "age of the oldest command in flight, 0 without one",
        lambda line: line.hang.oldest_ns / 1e9,
    )
    yield gauges(
        "no_progress_seconds",
        "time for which reads, writes or flushes have been in flight without progress",
        lambda line: line.hang.no_progress_ns / 1e9,
    )
    yield gauges(
        "queue_depth_mean", "mean queue depth at issue, last interval", lambda line: line.load.queue_depth_mean
    )
    yield gauges(
        "idle_fraction",
        "share of the busy time of the last interval without payload on the line",
        lambda line: line.budget.idle_fraction if line.budget else None,
    )
    yield gauges("rtt_seconds", "smoothed RTT", lambda line: _seconds(line.rtt_smoothed_ns))
    yield gauges("owin_bytes", "most bytes in flight, last interval", lambda line: line.owin_peak_bytes)
    latency = GaugeMetricFamily(
        "iscsitrace_session_latency_seconds", "latency in the last interval", labels=(*_LABELS, "quantile")
    )
    budget = GaugeMetricFamily(
        "iscsitrace_session_time_share",
        "time breakdown of the busy time of the last interval",
        labels=(*_LABELS, "part"),
    )
    again = GaugeMetricFamily(
        "iscsitrace_session_retransmissions", "retransmissions in the last interval", labels=(*_LABELS, "cause")
    )
    quantiles = {"p50": "0.5", "p95": "0.95", "p99": "0.99", "max": "1"}
    for line in lines:
        for name, quantile in quantiles.items():
            value = line.load.latency_ns[name]
            if value is not None:
                latency.add_metric((*_labels(line), quantile), value / 1e9)
        for part, share in (line.budget.shares if line.budget else {}).items():
            budget.add_metric((*_labels(line), part), share)
        if line.transports:
            for cause in CAUSES:
                amount = sum(each.retransmissions[cause] for each in line.transports.values())
                again.add_metric((*_labels(line), cause), amount)
    yield from (latency, budget, again)


def _labels(line: Line) -> tuple[str, str]:
    return str(line.number), str(line.names.get("target_name") or "")


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1e9


def _counter(name: str, what: str, value: int) -> Metric:
    return CounterMetricFamily(name, what, value=value)


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)
