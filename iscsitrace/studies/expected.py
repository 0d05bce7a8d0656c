"""The model's prediction for a point, from its settings; measurements enter only where no setting decides.

C is the rate of the line times payload / frame, d the delay of the link, s the service time plus the host delays.
Blocks that are striped over several targets make a stream for each target. C is then what the shared line carries, or
the sum of the targets' own lines or service rates, if that is less. In the real world the hosts take time of their own,
and the window that the kernel advertises depends on how its packets fill a buffer.

A status that the target sends apart waits (Nagle's algorithm) for the ACK of the last small segment before it. That is
the end of its data if they were written to TCP in one piece: two more delays. Otherwise the small end of the first part
goes out at once and holds back the end of the second, which goes out with the data of the third, and so on. The end of
the last part, with the status, leaves when the first part is acknowledged: 2 d + first part / C after the first byte,
or at once if the data take longer. Parts are the commands of a system call, and the pieces in which our target writes
to TCP.

A kernel also cuts a segment where the window ends. In a block larger than the window, such a small segment may or may
not hold back the end. No setting decides that: in the real world the model takes the delays that the capture shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.lab.settings import structs as settings
from iscsitrace.lab.settings.kinds import Value
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import CONGESTION_CONTROLS, Leg, Prediction, Setting, Solicitation, in_commands_of_session

_ETHERNET_BYTES: Final = 14
_HEADERS_BYTES: Final = {False: 40, True: 60}
"""IP and TCP headers, for IPv4 and IPv6."""
_TIMESTAMPS_BYTES: Final = 12
_MSS: Final = 1460
_BITS: Final = 8
_SOCKET: Final = "socket_"
_SOCKET_BLOCK_BYTES, _SOCKET_DEPTH = 1 << 20, 64
"""A plain TCP transfer as the model sees it: blocks in flight beyond what path and window hold."""
_ACK_DELAY_NS: Final = 40e6
"""The timer of a delayed ACK, in both worlds."""
_TRANSMIT_BYTES: Final = 256 << 10
"""The most that our target writes to TCP in one system call."""


@dataclass(frozen=True)
class Environment:
    """What the machine and the kernel decide."""

    service_ns: float = 0.0
    """Time of the hosts beyond their settings."""
    window_bytes: int | None = None
    """The largest window that the receiver of the data advertised; None for the window that is set."""
    delays: float | None = None
    """One-way delays per command in the capture; None where the settings decide them."""
    has_host_delays: bool = True
    """Whether the hosts take exactly the delays that are set, as in the simulated world."""


SIMULATED: Final = Environment()


def of_point(
    values: dict[str, Value], parameters: dict[str, Any] | None, surroundings: Environment = SIMULATED
) -> Prediction | None:
    """The prediction for a run; None for what the model does not describe: mixed reads and writes, losses with another
    congestion control than Reno and CUBIC, held statuses where the command window allows more than one command of a
    split read, but not all, and writes in a queue to a target that may hold its R2Ts and statuses.

    ``parameters`` are the negotiated parameters, as in the results of a connection.
    """
    setting = setting_of(values, parameters or {}, surroundings)
    if setting is None:
        return None
    is_beyond = setting.window_bytes is not None and setting.window_bytes < setting.block_bytes
    if is_beyond and surroundings.delays is not None and _is_in_parts(setting):
        prediction = predict(replace(setting, is_status_held=False))
        return _waiting(prediction, max(0.0, surroundings.delays - prediction.k) * setting.delay_ns)
    return predict(setting)


def _is_in_parts(setting: Setting) -> bool:
    """Whether one read at a time, with a held status, is written to TCP in several parts."""
    is_long = setting.part_bytes is not None and setting.part_bytes < setting.block_bytes
    return setting.is_status_held and setting.queue_depth == 1 and is_long


def _waiting(prediction: Prediction, wait_ns: float) -> Prediction:
    """The prediction for a block whose end is held back for ``wait_ns``."""
    setting = prediction.setting
    period_ns = prediction.period_ns + wait_ns
    share = prediction.period_ns / period_ns
    delays = wait_ns / setting.delay_ns if setting.delay_ns else 0.0
    leg = Leg("ack", delays, "the end of the block waits for the ACK of an earlier part (Nagle)")
    return replace(
        prediction,
        period_ns=period_ns,
        throughput_bytes_per_s=prediction.throughput_bytes_per_s * share,
        idle_fraction=1 - (1 - prediction.idle_fraction) * share,
        legs=(*prediction.legs, leg),
    )


def setting_of(
    values: dict[str, Value], parameters: dict[str, Any], surroundings: Environment = SIMULATED
) -> Setting | None:
    """A point as the model's setting; None where the model does not describe it."""
    operation = str(values.get("workload.operation", "read"))
    if operation == "mixed" or settings.is_tuned(values):
        return None
    is_socket = operation.startswith(_SOCKET)
    operation = operation.removeprefix(_SOCKET)
    toward = "to-initiator" if operation == "read" else "to-target"
    link = settings.link_of(values, toward)
    ways = [settings.link_of(values, way).get("delay_ns", 0) for way in ("to-target", "to-initiator")]
    sender, receiver = ("target", "initiator") if operation == "read" else ("initiator", "target")
    delay_ns = sum(ways) / len(ways)
    # in the real world, the capture's host time includes the pauses between calls
    of_hosts = (
        ("initiator.host-delay", "target.host-delay", "workload.think-time") if surroundings.has_host_delays else ()
    )
    service_ns = surroundings.service_ns + settings.service_ns(values)
    spread_ns = settings.service_spread_ns(values)
    service_ns += sum(float(str(values.get(name, 0))) for name in of_hosts)
    control, loss = (
        settings.tcp_of(values, sender).get("congestion_control", "cubic"),
        link.get("loss_probability", 0.0),
    )
    if loss and control not in CONGESTION_CONTROLS:
        return None
    line, served = _line(values, link), _served(values, is_socket=is_socket)
    if served is not None and (line is None or served < line):
        # a serial target: its service time acts like transfer time on a line
        line, service_ns, spread_ns = served, service_ns - settings.service_ns(values), 0.0
    setting = Setting(
        # a plain TCP transfer is sent like the data of a read: without R2Ts
        operation="read" if is_socket else operation,
        block_bytes=_SOCKET_BLOCK_BYTES if is_socket else _command_bytes(values),
        delay_ns=delay_ns,
        c_bytes_per_s=line,
        service_ns=service_ns,
        service_spread_ns=spread_ns,
        queue_depth=settings.queue_depth(values),
        connections=_count(values, "workload.connections"),
        data_pdu_bytes=_data_pdu_bytes(operation, parameters),
        is_status_held=operation == "read" and _is_apart(values) and not is_socket,
        part_bytes=None if is_socket else _part_bytes(values),
        ack_delay_ns=_ACK_DELAY_NS if settings.tcp_of(values, receiver).get("delayed_ack", True) else 0.0,
        solicitation=_solicitation(parameters),
        window_bytes=_window(values, sender, receiver, surroundings),
        segment_bytes=segment_bytes(values),
        loss=loss,
        congestion_control=control if control in CONGESTION_CONTROLS else CONGESTION_CONTROLS[0],
        target_delays_ns=_mirror_delays_ns(values, delay_ns),
    )
    alike = _count(values, "workload.sessions") * settings.stripe_count(values)
    if is_socket:
        # no command to wait for: the line, a window or losses decide
        return replace(setting, queue_depth=_SOCKET_DEPTH, connections=setting.connections * alike)
    window = _count(values, "target.command-window") if "target.command-window" in values else None
    try:
        session = in_commands_of_session(setting, settings.call_bytes(values), window)
    except InputInvalid:
        return None
    if operation == "write" and _is_apart(values) and session.queue_depth > 1:
        # Nagle's algorithm holds back their R2Ts and statuses, too, while an earlier one is not acknowledged
        return None
    return replace(session, connections=session.connections * alike)


