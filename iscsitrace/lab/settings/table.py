"""Every setting of a run, declared once: how it is written, the field that takes it, and its name on the command line.

``link.one-way-delay = "8ms"`` in a definition is ``--set one-way-delay=8ms``, and ``delay_ns`` of a link in the core.
To add a setting, add a row: definitions, commands, their lists of settings and the run then have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from iscsitrace.lab.settings import kinds
from iscsitrace.lab.settings.kinds import RATE, SHARE, SIZE, SWITCH, TIME, Kind, Value, count, one_of
from iscsitrace.wording.login_keys import LOGIN_KEYS

DIRECTIONS = ("to-target", "to-initiator")
MODES = ("read", "write", "mixed")
SOCKETS = ("socket-read", "socket-write")
"""Bulk transfers over plain TCP, without iSCSI: the most that the path can carry."""
OPERATIONS = (*MODES, *SOCKETS)
SIMULATED_CONTROLS = ("reno", "cubic", "tahoe")
"""Congestion control that simulated hosts have."""
KERNEL_CONTROLS = ("reno", "cubic", "bbr")
"""Congestion control that the kernel's hosts have, or may have."""
TARGET_NAME = "iqn.2025-01.org.iscsitrace:memory"
MOST_CONNECTIONS = 64


class Part(StrEnum):
    """A struct of a run's settings, as `structs.of_run` and the core name them."""

    LINK = "world.paths[].to_target, .to_initiator"
    ACCESS = "world.access"
    TCP = "world.initiator_tcp, world.target_tcp"
    WORLD = "world"
    KEYS = "client.login.offers, portals[].keys"
    WORKLOAD = "client.workload"
    TUNING = "client.workload.tuning"
    PORTAL = "portals[]"
    PROGRAM = "lab.real.Programs"
    COMPUTED = ""
    """No field of this value alone: `structs` computes what it becomes."""


@dataclass(frozen=True)
class Setting:
    """A setting: how its value is written, the field of a run's settings that takes the value, and its option."""

    kind: Kind
    part: Part = Part.COMPUTED
    field: str = ""
    """Empty for a computed one, and for a value that is several fields."""
    help: str = ""
    """What it means, in one line; empty if only definitions have it."""
    default: str | bool | None = None
    """On the command line, as it is typed. Definitions leave it to the core, which has the same."""
    option: str = ""
    """Its name on the command line, if that is another one."""
    flag: Value | None = None
    """What `yes` stands for, where the command line takes only yes or no."""
    is_repeatable: bool = False
    """Whether the command line has it once for each value of a list."""


Rows = Mapping[str, Setting]


