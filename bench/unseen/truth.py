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

A share is of the I/O time: at each moment the commands in flight have equal parts of it. What commands wait for is what
more speed would take away, so the share of the lives of all commands counts, too, where work is not steady. The times
of commands are those of the truth, of R2Ts those of the captures at both hosts. No result of the analysis is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench.budget.spans import Spans, attributed, intersection, subtraction, union
from bench.unseen.drawing import MS, Draw
from bench.unseen.logs import NULL, Logs, Numbers

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
OUTLIER_TIMES, OUTLIER_NS = 10, 50 * MS
"""An outlier takes more than ten times the median, and so much longer than it."""
_TRIPS: Final = 2


@dataclass(frozen=True)
class Facts:
    """The truth of a run, in numbers."""

    shares: Mapping[str, float]
    """By part, of the I/O time; commands in flight together share the time."""
    life_shares: Mapping[str, float]
    """By part, of the lives of the commands."""
    io_ns: int
    """Time with a command in flight."""
    think_share: float
    """Time without one, of the time from the first command to the last status."""
    line_share: float
    """Time in which a line carried data, of the I/O time."""
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
    has_losses: bool
    """Whether any packet of the session was lost."""
    after_loss: float
    """Share of the congestion window after the first loss, of the I/O time."""
    life_after_loss: float
    """The same, of the lives of the commands."""
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


def facts(draw: Draw, logs: Logs) -> Facts:
    """The truth of a run."""
    return _Reading(draw, logs).facts()


@dataclass
class _Sum:
    """Parts of many commands."""

    first_loss_ns: int | None
    parts_ns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    after_ns: int = 0

    def add(self, span: tuple[int, int], found_ns: Mapping[str, int]) -> None:
        """Adds the parts of a command."""
        for part, amount_ns in found_ns.items():
            self.parts_ns[part] += amount_ns
        if self.first_loss_ns is not None and span[1] > self.first_loss_ns:
            self.after_ns += found_ns["congestion_window"]

    @property
    def shares(self) -> dict[str, float]:
        """Of all."""
        total = max(1, sum(self.parts_ns.values()))
        return {part: amount_ns / total for part, amount_ns in self.parts_ns.items()}

    @property
    def after_loss(self) -> float:
        """The share of the congestion window in commands that ended after the first loss."""
        return self.after_ns / max(1, sum(self.parts_ns.values()))


