"""Metrics for Prometheus: the counts of `meters`, and gauges of the last interval. `server` serves them.

Labels are initiators, targets, portals and LUNs, never numbers of one run: counts go on after a restart, and those of
several watches add up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from iscsitrace import __version__
from iscsitrace.watch.meters import LATENCY_BOUNDS_NS, Gauges, Latencies, Meters, PathLabels
from iscsitrace.watch.server import OPEN, Access, MetricsServer
from iscsitrace.watch.watcher import Report, Watcher

_PREFIX: Final = "iscsitrace_"
_PATH: Final = PathLabels._fields
_UNIT: Final = (*_PATH, "lun")
_BOUNDS: Final = (*(str(bound_ns / 1e9) for bound_ns in LATENCY_BOUNDS_NS), "+Inf")


class Exposition(Collector):
    """Metrics of the last report, and counts since the start."""

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
    build = _gauges("build_info", "1, with the version of iscsitrace", ("version",))
    build.add_metric((__version__,), 1)
    yield build
    yield _counter("packets", "packets read", report.packet_count)
    yield _gauge("lag_seconds", "age of the oldest bytes not yet analysed", report.pace.lag_ns / 1e9)
    yield _counter(
        "left_out_packets", "packets skipped because the view could not keep up", report.pace.left_out_packets
    )
    if report.dropped is not None:
        yield _counter("capture_dropped_packets", "packets that the capture dropped", report.dropped)
    yield _gauge("is_reduced", "1 while there is no time breakdown, RTT and owin", int(report.pace.is_reduced))
    oddities = _counters("oddities", "counters of the capture", ("name", "severity"))
    for row in report.counters:
        oddities.add_metric((row["name"], row["severity"]), row["count"])
    yield oddities
    headline = _gauges("headline_cost_seconds", "time that the recent headline costs", ("name", "severity"))
    if report.headline is not None:
        cost_ns = report.headline.cost_ns or 0.0
        headline.add_metric((report.headline.name, report.headline.severity), cost_ns / 1e9)
    yield headline
    yield _findings(report, watcher.meters)
    yield from _of_paths(watcher.meters)
    yield from _of_units(watcher.meters)


def _findings(report: Report, meters: Meters) -> Metric:
    """The largest share of each finding of a path."""
    shares: dict[tuple[str, ...], float] = {}
    for found in report.findings:
        if found.session in meters.of_session:
            key = (*meters.of_session[found.session], found.name, found.severity)
            shares[key] = max(shares.get(key, 0.0), found.share or 0.0)
    metric = _gauges("finding_share", "recent findings, share of the I/O time", (*_PATH, "name", "severity"))
    for labels, share in shares.items():
        metric.add_metric(labels, share)
    return metric


_GAUGES: Final[tuple[tuple[str, str, Callable[[Gauges], float | None]], ...]] = (
    ("sessions", "sessions with an open connection", lambda now: now.session_count),
    ("connections", "open connections", lambda now: now.connection_count),
    ("commands_in_flight", "commands without a status", lambda now: now.in_flight),
    (
        "oldest_command_seconds",
        "age of the oldest command in flight, 0 without one",
        lambda now: now.oldest_ns / 1e9,
    ),
    (
        "no_progress_seconds",
        "time for which reads, writes or flushes have been in flight without progress",
        lambda now: now.no_progress_ns / 1e9,
    ),
    ("rtt_seconds", "smoothed RTT, the longest of its connections", lambda now: _seconds(now.rtt_smoothed_ns)),
    ("rtt_min_seconds", "minimum RTT", lambda now: _seconds(now.rtt_min_ns)),
    ("in_flight_peak_bytes", "most bytes in flight in the last interval", lambda now: now.owin_peak_bytes),
)
"""Name, help and value of a path in the last interval."""


def _of_paths(meters: Meters) -> Iterator[Metric]:
    for name, what, value in _GAUGES:
        metric = _gauges(name, what, _PATH)
        for path, counts in meters.labelled():
            amount = value(counts.now)
            if amount is not None:
                metric.add_metric(path, amount)
        yield metric
    outages = _counters("outages", "times without progress of a second or more", _PATH)
    parts = _counters("time_seconds", "time breakdown of the I/O time of connections", (*_PATH, "part"))
    again = _counters("retransmissions", "TCP retransmissions", (*_PATH, "cause"))
    for path, counts in meters.labelled():
        outages.add_metric(path, counts.outages)
        for part, time_ns in counts.parts_ns.items():
            parts.add_metric((*path, part), time_ns / 1e9)
        for cause, amount in counts.retransmissions.items():
            again.add_metric((*path, cause), amount)
    yield from (outages, parts, again)


def _of_units(meters: Meters) -> Iterator[Metric]:
    read = _counters("read_bytes", "payload to the initiator", _UNIT)
    written = _counters("written_bytes", "payload to the target", _UNIT)
    commands = _counters("commands", "SCSI commands no longer in flight", (*_UNIT, "operation", "status"))
    latency = HistogramMetricFamily(
        f"{_PREFIX}command_latency_seconds", "command to status", labels=(*_UNIT, "operation")
    )
    for path, counts in meters.labelled():
        for lun, unit in sorted(counts.units.items()):
            read.add_metric((*path, lun), unit.read_bytes)
            written.add_metric((*path, lun), unit.write_bytes)
            for labels, amount in sorted(unit.commands.items()):
                commands.add_metric((*path, lun, *labels), amount)
            for operation, latencies in sorted(unit.latencies.items()):
                latency.add_metric((*path, lun, operation), _buckets(latencies), latencies.sum_ns / 1e9)
    yield from (read, written, commands, latency)


def _buckets(latencies: Latencies) -> list[tuple[str, float]]:
    return list(zip(_BOUNDS, latencies.counts.cumsum().tolist(), strict=True))


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1e9


def _counters(name: str, what: str, labels: tuple[str, ...]) -> CounterMetricFamily:
    return CounterMetricFamily(f"{_PREFIX}{name}", what, labels=labels)


def _gauges(name: str, what: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}{name}", what, labels=labels)


def _counter(name: str, what: str, value: int) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}{name}", what, value=value)


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}{name}", what, value=value)
