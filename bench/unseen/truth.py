"""What a run's logs say of it: what its commands waited for, what the line and its queue did, and what storage took.

The life of each command, from the initiator's command to its status, is cut into parts. When several apply, the first
counts:

| part | while |
|---|---|
| transfer | data of the session are on the line, or wait behind data of the session alone |
| foreign_queue | a packet of the session waits behind those of others |
| loss_recovery | a lost byte has not been replaced yet, or a sender waits for its retransmission timer |
| receive_window, congestion_window, send_buffer | the sender has data of the command and is stopped by it |
| ack_wait | the status is held until the data are acknowledged (Nagle) |
| initiator_service | an R2T is unanswered |
| target_service | the target has the command, or its data, and did not answer |
| propagation | the rest |

A share is of the lives of all commands together: what they wait for is what more speed would take away. The times of
commands are those of the truth, of R2Ts those of the captures at both hosts. No result of the analysis is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import iscsitrace
from bench.budget.spans import Spans, attributed, intersection, subtraction, union
from bench.unseen import wire
from bench.unseen.drawing import Draw
from bench.unseen.runs import OWN_PORT, TAPS, Made

PARTS: Final = (
    "transfer",
    "foreign_queue",
    "loss_recovery",
    "receive_window",
    "congestion_window",
    "send_buffer",
    "ack_wait",
    "initiator_service",
    "target_service",
    "propagation",
)
MS: Final = 1_000_000
OUTLIER_TIMES, OUTLIER_NS = 10, 50 * MS
"""An outlier takes more than ten times the median, and so much longer than it."""
_NULL: Final = np.iinfo(np.int64).min
_NEVER: Final = np.iinfo(np.int64).max
_SMALL_BUFFER_BYTES: Final = 1 << 20
"""A send buffer below can stop a sender; the default cannot here."""
_TRIPS: Final = 2
_BASIC_HEADER_BYTES: Final = 48

Numbers = NDArray[np.int64]
Times = Mapping[str, Numbers]


@dataclass(frozen=True)
class Facts:
    """The truth of a run, in numbers."""

    shares: Mapping[str, float]
    """By part, of the lives of the commands."""
    io_ns: int
    """Time with a command in flight."""
    think_share: float
    """Time without one, of the time from the first command to the last status."""
    line_share: float
    """Time in which the busier line carried packets, of the I/O time."""
    queue_ns: float
    """Median wait of large packets in the queue of the line."""
    least_rtt_ns: float
    rtt_ns: float
    """With half of the jitter, without queues."""
    depth: int
    block_bytes: int
    is_sequential: bool
    service_ns: float
    """Median time that the target took for a command."""
    mean_service_ns: float
    """The same without storage's outliers."""
    answer_ns: float
    """Median time that the initiator took for an R2T; 0 without any."""
    round_count: float
    """R2Ts of a write, in the mean."""
    loss_ns: int
    """Time of losses within the I/O time, and of those that a black-out caused."""
    black_out_ns: int
    loss_count: int
    """Lost packets with data."""
    after_loss: float
    """Share of the congestion window after the first loss."""
    overtaken_share: float
    """Packets that were overtaken, of those of their direction: the larger share."""
    outlier_count: int
    storage_outlier_count: int
    """Those whose service took most of it."""
    outlier_share: float
    """What storage's outliers took longer than the median, of the lives of all commands."""
    command_count: int
    stall_ns: int
    """The longest time of the I/O in which storage answered nothing."""
    restarts: int = 0
    """Pauses of the program that are long enough for TCP to begin with a small window again."""
    cut_share: float = 0.0
    """PDUs whose headers the snaplen cut."""


def facts(draw: Draw, made: Made) -> Facts:
    """The truth of a run."""
    return _Reading(draw, made).facts()