_LINK: Rows = {
    "rate": Setting(RATE, Part.LINK, "rate_bps", "Rate of the line, like 320Mbit. Unlimited if not set."),
    "one-way-delay": Setting(TIME, Part.LINK, "delay_ns", "Delay of every packet in each direction."),
    "queue": Setting(
        kinds.QUEUE,
        Part.LINK,
        help="Queue limit in packets (100) or bytes (64K), or none. 1000 packets if not set.",
    ),
    "queue-packets": Setting(kinds.COUNT, Part.LINK, "queue_packets"),
    "queue-bytes": Setting(SIZE, Part.LINK, "queue_bytes"),
    "loss": Setting(SHARE, Part.LINK, "loss_probability", "Probability of random packet loss: 0.1%, 0.001 or 1/65536."),
    "burst-loss": Setting(
        kinds.BURST_LOSS, Part.LINK, "burst_loss", "Loss in bursts (Gilbert-Elliott): ENTER,LEAVE[,BAD[,GOOD]]."
    ),
    "jitter": Setting(
        TIME, Part.LINK, "jitter_ns", "Additional delay from 0 to TIME, uniformly distributed. Packets stay in order."
    ),
    "reorder": Setting(
        kinds.REORDERING, Part.LINK, help="Delay this share of packets further, by this time, like 1%,2ms."
    ),
    "overhead": Setting(
        SIZE, Part.LINK, "overhead_bytes", "Bytes on the line for each packet beyond its frame: 24 on Ethernet."
    ),
}
_BOTH_DIRECTIONS: Rows = {
    "jitter-reorders": Setting(
        SWITCH,
        Part.LINK,
        "is_jitter_reordering",
        "Let packets with less jitter overtake others.",
        flag=True,
    ),
    "target-delays": Setting(
        kinds.TIMES,
        help="One-way delay to one target. Repeat it for each target.",
        option="target-delay",
        is_repeatable=True,
    ),
    "access-rate": Setting(RATE, Part.ACCESS, "rate_bps", "Rate of a line at the initiator that all paths share."),
    "access-queue-packets": Setting(kinds.COUNT, Part.ACCESS, "queue_packets"),
    "bypass-from": Setting(RATE),
}
_TCP: Rows = {
    "congestion-control": Setting(
        one_of(*dict.fromkeys((*SIMULATED_CONTROLS, *KERNEL_CONTROLS))),
        Part.TCP,
        "congestion_control",
        "Congestion control (cubic). Simulated hosts have no bbr; others have it if their kernel has, and no tahoe.",
    ),
    "window": Setting(
        SIZE,
        Part.TCP,
        "receive_buffer_bytes",
        "Largest receive window (3M).",
        option="receive-buffer",
    ),
    "send-buffer": Setting(SIZE, Part.TCP, "send_buffer_bytes", "Send buffer: unsent and unacknowledged bytes (4M)."),
    "mss": Setting(count(88, 65_483), Part.TCP, "mss", "Largest segment payload, TCP timestamps included (1460)."),
    "initial-window": Setting(count(1, 1000), Part.TCP, "initial_window", "Initial cwnd in segments (10)."),
    "delayed-ack": Setting(
        SWITCH, Part.TCP, "delayed_ack", "Delay ACKs until a second segment, data to send, or 40 ms (on)."
    ),
    "nagle": Setting(SWITCH, Part.TCP, "nagle", "Nagle's algorithm (off; on for a target with status=apart-held)."),
    "sack": Setting(SWITCH, Part.TCP, "sack", "Selective acknowledgment (on)."),
    "timestamps": Setting(SWITCH, Part.TCP, "timestamps", "TCP timestamps (on)."),
    "window-scaling": Setting(
        SWITCH, Part.TCP, "window_scaling", "Window scaling (on). Without it no window exceeds 65535 bytes."
    ),
    "hystart": Setting(SWITCH, Part.TCP, "hystart", "HyStart: CUBIC leaves slow start when the RTT rises (on)."),
    "slow-start-after-idle": Setting(
        SWITCH, Part.TCP, "slow_start_after_idle", "Reduce cwnd after an idle period (on)."
    ),
}
_WORKLOAD: Rows = {
    "operation": Setting(one_of(*OPERATIONS), Part.WORKLOAD, "operation"),
    "block-size": Setting(
        SIZE, Part.WORKLOAD, "block_size_bytes", "I/O size: data of one command, 512 to 16M.", default="64K"
    ),
    "system-call-size": Setting(
        SIZE, Part.WORKLOAD, "system_call_bytes", "Size of a system call, which is split into commands as by a kernel."
    ),
    "max-transfer": Setting(
        SIZE, Part.WORKLOAD, "max_transfer_bytes", "Largest command of a system call. The block size if not set."
    ),
    "queue-depth": Setting(
        count(1, 65_536),
        help="System calls in flight per session; with --connections auto per connection.",
        default="1",
    ),
    "connection-depth": Setting(count(1, 65_536)),
    "bytes": Setting(SIZE, Part.WORKLOAD, "total_bytes", "Bytes to transfer in total."),
    "calls": Setting(kinds.COUNT),
    "seconds": Setting(kinds.SECONDS, help="Duration of the workload."),
    "access": Setting(
        one_of("sequential", "random"),
        Part.WORKLOAD,
        "access",
        "Random addresses, multiples of the block size, instead of sequential ones.",
        default="sequential",
        option="random",
        flag="random",
    ),
    "read-share": Setting(SHARE, Part.WORKLOAD, "read_share", "Share of reads in a mixed workload.", default="50%"),
    "think-time": Setting(
        TIME, Part.WORKLOAD, "think_time_ns", "Pause between the end of a system call and the next.", default="0s"
    ),
    "verify": Setting(
        SWITCH,
        Part.WORKLOAD,
        "verify",
        "Check what is read against the pattern that writes store.",
        default=False,
        flag=True,
    ),
    "pattern-seed": Setting(
        kinds.COUNT, Part.WORKLOAD, "pattern_seed", "Seed of the pattern that writes store.", default="1"
    ),
    "contents": Setting(
        one_of("pattern", "zeros"),
        Part.WORKLOAD,
        "contents",
        "Write zeros instead of the pattern.",
        default="pattern",
        option="zeros",
        flag="zeros",
    ),
    "start-lba": Setting(kinds.COUNT, Part.WORKLOAD, "start_lba", "First logical block.", default="0"),
    "span": Setting(SIZE, Part.WORKLOAD, "span_bytes", "Bytes that are used from start-lba on. All if not set."),
    # `--connections` also takes a rule
    "connections": Setting(count(1, MOST_CONNECTIONS), Part.WORKLOAD, "connections"),
    "connections-rule": Setting(one_of("model", "golden", "plain-golden", "measured")),
    "change-to": Setting(count(1, MOST_CONNECTIONS), Part.TUNING, "change_to"),
    "change-after": Setting(kinds.COUNT, Part.TUNING, "change_after"),
    "measure-time": Setting(
        TIME, Part.TUNING, "measure_ns", "With auto: how long to measure each number of connections.", default="3s"
    ),
    "measure-bytes": Setting(
        SIZE, Part.TUNING, "measure_bytes", "With auto: how many bytes to measure, instead of a time."
    ),
    "measure-at-once": Setting(
        SWITCH,
        Part.TUNING,
        "is_unsettled",
        "With auto: measure right after a change, without waiting until each connection has completed a "
        "command, and count bytes of completed commands, not bytes as they arrive.",
        default=False,
        flag=True,
    ),
    "start-connections": Setting(
        count(1, MOST_CONNECTIONS),
        Part.TUNING,
        "start_connections",
        "With auto:golden: number of connections at the start.",
        default="4",
    ),
    "most-connections": Setting(
        count(1, MOST_CONNECTIONS),
        Part.TUNING,
        "most_connections",
        "With auto: limit of the number. The target may set a lower one.",
        default=str(MOST_CONNECTIONS),
    ),
    "path-rate": Setting(RATE, help="With auto:model: rate of the path, if it is known."),
    "sessions": Setting(count(1, 1024), Part.WORKLOAD, "sessions", "Sessions per target.", default="1"),
    "layout": Setting(
        one_of("stripe", "mirror"),
        Part.WORKLOAD,
        "layout",
        "Write to every target, instead of blocks in turn; a write completes when the slowest acknowledges.",
        default="stripe",
        option="mirror",
        flag="mirror",
    ),
    "deal": Setting(
        one_of("turn-then-finished", "turn", "least-loaded"),
        Part.WORKLOAD,
        "dealing",
        "Which connection of a session carries the next command.",
        default="turn-then-finished",
    ),
    "errors-allowed": Setting(
        kinds.COUNT, Part.WORKLOAD, "errors_allowed", "Commands that may fail before the run ends.", default="0"
    ),
}
_INITIATOR: Rows = {
    "host-delay": Setting(
        TIME,
        Part.WORLD,
        "initiator_host_delay_ns",
        "Time from the arrival of bytes until the initiator reads them. TCP acknowledges them at once.",
        default="0s",
        option="initiator-host-delay",
    ),
    "program": Setting(
        one_of("iscsitrace", "iscsi-perf", "open-iscsi"),
        Part.PROGRAM,
        "initiator",
        "In namespaces iscsitrace (default) or iscsi-perf, which takes block-size, queue-depth, seconds and random of "
        "the workload; in guests open-iscsi.",
        option="initiator-program",
    ),
    "driver": Setting(
        one_of("events", "threads"),
        Part.PROGRAM,
        "driver",
        "One thread for all connections, or two threads per connection, one to receive and one to send.",
        default="events",
    ),
    "receive": Setting(
        one_of("copy", "discard"),
        Part.PROGRAM,
        "receive",
        "Copy all received data, or let the kernel discard read data that are not verified.",
        default="copy",
    ),
}
_TARGET: Rows = {
    "program": Setting(
        one_of("iscsitrace", "tgt", "istgt", "lio"),
        Part.PROGRAM,
        "target",
        "In namespaces iscsitrace (default), tgt or istgt; in guests lio (default) or tgt. Other programs than "
        "iscsitrace take lun, name and chap of the target's settings, in guests also target-key.",
        option="target-program",
    ),
    "host-delay": Setting(
        TIME,
        Part.WORLD,
        "target_host_delay_ns",
        "The same for every target.",
        default="0s",
        option="target-host-delay",
    ),
    "count": Setting(count(1, 64), help="Number of targets, each with a path (1).", option="targets"),
    "name": Setting(kinds.TEXT, help="TargetName.", default=TARGET_NAME),
    "status": Setting(
        one_of("in-data", "apart", "apart-held"),
        Part.PORTAL,
        "status",
        "Status of reads: in the last Data-In, in a SCSI Response after it, or in one that Nagle's algorithm holds "
        "until the ACK.",
        default="in-data",
    ),
    "service-delay": Setting(
        kinds.SERVICE, help="Service time: 2ms, 30ms-40ms (uniform) or exp:5ms (exponential, mean)."
    ),
    "read-delay": Setting(kinds.SERVICE, help="Service time of reads, if different."),
    "write-delay": Setting(kinds.SERVICE, help="Service time of writes, if different."),
    "is-serial": Setting(
        SWITCH,
        help="Serve the commands of a logical unit one after another, instead of at the same time.",
        default=False,
        option="serial",
        flag=True,
    ),
    "command-window": Setting(
        count(1), Part.PORTAL, "command_window_count", "Commands that a session may have in flight (128)."
    ),
    "r2t-order": Setting(
        one_of("in-order", "reverse", "shuffled"),
        Part.PORTAL,
        "r2t_order",
        "Order in which R2Ts request the parts of a write.",
        default="in-order",
    ),
}
_CAPTURE: Rows = {
    "at": Setting(one_of("both", "initiator", "none")),
    "is-ipv6": Setting(
        SWITCH,
        Part.WORLD,
        "is_ipv6",
        "IPv6 instead of IPv4.",
        default=False,
        option="ipv6",
        flag=True,
    ),
    "snaplen": Setting(
        SIZE, Part.WORLD, "snaplen_bytes", "Bytes of each packet in the captures; 0 is all.", default="0"
    ),
    "is-untapped": Setting(
        SWITCH,
        help="Write no captures; truth.json has the initiator's view of commands. For long runs.",
        default=False,
        option="no-capture",
        flag=True,
    ),
    "tcp-log": Setting(
        one_of("none", "windows", "pipe"),
        Part.WORLD,
        "tcp_log",
        "Changes of a sender's windows in truth.json: of cwnd and ssthresh (windows); also of the peer's window and "
        "the bytes in flight, on nearly every packet (pipe).",
        default="windows",
    ),
}
_KEYS: Rows = {name: Setting(kinds.of_key(name), Part.KEYS, field) for name, (field, _) in LOGIN_KEYS.items()}


def _under(section: str, rows: Rows) -> dict[str, Setting]:
    return {f"{section}.{name}": setting for name, setting in rows.items()}


def _of_direction(direction: str) -> dict[str, Setting]:
    """The settings of a link in one direction, each with a separate option."""
    only = f"Only {direction.replace('-', ' the ')}."
    return _under(
        f"link.{direction}",
        {
            name: replace(setting, help=setting.help and only, option=f"{direction}-{name}")
            for name, setting in _LINK.items()
        },
    )


SETTINGS: dict[str, Setting] = {
    **_under("link", {**_LINK, **_BOTH_DIRECTIONS}),
    **{name: setting for direction in DIRECTIONS for name, setting in _of_direction(direction).items()},
    **_under("tcp", _TCP),
    **_under("initiator.tcp", _TCP),
    **_under("target.tcp", _TCP),
    **_under("initiator.keys", _KEYS),
    **_under("target.keys", _KEYS),
    **_under("initiator", _INITIATOR),
    **_under("target", _TARGET),
    **_under("workload", _WORKLOAD),
    **_under("capture", _CAPTURE),
}
"""Every setting by its dotted name. Those of ``tcp`` apply to both hosts, those of ``link`` to both directions.

Programs are used in the real world only.
"""
