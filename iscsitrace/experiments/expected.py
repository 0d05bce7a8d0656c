"""What the model says of a point, from its settings: of what was measured nothing goes in but what no setting decides.

C is the rate of the line times payload / frame, d the delay of the link, s what services and hosts are set to take. Of
several targets that blocks are dealt over each is a stream of its own: C is what the line that they share carries, or
what their own lines, or services one after the other, carry together, if that is less. In the real world the hosts take
time of their own, and the kernel advertises what window its packets let a buffer hold.

A status that the target hands out apart waits (Nagle) for the ACK of the last small segment before it. That is the end
of its data where these were handed to TCP at once: two more delays. Else the small end of the first part is sent, and
holds back that of the second, which goes with the data of the third ...; the end of the last part, with the status,
leaves when the first part is acknowledged: 2 d + first part / C after the first byte, or at once where the data take
longer. Parts are the commands of a system call, and what our target hands over at a time.

Of a block that is larger than the window a kernel also cuts segments where the window ends, and such a small one may
hold the end back or not. No setting decides that: in the real world the delays are taken that the packets show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from iscsitrace.analysis.model.prediction import predict
from iscsitrace.analysis.model.setting import Leg, Prediction, Setting, Solicitation
from iscsitrace.experiments import settings
from iscsitrace.experiments.vocabulary import Value

_ETHERNET_BYTES: Final = 14
_HEADERS_BYTES: Final = {False: 40, True: 60}
"""Of IP and TCP, over IPv4 and IPv6."""
_TIMESTAMPS_BYTES: Final = 12
_MSS: Final = 1460
_BITS: Final = 8
_SOCKET: Final = "socket_"
_SOCKET_BLOCK_BYTES, _SOCKET_DEPTH = 1 << 20, 64
"""Blocks as which the model takes a socket's bytes, and how many of them at once: more than path and window hold."""
_ACK_DELAY_NS: Final = 40e6
"""Of a delayed ACK, in both worlds."""
_TRANSMIT_BYTES: Final = 256 << 10
"""What our target hands to TCP in one system call."""


@dataclass(frozen=True)
class Surroundings:
    """What machine and kernel decide."""

    service_ns: float = 0.0
    """What the hosts take, beside what they are set to."""
    window_bytes: int | None = None
    """The largest window that the receiver of the data advertised; None where it is what it is set to."""
    delays: float | None = None
    """One-way delays that the packets of a cycle show; None where the settings decide them."""
    has_host_delays: bool = True
    """Whether hosts take what they are set to take, and nothing else: those of the simulated world."""


SIMULATED: Final = Surroundings()


def of_point(
    values: dict[str, Value], parameters: dict[str, Any] | None, surroundings: Surroundings = SIMULATED
) -> Prediction | None:
    """The prediction for a run; None for what the model has no words for, such as reads and writes mixed.

    ``parameters`` are the keys in force, as the results of a connection have them.
    """
    setting = setting_of(values, parameters or {}, surroundings)
    if setting is None:
        return None
    prediction = predict(setting)
    part = _part_bytes(values)
    is_cut = setting.operation == "read" and setting.queue_depth == 1 and part < setting.block_bytes
    if not (is_cut and _is_apart(values)):
        return prediction
    is_beyond = setting.window_bytes is not None and setting.window_bytes < setting.block_bytes
    if is_beyond and surroundings.delays is not None:
        return _waiting(prediction, max(0.0, surroundings.delays - prediction.k) * setting.delay_ns)
    return _cut(prediction, part)


def _cut(prediction: Prediction, part_bytes: int) -> Prediction:
    """That of a block in several parts: its end waits for the ACK of the first."""
    setting = prediction.setting
    first_ns = prediction.transfer_ns * part_bytes / setting.block_bytes
    wait_ns = max(0.0, 2 * setting.delay_ns + first_ns - prediction.transfer_ns - prediction.stall_ns)
    return _waiting(prediction, wait_ns)