def line_bytes_per_s(values: dict[str, Value]) -> float | None:
    """Throughput at which the line is full: its TCP payload rate / the copies of each block; None without a rate.

    A target that serves commands one after another may be slower; it is no line.
    """
    is_write = str(values.get("workload.operation", "read")).endswith("write")
    found = _line(values, settings.link_of(values, "to-target" if is_write else "to-initiator"))
    return None if found is None else found / settings.copy_count(values)


def segment_bytes(values: dict[str, Value]) -> int:
    """Payload of a full segment: the smaller MSS of both hosts, minus timestamps when both use them."""
    hosts = [settings.tcp_of(values, host) for host in ("initiator", "target")]
    largest = min(int(host.get("mss", _MSS)) for host in hosts)
    has_timestamps = all(host.get("timestamps", True) for host in hosts)
    return largest - (_TIMESTAMPS_BYTES if has_timestamps else 0)


def _line(values: dict[str, Value], link: dict[str, Any]) -> float | None:
    """Rate of the shared line, or the sum of the targets' own lines if that is less; None without a rate."""
    own, access = payload_rate(values, link), settings.access_of(values)
    lines = [own * settings.stripe_count(values)] if own is not None else []
    if "rate_bps" in access:
        shared = payload_rate(values, link | {"rate_bps": access["rate_bps"], "overhead_bytes": 0})
        lines += [shared] if shared is not None else []
    return min(lines, default=None)


