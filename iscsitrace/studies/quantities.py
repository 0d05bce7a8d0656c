"""The numbers of a point, and the quantities that definitions, figures, tables and claims name: each one record.

To add a quantity: its field in `PointResult`, its record in `QUANTITIES`, and the module that measures it. The rest,
``results.csv`` included, follows from the record.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

from iscsitrace.fit.points import Point
from iscsitrace.studies.from_truth import Course, StreamTruth
from iscsitrace.wording.cells import NOTHING

SEARCH, STREAMS, EFFICIENCY = "search", "streams", "efficiency"
"""Tables of results that have a column for each of their quantities."""
IDLE_OF_SOCKET: Final = "idle_of_socket"
OF_SOCKET: Final = "of_socket"
SCATTER: Final = "scatter"
HOST_PARTS: Final = ("initiator_think", "initiator_service", "target_service")
"""Parts of the time breakdown that are spent in the hosts, neither on the path nor waiting for TCP."""


@dataclass(frozen=True)
class PointResult:
    """The result of one point. A number is None where it is unknown."""

    name: str
    """Its folder below ``points``."""
    arm: str
    grid: dict[str, str]
    """Its place in the grid: settings as the definition writes them."""
    values: dict[str, Any]
    """All its settings, in the units of a run: nanoseconds, bytes, bit/s, words."""
    repeat: int
    digest: str
    error: str | None = None
    """Why it failed, in one line; then nothing else is known."""
    throughput_bytes_per_s: float | None = None
    """Of all system calls, as the initiator counts it."""
    steady_throughput_bytes_per_s: float | None = None
    """After the warm-up. This is plotted, and compared with the model."""
    period_ns: float | None = None
    """Time from one system call to the next, times queue depth; after the warm-up."""
    call_count: int = 0
    """System calls after the warm-up."""
    idle_fraction: float | None = None
    """From the initiator's capture, after the warm-up; so are limiter and parts_ns."""
    limiter: str | None = None
    parts_ns: dict[str, float] = field(default_factory=dict)
    """The time breakdown of a system call."""
    steady: tuple[Point, ...] = ()
    """The steady commands of the capture, for a fit over several points."""
    connections: int | None = None
    """The number of connections that a search found; None without a search, or when it had not ended."""
    converged_s: float | None = None
    """When the search first found it, since the first command."""
    goodput_lost: float | None = None
    """Throughput lost by the search: 1 - throughput of the whole time / throughput after the search."""
    measured_bytes_per_s: float | None = None
    """Throughput as the run first measured it for the last of its numbers of connections."""
    measuring_s: float | None = None
    """How long that measurement took."""
    measured_cv: float | None = None
    """Standard deviation of all measurements of that number / their mean."""
    latency_cv: float | None = None
    """Standard deviation of the command latency / its mean."""
    latency_poles: float | None = None
    """How far the mean latencies of connections lie in two groups: 3/4 when evenly spaced, 1 for two values."""
    connection_spread: float | None = None
    """Standard deviation of throughput over the connections / its mean."""
    cwnd_spread: float | None = None
    """The same for the mean congestion window of each connection."""
    late_window: float | None = None
    """Mean congestion window of the 40th connection / that of the first."""
    courses: tuple[Course, ...] = ()
    """Curves over the time of the run."""
    k: float | None = None
    """One-way delays per command, fitted to this capture alone; so are d, s and C."""
    d_ns: float | None = None
    s_ns: float | None = None
    c_bytes_per_s: float | None = None
    packets_per_command: float | None = None
    """Packets with more than a PDU's header, in both directions, after the warm-up; from the initiator's capture."""
    model: dict[str, Any] | None = None
    """The model's prediction from the settings, as ``model predict --json``."""
    efficiency: float | None = None
    """Steady throughput / rate of the line; None without a rate."""
    cpu_s_per_gigabyte: float | None = None
    """CPU time of the initiator per 10^9 bytes, in the real world."""
    target_cpu_s_per_gigabyte: float | None = None
    """CPU time of our targets."""
    captures: tuple[str, ...] = ()
    """Files that were kept in its folder."""
    streams: tuple[StreamTruth, ...] = ()
    """By target and connection, from the truth; so are the numbers below."""
    jain: float | None = None
    """Jain's fairness index of the streams' throughputs."""
    spread_s: float | None = None
    """Time between the end of the first stream and the end of the last; None in a run of a fixed duration."""
    spread_ratio: float | None = None
    """Time of the last stream / time of the first."""
    retransmission_rate: float | None = None
    """Retransmitted segments / packets sent, by the senders of data."""
    utilisation: float | None = None
    """Fraction of the time after the warm-up in which the shared line was busy."""
    mean_of_peak: float | None = None
    """Throughput after the warm-up / that of its best second."""
    timeout_count: int | None = None
    """Retransmission timeouts of all streams."""
    slow_start_rank: float | None = None
    """Rank correlation of the streams' ends with their windows after slow start."""

    @property
    def timed_out(self) -> float | None:
        """1 for a run with a retransmission timeout, 0 for one without: their mean is the share of runs with one."""
        return None if self.timeout_count is None else float(self.timeout_count > 0)

    @property
    def model_throughput_bytes_per_s(self) -> float | None:
        """Throughput that the model predicts."""
        return None if self.model is None else float(self.model["throughput_bytes_per_s"])

    @property
    def model_period_ns(self) -> float | None:
        """Period that the model predicts."""
        return None if self.model is None else float(self.model["period_ns"])

    @property
    def model_error(self) -> float | None:
        """Throughput of the model / measured steady throughput, less 1."""
        if not self.model_throughput_bytes_per_s or not self.steady_throughput_bytes_per_s:
            return None
        return self.model_throughput_bytes_per_s / self.steady_throughput_bytes_per_s - 1

    @property
    def absolute_model_error(self) -> float | None:
        """The model error without its sign."""
        return None if self.model_error is None else abs(self.model_error)

    @property
    def line_bytes_per_s(self) -> float | None:
        """What the shared line carried, with all headers and retransmissions."""
        rate = self.values.get("link.access-rate") or self.values.get("link.rate")
        return self.utilisation * rate / 8 if rate and self.utilisation is not None else None

    @property
    def host_share(self) -> float | None:
        """Fraction of a system call that is spent in the hosts."""
        total_ns = sum(self.parts_ns.values())
        return sum(self.parts_ns[name] for name in HOST_PARTS) / total_ns if total_ns else None