class _Reading:
    """A run, as its logs have it."""

    def __init__(self, draw: Draw, logs: Logs) -> None:
        self.draw, self.logs = draw, logs
        self.ways, self.losses, self.commands, self.full = logs.ways, logs.losses, logs.commands, logs.full
        self.io = union(np.column_stack([self.commands["begin"], self.commands["end"]]))
        own = (way.own_queue for way in self.ways.values())
        is_sent = (self.commands["is_read"] == 1) & (self.commands["at_first"] != NULL)
        self.sending = union(np.column_stack([self.commands["at_first"], self.commands["at_last"]])[is_sent])
        self.busy = union(*self.full["initiator"].values(), self.losses.all, *own)

    def facts(self) -> Facts:
        """All of it."""
        own = self.commands
        by_time, by_life = _Sum(self.losses.first_ns), _Sum(self.losses.first_ns)
        service, answers = [], []
        line = union(*(way.own_queue for way in self.ways.values()))
        foreign = union(*(way.foreign_queue for way in self.ways.values()))
        rounds = self.logs.rounds
        shared = self._shared_time()
        for place in range(len(own["begin"])):
            span = int(own["begin"][place]), int(own["end"][place])
            claims = {"transfer": line, "foreign_queue": foreign, "loss_recovery": self.losses.all}
            mine = self._claims(place, rounds.get(place, ()))
            service.append(mine.pop("service_ns"))
            answers += mine.pop("answers_ns")
            near = {name: _within(spans, span) for name, spans in (claims | mine).items()}
            by_life.add(span, attributed(span, near, "propagation"))
            first, last = (int(shared(each)) for each in span)
            by_time.add(
                span, attributed((first, last), {name: shared(each) for name, each in near.items()}, "propagation")
            )
        io_ns = _length(self.io)
        whole = int(own["end"].max() - own["begin"].min())
        delays = self.logs.delays_ns.values()
        latency = own["end"] - own["begin"]
        outliers = self._outliers(np.asarray(service))
        queue = np.concatenate([way.queue_ns for way in self.ways.values()] or [np.empty(0, np.int64)])
        return Facts(
            shares=by_time.shares,
            life_shares=by_life.shares,
            io_ns=io_ns,
            think_share=1 - io_ns / max(1, whole),
            line_share=_length(intersection(union(*(way.busy for way in self.ways.values())), self.io)) / max(1, io_ns),
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
            has_losses=self.losses.has_any,
            after_loss=by_time.after_loss,
            life_after_loss=by_life.after_loss,
            overtaken_share=self.logs.overtaken_share,
            command_count=len(latency),
            restarts=self._restarts(),
            cut_share=self.logs.cut_share,
            **outliers,
        )

    def _shared_time(self) -> Callable[[Any], Any]:
        """A clock that runs slower by the number of commands in flight: then their lives add up to the I/O time."""
        begun, ended = np.sort(self.commands["begin"]), np.sort(self.commands["end"])
        knots = np.unique(np.concatenate([begun, ended]))
        flying = np.searchsorted(begun, knots, side="right") - np.searchsorted(ended, knots, side="right")
        passed = np.append(0, np.cumsum(np.diff(knots) / np.maximum(flying[:-1], 1)))
        origin = int(knots[0])
        # from the first command on: a float holds these nanoseconds
        return lambda times: np.round(np.interp(np.asarray(times) - origin, knots - origin, passed)).astype(np.int64)

    def _restarts(self) -> int:
        pauses = self.io[1:, 0] - self.io[:-1, 1]
        least_ns = 200 * MS + sum(least for least, _ in self.logs.delays_ns.values())
        return int((pauses > least_ns).sum())

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
        arrived, first, last = own["at_command"], own["at_first"], own["at_last"]
        if first == NULL:
            return self._parts({}, union(), union([(arrived, own["at_end"])]), own["at_end"] - arrived)
        ready = self._ready(arrived, first)
        # data stand behind those of other commands
        behind = intersection(self.sending, union([(min(arrived + self.logs.service_ns, ready), ready)]))
        claims = self._stopped(self.full["target"], union(behind, [(ready, last)]))
        service = subtraction(union([(arrived, ready)]), self.losses.all)
        status = union([(last, own["at_end"])])
        is_held = self.draw["target.status"] == "apart_held"
        if not is_held:
            service = union(service, status)
        taken = subtraction(service, union(*claims.values()))
        return self._parts(claims, status if is_held else union(), service, _length(taken))

    def _ready(self, arrived: int, first: int) -> int:
        """When the target had the data: at its first data, or while a window was closed before it, at most then.

        A window that the command's own packet opened held none of its data.
        """
        least = arrived + self.logs.service_ns
        closed = union(*self.full["target"].values())
        place = int(np.searchsorted(closed[:, 0], first, side="left")) - 1
        opened_ns = max(first - self.logs.reaction_ns, arrived + self.logs.notice_ns)
        if place >= 0 and closed[place, 1] >= opened_ns:
            return int(np.clip(closed[place, 0], min(least, first), first))
        return first

    def _of_write(self, own: Mapping[str, int], rounds: Any) -> dict[str, Any]:
        begin, arrived = own["begin"], own["at_last"] if own["at_last"] != NULL else own["at_command"]
        status = own["at_end"]
        backlog, service, answers = [], [(arrived, status)], []
        if own["last"] == NULL or not rounds:
            backlog.append((begin, own["last"] if own["last"] != NULL else own["command_last"]))
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


def _within(spans: Spans, span: tuple[int, int]) -> Spans:
    """Those that touch the span."""
    if not len(spans):
        return spans
    first = int(np.searchsorted(spans[:, 1], span[0], side="right"))
    last = int(np.searchsorted(spans[:, 0], span[1], side="left"))
    return spans[first:last]


def _length(spans: Spans) -> int:
    return int(np.diff(spans).sum()) if len(spans) else 0