def _served(values: dict[str, Value], *, is_socket: bool) -> float | None:
    """Bytes/s that serial targets serve; None for targets that serve commands in parallel."""
    delay_ns = settings.service_ns(values)
    if is_socket or not values.get("target.is-serial") or not delay_ns:
        return None
    return settings.stripe_count(values) * _command_bytes(values) * 1e9 / delay_ns


def payload_rate(values: dict[str, Value], link: dict[str, Any]) -> float | None:
    """Payload bytes/s of TCP over a line; None without a rate."""
    rate = link.get("rate_bps")
    if rate is None:
        return None
    hosts = [settings.tcp_of(values, host) for host in ("initiator", "target")]
    options = _TIMESTAMPS_BYTES if all(host.get("timestamps", True) for host in hosts) else 0
    payload = segment_bytes(values)
    headers = _ETHERNET_BYTES + _HEADERS_BYTES[bool(values.get("capture.is-ipv6"))] + options
    frame = payload + headers + int(link.get("overhead_bytes", 0))
    return float(rate) / _BITS * payload / frame


def _solicitation(parameters: dict[str, Any]) -> Solicitation:
    """The negotiated parameters for writes."""
    if not parameters:
        return Solicitation()
    return Solicitation(
        is_initial_r2t=bool(parameters["initial_r2t"]),
        is_immediate_data=bool(parameters["immediate_data"]),
        first_burst_bytes=int(parameters["first_burst_length"]),
        max_burst_bytes=int(parameters["max_burst_length"]),
        max_outstanding_r2t=int(parameters["max_outstanding_r2t"]),
        max_recv_data_segment_bytes=int(parameters["target_max_recv_data_segment_length"]),
    )


def _data_pdu_bytes(operation: str, parameters: dict[str, Any]) -> int | None:
    """The largest data segment of a Data-In or Data-Out PDU: MaxRecvDataSegmentLength, limited by MaxBurstLength."""
    receiver = "initiator" if operation == "read" else "target"
    limits = [parameters.get(f"{receiver}_max_recv_data_segment_length"), parameters.get("max_burst_length")]
    return min((int(each) for each in limits if each), default=None)


def _window(values: dict[str, Value], sender: str, receiver: str, surroundings: Environment) -> int | None:
    """The smaller of the receive window and what the send buffer allows per round trip. As in Linux, a blocked writer
    continues when a third of the buffer is free, so a round trip carries two thirds, and a segment at each end.
    """
    room = settings.tcp_of(values, sender).get("send_buffer_bytes")
    window = surroundings.window_bytes or settings.tcp_of(values, receiver).get("receive_buffer_bytes")
    limits = [
        None if room is None else int(room) * 2 // 3 + 2 * segment_bytes(values),
        None if window is None else int(window),
    ]
    return min((each for each in limits if each is not None), default=None)


def _is_apart(values: dict[str, Value]) -> bool:
    """Whether Nagle's algorithm may hold back the status of a read."""
    return values.get("target.status") == "apart_held"


def _part_bytes(values: dict[str, Value]) -> int:
    """The piece that the target writes to TCP at a time."""
    return min(_command_bytes(values), _TRANSMIT_BYTES)


def _command_bytes(values: dict[str, Value]) -> int:
    most = values.get("workload.max-transfer") or values.get("workload.block-size")
    return min(settings.call_bytes(values), int(str(most))) if most else settings.call_bytes(values)


def _count(values: dict[str, Value], name: str) -> int:
    return int(str(values.get(name, 1)))


def _mirror_delays_ns(values: dict[str, Value], delay_ns: float) -> tuple[float, ...]:
    """The delay to each target of a mirror; empty without a mirror."""
    if settings.copy_count(values) == 1:
        return ()
    return tuple(delay_ns if each is None else float(str(each)) for each in settings.target_delays(values))