def columns() -> tuple[str, ...]:
    """The columns of ``results.csv``: every number that may be unknown; for the model, its three numbers."""
    found = [each.name for each in fields(PointResult) if each.default is None and each.name != "error"]
    place = found.index("model")
    found[place : place + 1] = ["model_throughput_bytes_per_s", "model_period_ns", "model_error"]
    return tuple(found)


_SCALES: Final = {"%": 100.0, "MB/s": 1e-6, "Mbit/s": 8e-6, "ms": 1e-6}
"""From a fraction, bytes/s or ns to the unit; other units are those of the field."""
_COUNTS: Final = {"connections", "delays", "of 1", "packets", "timeouts", "times"}


@dataclass(frozen=True)
class StudyQuantity:
    """A quantity: its name in definitions, its unit and label, how it is printed, and where it comes from."""

    name: str
    unit: str
    label: str
    """On the axis of a figure."""
    heading: str
    """Of a column of a table, with the unit."""
    digits: int
    """Decimals in a table."""
    table: str = ""
    """The table of results that has it as a column: SEARCH, STREAMS, EFFICIENCY, or none."""
    field: str = ""
    """Of `PointResult`; the name by default."""
    in_model: str = ""
    """The key of the model's prediction, if the model predicts it."""
    has_field: bool = True
    """Whether a point has it; else it compares repeats or places (repeats.py)."""

    @property
    def scale(self) -> float:
        """From the field, and from the model, to the unit."""
        return _SCALES.get(self.unit, 1.0)

    @property
    def axis(self) -> str:
        """The label of an axis, with the unit unless it is a count or a ratio."""
        return self.label if self.unit in _COUNTS else f"{self.label}, {self.unit}"

    def measured(self, point: PointResult) -> float | None:
        """The quantity at a point, in its unit."""
        value = getattr(point, self.field or self.name) if self.has_field else None
        return None if value is None else value * self.scale

    def text(self, value: float | None) -> str:
        """As it is printed, without the unit."""
        return NOTHING if value is None else f"{value:.{self.digits}f}"