class _Reading:
    """A run, as its logs have it."""

    def __init__(self, draw: Draw, made: Made) -> None:
        self.draw, self.made = draw, made
        self.ways = wire.ways(made)
        self.losses = wire.losses(made, self.ways)
        self.commands = _commands(made.truth, made.from_ns)
        self.io = union(np.column_stack([self.commands["begin"], self.commands["end"]]))
        self.full = {side: self._full(side) for side in TAPS}
        self.busy = union(
            *self.full["initiator"].values(), self.losses.all, *(way.own_queue for way in self.ways.values())
        )

    def facts(self) -> Facts:
        """All of it."""
        own = self.commands
        parts_ns = dict.fromkeys(PARTS, 0)
        after_ns, first_loss = 0, self.losses.first_ns
        service, answers = [], []
        line = union(*(way.own_queue for way in self.ways.values()))
        foreign = union(*(way.foreign_queue for way in self.ways.values()))
        rounds = self._rounds()
        for place in range(len(own["begin"])):
            span = int(own["begin"][place]), int(own["end"][place])
            claims = {"transfer": line, "foreign_queue": foreign, "loss_recovery": self.losses.all}
            mine = self._claims(place, rounds.get(place, ()))
            service.append(mine.pop("service_ns"))
            answers += mine.pop("answers_ns")
            near = {name: _within(spans, span) for name, spans in (claims | mine).items()}
            found = attributed(span, near, "propagation")
            for part, amount_ns in found.items():
                parts_ns[part] += amount_ns
            if first_loss is not None and span[1] > first_loss:
                after_ns += found["congestion_window"]
        total = max(1, sum(parts_ns.values()))
        io_ns = _length(self.io)
        whole = int(own["end"].max() - own["begin"].min())
        delays = [self._delay_ns(name) for name in wire.NEAR]
        latency = own["end"] - own["begin"]
        outliers = self._outliers(np.asarray(service))
        queue = np.concatenate([way.queue_ns for way in self.ways.values()] or [np.empty(0, np.int64)])
        return Facts(
            shares={part: amount_ns / total for part, amount_ns in parts_ns.items()},
            io_ns=io_ns,
            think_share=1 - io_ns / max(1, whole),
            line_share=max(_length(intersection(way.busy, self.io)) for way in self.ways.values()) / max(1, io_ns),
            queue_ns=float(np.median(queue)) if len(queue) else 0.0,
            least_rtt_ns=sum(least for least, _ in delays),
            rtt_ns=sum(mean for _, mean in delays),
            depth=self.draw["workload.queue-depth"],
            block_bytes=self.draw["workload.block-size"],
            is_sequential=self.draw["workload.access"] != "random",
            service_ns=float(np.median(service)),
            answer_ns=float(np.median(answers)) if answers else 0.0,
            round_count=sum(map(len, rounds.values())) / max(1, len(rounds)),
            loss_ns=_length(intersection(self.losses.all, self.io)),
            black_out_ns=_length(intersection(self.losses.interrupted, self.io)),
            loss_count=self.losses.data_count,
            after_loss=after_ns / total,
            overtaken_share=max(self._overtaken(name) for name in wire.NEAR),
            command_count=len(latency),
            restarts=self._restarts(),
            cut_share=self._cut_share(),
            **outliers,
        )

    def _delay_ns(self, name: str) -> tuple[float, float]:
        """The least delay of a direction, and its mean."""
        settings = self.made.truth["settings"]["world"]["paths"][0][name]
        return settings["delay_ns"], settings["delay_ns"] + settings["jitter_ns"] / 2

    def _overtaken(self, name: str) -> float:
        counters = self.made.truth["paths"][0][name]["counters"]
        return float(counters["overtaken"]["count"] / max(1, counters["arrived"]["count"]))

    def _restarts(self) -> int:
        pauses = self.io[1:, 0] - self.io[:-1, 1]
        least_ns = 200 * MS + sum(self._delay_ns(name)[0] for name in wire.NEAR)
        return int((pauses > least_ns).sum())

    def _cut_share(self) -> float:
        """PDUs whose header lies beyond the snaplen in the segment that has its first byte."""
        if not self.draw.snaplen:
            return 0.0
        cut = count = 0
        pdus = iscsitrace.read(str(self.made.whole["initiator"])).pdus
        offsets, is_to_target = pdus.raw("stream_offset_bytes"), pdus.raw("to_target").astype(bool)
        for name, near in wire.NEAR.items():
            starts = wire.segment_offsets(self.made.whole[near], to_target=name == "to_target")
            own = offsets[is_to_target == (name == "to_target")]
            into = own - starts[np.maximum(np.searchsorted(starts, own, side="right") - 1, 0)]
            cut += int((wire.FRAME_HEADERS_BYTES + into + _BASIC_HEADER_BYTES > self.draw.snaplen).sum())
            count += len(own)
        return cut / max(1, count)

    def _outliers(self, service: Numbers) -> dict[str, Any]:
        own = self.commands
        latency = own["end"] - own["begin"]
        found = {"outlier_count": 0, "storage_outlier_count": 0, "outlier_share": 0.0, "stall_ns": 0}
        late = np.zeros(len(latency), bool)
        by_storage = late.copy()
        longer = np.zeros(len(latency))
        for kind in np.unique(own["is_read"]):
            mine = own["is_read"] == kind
            middle, usual = np.median(latency[mine]), np.median(service[mine])
            late |= mine & (latency > OUTLIER_TIMES * middle) & (latency > middle + OUTLIER_NS)
            slow = mine & (service > OUTLIER_TIMES * usual) & (service > usual + OUTLIER_NS)
            by_storage |= slow & (service - usual > (latency - middle) / _TRIPS)
            longer = np.where(mine, service - usual, longer)
        found["mean_service_ns"] = float(service[~by_storage].mean()) if not by_storage.all() else 0.0
        found["outlier_count"] = int(late.sum())
        found["storage_outlier_count"] = int(by_storage.sum())
        found["outlier_share"] = float(longer[by_storage].sum() / max(1, latency.sum()))
        found["stall_ns"] = int(service[by_storage].max()) if by_storage.any() else 0
        return found

    def _claims(self, place: int, rounds: Any) -> dict[str, Any]:
        """What holds one command, besides the line and losses."""
        own = {name: int(column[place]) for name, column in self.commands.items()}
        return self._of_read(own) if own["is_read"] else self._of_write(own, rounds)

    def _of_read(self, own: Mapping[str, int]) -> dict[str, Any]:
        full = self.full["target"]
        arrived, first, last = own["at_command"], own["at_first"], own["at_last"]
        if first == _NULL:
            return self._parts({}, union(), union([(arrived, own["at_end"])]), own["at_end"] - arrived)
        ready = self._ready(arrived, first)
        backlog = union([(ready, last)])
        service = subtraction(union([(arrived, ready)]), self.losses.all)
        status = union([(last, own["at_end"])])
        is_held = self.draw["target.status"] == "apart_held"
        claims = self._stopped(full, backlog)
        if not is_held:
            service = union(service, status)
        return self._parts(claims, status if is_held else union(), service, _length(service))

    def _ready(self, arrived: int, first: int) -> int:
        """When the target had the data: at its first data, or while a window was closed before it, at most then."""
        least = arrived + self._fixed_ns()
        closed = union(*self.full["target"].values())
        place = int(np.searchsorted(closed[:, 0], first, side="left")) - 1
        if place >= 0 and closed[place, 1] >= first - 1:
            return int(np.clip(closed[place, 0], min(least, first), first))
        return first

    def _fixed_ns(self) -> int:
        delay = self.made.truth["settings"]["portals"][0]["read_delay"]
        return int(delay.get("delay_ns", delay.get("low_ns", 0)))

    def _of_write(self, own: Mapping[str, int], rounds: Any) -> dict[str, Any]:
        begin, arrived = own["begin"], own["at_last"] if own["at_last"] != _NULL else own["at_command"]
        status = own["at_end"]
        backlog, service, answers = [], [(arrived, status)], []
        if own["last"] == _NULL or not rounds:
            backlog.append((begin, own["last"] if own["last"] != _NULL else own["command_last"]))
        else:
            backlog.append((begin, own["command_last"]))
        waits, came = [], own["at_command"]
        # an R2T that waits for room in TCP, or for the line, does not wait for the host
        held = _within(self.busy, (begin, status))
        for asked, sent, done, at_asked, at_done in rounds:
            backlog.append((asked, done))
            waits.append((asked, sent))
            answers.append(_length(subtraction(union([(asked, sent)]), held)))
            service.append((came, at_asked))
            came = at_done
        claims = self._stopped(self.full["initiator"], union(backlog))
        # what came behind a lost packet is delivered when its copy has come
        taken = subtraction(union(service), self.losses.all)
        found = self._parts(claims, union(), taken, _length(taken))
        found["initiator_service"] = union(waits)
        found["answers_ns"] = answers
        return found

    @staticmethod
    def _stopped(full: Mapping[str, Spans], backlog: Spans) -> dict[str, Spans]:
        return {limit: intersection(backlog, spans) for limit, spans in full.items()}

    @staticmethod
    def _parts(stopped: Mapping[str, Spans], held: Spans, service: Spans, service_ns: int) -> dict[str, Any]:
        found = dict.fromkeys(("receive_window", "congestion_window", "send_buffer"), union()) | dict(stopped)
        return found | {
            "ack_wait": held,
            "initiator_service": union(),
            "target_service": service,
            "service_ns": service_ns,
            "answers_ns": [],
        }

    def _full(self, side: str) -> dict[str, Spans]:
        """When the sender had no room for another segment, by what it lacked: one limit at a time."""
        (end,) = [each for each in _ends(self.made.truth, side) if each["initiator_port"] == OWN_PORT]
        log = end["windows"]
        times = np.asarray(log["time_ns"], np.int64)
        pipe, cwnd, unacked = (np.asarray(log[name], np.int64) for name in ("pipe", "cwnd", "unacked"))
        mss, window = end["snd_mss"], np.asarray(log["snd_wnd_bytes"], np.int64)
        lasting = np.column_stack([times, np.append(times[1:], _NEVER)])
        tcp = self.made.truth["settings"]["world"][f"{side}_tcp"]
        is_small = tcp["send_buffer_bytes"] < _SMALL_BUFFER_BYTES
        room = window - unacked * mss
        # a sender waits for half of a small window instead of filling the rest (RFC 9293 section 3.8.6.2.1)
        is_closed = (unacked > 0) & ((room < mss) | ((room < window // 2) & (pipe < cwnd) & (not is_small)))
        is_full = (pipe >= cwnd) & ~is_closed
        is_buffered = (unacked > 0) & is_small & ~is_closed & ~is_full
        return {
            "receive_window": union(lasting[is_closed]),
            "congestion_window": union(lasting[is_full]),
            "send_buffer": union(lasting[is_buffered]),
        }

    def _rounds(self) -> dict[int, list[tuple[int, int, int, int, int]]]:
        """Per write, its R2Ts: R2T, first and last data at the initiator, R2T and last data at the target."""
        if self.draw["workload.operation"] == "read":
            return {}
        by_tap = {tap: _bursts(file) for tap, file in self.made.whole.items()}
        found = {}
        for place in range(len(self.commands["tag"])):
            tag = int(self.commands["tag"][place])
            near = by_tap["initiator"].get((tag, int(self.commands["begin"][place])), ())
            far = by_tap["target"].get((tag, int(self.commands["at_begin"][place])), ())
            if near and len(near) == len(far):
                found[place] = [(*one, other[0], other[2]) for one, other in zip(near, far, strict=True)]
        return found


def _bursts(file: Path) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """By tag and time of the command: the R2Ts of a write that were answered, each with its first and last data."""
    trace = iscsitrace.read(str(file))
    keys = list(
        zip(*(trace.cycles.raw(name).tolist() for name in ("initiator_task_tag", "command_first_ns")), strict=True)
    )
    columns = (trace.rounds.raw(name).tolist() for name in ("cycle", "r2t_ns", "data_first_ns", "data_last_ns"))
    found: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for cycle, *times in zip(*columns, strict=True):
        if _NULL not in times:
            found.setdefault(keys[cycle], []).append((times[0], times[1], times[2]))
    return {key: sorted(bursts) for key, bursts in found.items()}


def _commands(truth: Mapping[str, Any], from_ns: int) -> Times:
    """The reads and writes of the judged session that are in the captures from the beginning, and were answered."""
    table = truth["cycles"]
    rows = [
        row
        for row, operation in enumerate(table["operation"])
        if operation
        and table["connection"][row] == 0
        and table["initiator"]["status_ns"][row] is not None
        and table["initiator"]["command_first_ns"][row] >= from_ns
    ]
    near, far = table["initiator"], table["at_target"]

    def column(values: list[Any]) -> Numbers:
        return np.array([_NULL if values[row] is None else values[row] for row in rows], np.int64)

    found = {
        "begin": column(near["command_first_ns"]),
        "command_last": column(near["command_last_ns"]),
        "last": column(near["data_last_ns"]),
        "end": column(near["status_ns"]),
        "at_begin": column(far["command_first_ns"]),
        "at_command": column(far["command_last_ns"]),
        "at_first": column(far["data_first_ns"]),
        "at_last": column(far["data_last_ns"]),
        "at_end": column(far["status_ns"]),
        "tag": column(table["initiator_task_tag"]),
        "is_read": np.array([table["operation"][row] == "read" for row in rows], np.int64),
    }
    if not rows:
        raise RuntimeError("no command was answered")
    return found


def _ends(truth: Mapping[str, Any], side: str) -> list[Mapping[str, Any]]:
    return list(truth["initiator_ends"] if side == "initiator" else truth["target_ends"][0])


def _within(spans: Spans, span: tuple[int, int]) -> Spans:
    """Those that touch the span."""
    if not len(spans):
        return spans
    first = int(np.searchsorted(spans[:, 1], span[0], side="right"))
    last = int(np.searchsorted(spans[:, 0], span[1], side="left"))
    return spans[first:last]


def _length(spans: Spans) -> int:
    return int(np.diff(spans).sum()) if len(spans) else 0