def _waiting(prediction: Prediction, wait_ns: float) -> Prediction:
    """That of a block whose end is held back for so long."""
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
    values: dict[str, Value], parameters: dict[str, Any], surroundings: Surroundings = SIMULATED
) -> Setting | None:
    """The model's words for a point."""
    operation = str(values.get("workload.operation", "read"))
    if operation == "mixed" or settings.is_tuned(values):
        return None
    is_socket = operation.startswith(_SOCKET)
    operation = operation.removeprefix(_SOCKET)
    call, command = settings.call_bytes(values), _command_bytes(values)
    calls, commands = settings.queue_depth(values), -(-call // command)
    # the commands of a call go out together: of reads their data come as one block
    block, depth = (call, calls) if operation == "read" else (command, calls * commands)
    if "target.command-window" in values:
        depth = min(depth, _count(values, "target.command-window"))
    is_cut = operation == "write" and calls == 1 < commands and not is_socket
    if is_socket:
        # never waits for a command: the line, a window or losses decide
        block, depth = _SOCKET_BLOCK_BYTES, _SOCKET_DEPTH
    toward = "to-initiator" if operation == "read" else "to-target"
    link = settings.link_of(values, toward)
    ways = [settings.link_of(values, way).get("delay_ns", 0) for way in ("to-target", "to-initiator")]
    sender, receiver = ("target", "initiator") if operation == "read" else ("initiator", "target")
    delay_ns = sum(ways) / len(ways)
    # a capture of the real world shows pauses between calls as time of the hosts, too
    of_hosts = (
        ("initiator.host-delay", "target.host-delay", "workload.think-time") if surroundings.has_host_delays else ()
    )
    service_ns = surroundings.service_ns + settings.service_ns(values)
    spread_ns = settings.service_spread_ns(values)
    service_ns += sum(float(str(values.get(name, 0))) for name in of_hosts)
    # what is outstanding in a session is dealt over its connections
    connections = _count(values, "workload.connections")
    if not is_socket:
        connections = min(connections, depth)
        depth = max(1, round(depth / connections))
    window, data_pdu = _window(values, sender, receiver, surroundings), _data_pdu_bytes(operation, parameters)
    line, served = _line(values, link), _served(values, block, is_socket=is_socket)
    if served is not None and (line is None or served < line):
        # one after the other: the service is what a transfer is on a line
        line, service_ns, spread_ns = served, service_ns - settings.service_ns(values), 0.0
    return Setting(
        # bytes over a socket go as those of a read do: nobody asks for them
        operation="read" if is_socket else operation,
        block_bytes=block,
        delay_ns=delay_ns,
        c_bytes_per_s=line,
        service_ns=service_ns,
        service_spread_ns=spread_ns,
        queue_depth=depth,
        # of one call after the other: of several the commands of one go beside those of the next
        call_bytes=call if is_cut else None,
        connections=connections * _count(values, "workload.sessions") * settings.stripe_count(values),
        data_pdu_bytes=data_pdu,
        is_status_held=_is_apart(values) and not is_socket and (depth > 1 or _part_bytes(values) >= block),
        ack_delay_ns=_ACK_DELAY_NS if settings.tcp_of(values, receiver).get("delayed_ack", True) else 0.0,
        solicitation=_solicitation(parameters),
        window_bytes=window,
        segment_bytes=segment_bytes(values),
        loss=float(link.get("loss_probability", 0.0)),
        congestion_control=str(settings.tcp_of(values, sender).get("congestion_control", "cubic")),
        target_delays_ns=_mirror_delays_ns(values, delay_ns),
    )


def segment_bytes(values: dict[str, Value]) -> int:
    """Payload of a full segment: the lesser of both hosts' largest, less timestamps when both have them."""
    hosts = [settings.tcp_of(values, host) for host in ("initiator", "target")]
    largest = min(int(host.get("mss", _MSS)) for host in hosts)
    has_timestamps = all(host.get("timestamps", True) for host in hosts)
    return largest - (_TIMESTAMPS_BYTES if has_timestamps else 0)


def _line(values: dict[str, Value], link: dict[str, Any]) -> float | None:
    """What the line that all targets share carries, or all of their own together; None without a rate."""
    own, access = payload_rate(values, link), settings.access_of(values)
    lines = [own * settings.stripe_count(values)] if own is not None else []
    if "rate_bps" in access:
        shared = payload_rate(values, link | {"rate_bps": access["rate_bps"], "overhead_bytes": 0})
        lines += [shared] if shared is not None else []
    return min(lines, default=None)


def _served(values: dict[str, Value], block_bytes: int, *, is_socket: bool) -> float | None:
    """What targets get done that serve one command after the other; None of those that serve any number at once."""
    delay_ns = settings.service_ns(values)
    if is_socket or not values.get("target.is-serial") or not delay_ns:
        return None
    return settings.stripe_count(values) * min(block_bytes, _command_bytes(values)) * 1e9 / delay_ns


def payload_rate(values: dict[str, Value], link: dict[str, Any]) -> float | None:
    """Bytes a second that TCP can carry over a line; None without a rate."""
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
    """The keys in force."""
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
    """Most data of one data PDU: what its receiver takes, and no more than a burst."""
    receiver = "initiator" if operation == "read" else "target"
    limits = [parameters.get(f"{receiver}_max_recv_data_segment_length"), parameters.get("max_burst_length")]
    return min((int(each) for each in limits if each), default=None)


def _window(values: dict[str, Value], sender: str, receiver: str, surroundings: Surroundings) -> int | None:
    """The least of the receive window and what a send buffer lets go on: who waits for room in it writes again when a
    third is free, as in Linux, so each round trip carries two thirds, each with the segment that made room enough.
    """
    room = settings.tcp_of(values, sender).get("send_buffer_bytes")
    window = surroundings.window_bytes or settings.tcp_of(values, receiver).get("receive_buffer_bytes")
    limits = [
        None if room is None else int(room) * 2 // 3 + 2 * segment_bytes(values),
        None if window is None else int(window),
    ]
    return min((each for each in limits if each is not None), default=None)


def _is_apart(values: dict[str, Value]) -> bool:
    """Whether Nagle's algorithm may hold a read's status back."""
    return values.get("target.status") == "apart_held"


def _part_bytes(values: dict[str, Value]) -> int:
    """What the target hands to TCP at a time."""
    return min(_command_bytes(values), _TRANSMIT_BYTES)


def _command_bytes(values: dict[str, Value]) -> int:
    most = values.get("workload.max-transfer") or values.get("workload.block-size")
    return min(settings.call_bytes(values), int(str(most))) if most else settings.call_bytes(values)


def _count(values: dict[str, Value], name: str) -> int:
    return int(str(values.get(name, 1)))


def _mirror_delays_ns(values: dict[str, Value], delay_ns: float) -> tuple[float, ...]:
    """The delay to each target that has a copy; none where there is one copy."""
    if settings.copy_count(values) == 1:
        return ()
    return tuple(delay_ns if each is None else float(str(each)) for each in settings.target_delays(values))