_CV: Final = "coefficient of variation"
_RECORDS: Final = (
    StudyQuantity(
        "throughput",
        "MB/s",
        "throughput after the warm-up",
        "MB/s",
        3,
        field="steady_throughput_bytes_per_s",
        in_model="throughput_bytes_per_s",
    ),
    StudyQuantity("idle_fraction", "%", "idle fraction", "idle %", 1, in_model="idle_fraction"),
    StudyQuantity(
        IDLE_OF_SOCKET,
        "%",
        "idle fraction: 1 - throughput / that of a socket",
        "idle of socket %",
        1,
        has_field=False,
    ),
    StudyQuantity(OF_SOCKET, "%", "throughput / that of a socket", "of socket %", 1, has_field=False),
    StudyQuantity("model_error", "%", "error of the model", "error %", 1, field="absolute_model_error"),
    StudyQuantity(
        "period", "ms", "time from one call to the next", "period ms", 3, field="period_ns", in_model="period_ns"
    ),
    StudyQuantity(
        "bit_rate",
        "Mbit/s",
        "throughput after the warm-up",
        "Mbit/s",
        1,
        field="steady_throughput_bytes_per_s",
        in_model="throughput_bytes_per_s",
    ),
    StudyQuantity(
        "line_rate", "Mbit/s", "rate on the line, with all headers", "line Mbit/s", 1, field="line_bytes_per_s"
    ),
    StudyQuantity("k", "delays", "one-way delays per command", "k", 2, in_model="k"),
    StudyQuantity("packets", "packets", "packets with data per command", "packets", 1, field="packets_per_command"),
    StudyQuantity("connections", "connections", "connections found", "found", 0, SEARCH),
    StudyQuantity("converge", "s", "time until the number was found", "after s", 1, SEARCH, field="converged_s"),
    StudyQuantity("goodput_lost", "%", "throughput lost by the search", "lost %", 1, SEARCH),
    StudyQuantity("measured", "MB/s", "throughput as measured", "measured MB/s", 1, field="measured_bytes_per_s"),
    StudyQuantity("measured_cv", "%", f"{_CV} of measured throughput", "measured cv %", 1),
    StudyQuantity("measuring", "s", "time of a measurement", "measuring s", 2, field="measuring_s"),
    StudyQuantity("latency_cv", "%", f"{_CV} of command latencies", "latency cv %", 1, SEARCH),
    StudyQuantity(
        "connection_spread", "%", f"{_CV} of throughput over connections", "MB/s over connections cv %", 1, SEARCH
    ),
    StudyQuantity("cwnd_spread", "%", f"{_CV} of cwnd over connections", "cwnd cv %", 1, SEARCH),
    StudyQuantity("latency_poles", "of 1", "connections' mean latencies in two groups", "two poles", 2),
    StudyQuantity("late_window", "times", "cwnd of the 40th connection / of the 1st", "cwnd 40th / 1st", 2),
    StudyQuantity("efficiency", "%", "efficiency: throughput / rate of the line", "efficiency %", 1, EFFICIENCY),
    StudyQuantity("cpu", "s/GB", "CPU time of the initiator", "s/GB", 2, EFFICIENCY, "cpu_s_per_gigabyte"),
    StudyQuantity(
        "target_cpu", "s/GB", "CPU time of the target", "target s/GB", 2, EFFICIENCY, "target_cpu_s_per_gigabyte"
    ),
    StudyQuantity("host_share", "%", "time of a call spent in the hosts", "hosts %", 1),
    StudyQuantity("utilisation", "%", "utilisation of the shared line", "line %", 1, STREAMS),
    StudyQuantity("mean_of_peak", "%", "throughput / that of the best second", "mean / peak %", 1),
    StudyQuantity(SCATTER, "%", f"{_CV} of throughput over repeats", "scatter %", 1, STREAMS, has_field=False),
    StudyQuantity("jain", "of 1", "Jain's fairness index of the streams", "Jain", 3, STREAMS),
    StudyQuantity("spread", "s", "time from first to last end of a stream", "first to last s", 1, STREAMS, "spread_s"),
    StudyQuantity("spread_ratio", "times", "time of the last stream / time of the first", "last / first", 2, STREAMS),
    StudyQuantity("retransmission_rate", "%", "retransmitted segments / packets sent", "retransmitted %", 4, STREAMS),
    StudyQuantity("timeouts", "timeouts", "retransmission timeouts", "timeouts", 1, STREAMS, "timeout_count"),
    StudyQuantity("timed_out", "%", "runs with a retransmission timeout", "runs with timeouts %", 0),
    StudyQuantity("slow_start_rank", "of 1", "rank correlation of ends with windows after slow start", "rank", 2),
)
QUANTITIES: Final = {each.name: each for each in _RECORDS}
"""Every quantity by its name."""
