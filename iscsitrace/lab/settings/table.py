"""Every setting of a run, declared once: how it is written, the field that takes it, and its name on the command line.

``link.one-way-delay = "8ms"`` in a definition is ``--set one-way-delay=8ms``, and ``delay_ns`` of a link in the core.
To add a setting, add a row: definitions, commands, their lists of settings and the run then have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from iscsitrace.lab.settings import kinds
from iscsitrace.lab.settings.kinds import RATE, SHARE, SIZE, SWITCH, TIME, Value, ValueKind, count, one_of
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


class Struct(StrEnum):
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
class RunSetting:
    """A setting: how its value is written, the field of a run's settings that takes the value, and its option."""

    kind: ValueKind
    part: Struct = Struct.COMPUTED
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


Rows = Mapping[str, RunSetting]


_LINK: Rows = {
    "rate": RunSetting(RATE, Struct.LINK, "rate_bps", "Rate of the line, like 320Mbit. Unlimited if not set."),
    "one-way-delay": RunSetting(TIME, Struct.LINK, "delay_ns", "Delay of every packet in each direction."),
    "queue": RunSetting(
        kinds.QUEUE,
        Struct.LINK,
        help="Queue limit in packets (100) or bytes (64K), or none. 1000 packets if not set.",
    ),
    "queue-packets": RunSetting(kinds.COUNT, Struct.LINK, "queue_packets"),
    "queue-bytes": RunSetting(SIZE, Struct.LINK, "queue_bytes"),
    "loss": RunSetting(
        SHARE, Struct.LINK, "loss_probability", "Probability of random packet loss: 0.1%, 0.001 or 1/65536."
    ),
    "burst-loss": RunSetting(
        kinds.BURST_LOSS, Struct.LINK, "burst_loss", "Loss in bursts (Gilbert-Elliott): ENTER,LEAVE[,BAD[,GOOD]]."
    ),
    "jitter": RunSetting(
        TIME, Struct.LINK, "jitter_ns", "Additional delay from 0 to TIME, uniformly distributed. Packets stay in order."
    ),
    "reorder": RunSetting(
        kinds.REORDERING, Struct.LINK, help="Delay this share of packets further, by this time, like 1%,2ms."
    ),
    "overhead": RunSetting(
        SIZE, Struct.LINK, "overhead_bytes", "Bytes on the line for each packet beyond its frame: 24 on Ethernet."
    ),
}
_BOTH_DIRECTIONS: Rows = {
    "jitter-reorders": RunSetting(
        SWITCH,
        Struct.LINK,
        "is_jitter_reordering",
        "Let packets with less jitter overtake others.",
        flag=True,
    ),
    "target-delays": RunSetting(
        kinds.TIMES,
        help="One-way delay to one target. Repeat it for each target.",
        option="target-delay",
        is_repeatable=True,
    ),
    "access-rate": RunSetting(RATE, Struct.ACCESS, "rate_bps", "Rate of a line at the initiator that all paths share."),
    "access-queue-packets": RunSetting(kinds.COUNT, Struct.ACCESS, "queue_packets"),
    "bypass-from": RunSetting(RATE),
}
_TCP: Rows = {
    "congestion-control": RunSetting(
        one_of(*dict.fromkeys((*SIMULATED_CONTROLS, *KERNEL_CONTROLS))),
        Struct.TCP,
        "congestion_control",
        "Congestion control (cubic). Simulated hosts have no bbr; others have it if their kernel has, and no tahoe.",
    ),
    "window": RunSetting(
        SIZE,
        Struct.TCP,
        "receive_buffer_bytes",
        "Largest receive window (3M).",
        option="receive-buffer",
    ),
    "send-buffer": RunSetting(
        SIZE, Struct.TCP, "send_buffer_bytes", "Send buffer: unsent and unacknowledged bytes (4M)."
    ),
    "mss": RunSetting(count(88, 65_483), Struct.TCP, "mss", "Largest segment payload, TCP timestamps included (1460)."),
    "initial-window": RunSetting(count(1, 1000), Struct.TCP, "initial_window", "Initial cwnd in segments (10)."),
    "delayed-ack": RunSetting(
        SWITCH, Struct.TCP, "delayed_ack", "Delay ACKs until a second segment, data to send, or 40 ms (on)."
    ),
    "nagle": RunSetting(
        SWITCH, Struct.TCP, "nagle", "Nagle's algorithm (off; on for a target with status=apart-held)."
    ),
    "sack": RunSetting(SWITCH, Struct.TCP, "sack", "Selective acknowledgment (on)."),
    "timestamps": RunSetting(SWITCH, Struct.TCP, "timestamps", "TCP timestamps (on)."),
    "window-scaling": RunSetting(
        SWITCH, Struct.TCP, "window_scaling", "Window scaling (on). Without it no window exceeds 65535 bytes."
    ),
    "hystart": RunSetting(SWITCH, Struct.TCP, "hystart", "HyStart: CUBIC leaves slow start when the RTT rises (on)."),
    "slow-start-after-idle": RunSetting(
        SWITCH, Struct.TCP, "slow_start_after_idle", "Reduce cwnd after an idle period (on)."
    ),
}
_WORKLOAD: Rows = {
    "operation": RunSetting(one_of(*OPERATIONS), Struct.WORKLOAD, "operation"),
    "block-size": RunSetting(
        SIZE, Struct.WORKLOAD, "block_size_bytes", "I/O size: data of one command, 512 to 16M.", default="64K"
    ),
    "system-call-size": RunSetting(
        SIZE,
        Struct.WORKLOAD,
        "system_call_bytes",
        "Size of a system call, which is split into commands as by a kernel.",
    ),
    "max-transfer": RunSetting(
        SIZE, Struct.WORKLOAD, "max_transfer_bytes", "Largest command of a system call. The block size if not set."
    ),
    "queue-depth": RunSetting(
        count(1, 65_536),
        help="System calls in flight per session; with --connections auto per connection.",
        default="1",
    ),
    "connection-depth": RunSetting(count(1, 65_536)),
    "bytes": RunSetting(SIZE, Struct.WORKLOAD, "total_bytes", "Bytes to transfer in total."),
    "calls": RunSetting(kinds.COUNT),
    "seconds": RunSetting(kinds.SECONDS, help="Duration of the workload."),
    "access": RunSetting(
        one_of("sequential", "random"),
        Struct.WORKLOAD,
        "access",
        "Random addresses, multiples of the block size, instead of sequential ones.",
        default="sequential",
        option="random",
        flag="random",
    ),
    "read-share": RunSetting(
        SHARE, Struct.WORKLOAD, "read_share", "Share of reads in a mixed workload.", default="50%"
    ),
    "think-time": RunSetting(
        TIME, Struct.WORKLOAD, "think_time_ns", "Pause between the end of a system call and the next.", default="0s"
    ),
    "verify": RunSetting(
        SWITCH,
        Struct.WORKLOAD,
        "verify",
        "Check what is read against the pattern that writes store.",
        default=False,
        flag=True,
    ),
    "pattern-seed": RunSetting(
        kinds.COUNT, Struct.WORKLOAD, "pattern_seed", "Seed of the pattern that writes store.", default="1"
    ),
    "contents": RunSetting(
        one_of("pattern", "zeros"),
        Struct.WORKLOAD,
        "contents",
        "Write zeros instead of the pattern.",
        default="pattern",
        option="zeros",
        flag="zeros",
    ),
    "start-lba": RunSetting(kinds.COUNT, Struct.WORKLOAD, "start_lba", "First logical block.", default="0"),
    "span": RunSetting(SIZE, Struct.WORKLOAD, "span_bytes", "Bytes that are used from start-lba on. All if not set."),
    # `--connections` also takes a rule
    "connections": RunSetting(count(1, MOST_CONNECTIONS), Struct.WORKLOAD, "connections"),
    "connections-rule": RunSetting(one_of("model", "golden", "plain-golden", "measured")),
    "change-to": RunSetting(count(1, MOST_CONNECTIONS), Struct.TUNING, "change_to"),
    "change-after": RunSetting(kinds.COUNT, Struct.TUNING, "change_after"),
    "measure-time": RunSetting(
        TIME, Struct.TUNING, "measure_ns", "With auto: how long to measure each number of connections.", default="3s"
    ),
    "measure-bytes": RunSetting(
        SIZE, Struct.TUNING, "measure_bytes", "With auto: how many bytes to measure, instead of a time."
    ),
    "measure-at-once": RunSetting(
        SWITCH,
        Struct.TUNING,
        "is_unsettled",
        "With auto: measure right after a change, without waiting until each connection has completed a "
        "command, and count bytes of completed commands, not bytes as they arrive.",
        default=False,
        flag=True,
    ),
    "start-connections": RunSetting(
        count(1, MOST_CONNECTIONS),
        Struct.TUNING,
        "start_connections",
        "With auto:golden: number of connections at the start.",
        default="4",
    ),
    "most-connections": RunSetting(
        count(1, MOST_CONNECTIONS),
        Struct.TUNING,
        "most_connections",
        "With auto: limit of the number. The target may set a lower one.",
        default=str(MOST_CONNECTIONS),
    ),
    "path-rate": RunSetting(RATE, help="With auto:model: rate of the path, if it is known."),
    "sessions": RunSetting(count(1, 1024), Struct.WORKLOAD, "sessions", "Sessions per target.", default="1"),
    "layout": RunSetting(
        one_of("stripe", "mirror"),
        Struct.WORKLOAD,
        "layout",
        "Write to every target, instead of blocks in turn; a write completes when the slowest acknowledges.",
        default="stripe",
        option="mirror",
        flag="mirror",
    ),
    "deal": RunSetting(
        one_of("turn-then-finished", "turn", "least-loaded"),
        Struct.WORKLOAD,
        "dealing",
        "Which connection of a session carries the next command.",
        default="turn-then-finished",
    ),
    "errors-allowed": RunSetting(
        kinds.COUNT, Struct.WORKLOAD, "errors_allowed", "Commands that may fail before the run ends.", default="0"
    ),
}
_INITIATOR: Rows = {
    "host-delay": RunSetting(
        TIME,
        Struct.WORLD,
        "initiator_host_delay_ns",
        "Time from the arrival of bytes until the initiator reads them. TCP acknowledges them at once.",
        default="0s",
        option="initiator-host-delay",
    ),
    "program": RunSetting(
        one_of("iscsitrace", "iscsi-perf", "open-iscsi"),
        Struct.PROGRAM,
        "initiator",
        "In namespaces iscsitrace (default) or iscsi-perf, which takes block-size, queue-depth, seconds and random of "
        "the workload; in guests open-iscsi.",
        option="initiator-program",
    ),
    "driver": RunSetting(
        one_of("events", "threads"),
        Struct.PROGRAM,
        "driver",
        "One thread for all connections, or two threads per connection, one to receive and one to send.",
        default="events",
    ),
    "receive": RunSetting(
        one_of("copy", "discard"),
        Struct.PROGRAM,
        "receive",
        "Copy all received data, or let the kernel discard read data that are not verified.",
        default="copy",
    ),
}
_TARGET: Rows = {
    "program": RunSetting(
        one_of("iscsitrace", "tgt", "istgt", "lio"),
        Struct.PROGRAM,
        "target",
        "In namespaces iscsitrace (default), tgt or istgt; in guests lio (default) or tgt. Other programs than "
        "iscsitrace take lun, name and chap of the target's settings, in guests also target-key.",
        option="target-program",
    ),
    "host-delay": RunSetting(
        TIME,
        Struct.WORLD,
        "target_host_delay_ns",
        "The same for every target.",
        default="0s",
        option="target-host-delay",
    ),
    "count": RunSetting(count(1, 64), help="Number of targets, each with a path (1).", option="targets"),
    "name": RunSetting(kinds.TEXT, help="TargetName.", default=TARGET_NAME),
    "status": RunSetting(
        one_of("in-data", "apart", "apart-held"),
        Struct.PORTAL,
        "status",
        "Status of reads: in the last Data-In, in a SCSI Response after it, or in one that Nagle's algorithm holds "
        "until the ACK.",
        default="in-data",
    ),
    "service-delay": RunSetting(
        kinds.SERVICE, help="Service time: 2ms, 30ms-40ms (uniform) or exp:5ms (exponential, mean)."
    ),
    "read-delay": RunSetting(kinds.SERVICE, help="Service time of reads, if different."),
    "write-delay": RunSetting(kinds.SERVICE, help="Service time of writes, if different."),
    "is-serial": RunSetting(
        SWITCH,
        help="Serve the commands of a logical unit one after another, instead of at the same time.",
        default=False,
        option="serial",
        flag=True,
    ),
    "command-window": RunSetting(
        count(1), Struct.PORTAL, "command_window_count", "Commands that a session may have in flight (128)."
    ),
    "r2t-order": RunSetting(
        one_of("in-order", "reverse", "shuffled"),
        Struct.PORTAL,
        "r2t_order",
        "Order in which R2Ts request the parts of a write.",
        default="in-order",
    ),
}
_CAPTURE: Rows = {
    "at": RunSetting(one_of("both", "initiator", "none")),
    "is-ipv6": RunSetting(
        SWITCH,
        Struct.WORLD,
        "is_ipv6",
        "IPv6 instead of IPv4.",
        default=False,
        option="ipv6",
        flag=True,
    ),
    "snaplen": RunSetting(
        SIZE, Struct.WORLD, "snaplen_bytes", "Bytes of each packet in the captures; 0 is all.", default="0"
    ),
    "is-untapped": RunSetting(
        SWITCH,
        help="Write no captures; truth.json has the initiator's view of commands. For long runs.",
        default=False,
        option="no-capture",
        flag=True,
    ),
    "tcp-log": RunSetting(
        one_of("none", "windows", "pipe"),
        Struct.WORLD,
        "tcp_log",
        "Changes of a sender's windows in truth.json: of cwnd and ssthresh (windows); also of the peer's window and "
        "the bytes in flight, on nearly every packet (pipe).",
        default="windows",
    ),
}
_KEYS: Rows = {name: RunSetting(kinds.of_key(name), Struct.KEYS, field) for name, (field, _) in LOGIN_KEYS.items()}


def _under(section: str, rows: Rows) -> dict[str, RunSetting]:
    return {f"{section}.{name}": setting for name, setting in rows.items()}


def _of_direction(direction: str) -> dict[str, RunSetting]:
    """The settings of a link in one direction, each with a separate option."""
    only = f"Only {direction.replace('-', ' the ')}."
    return _under(
        f"link.{direction}",
        {
            name: replace(setting, help=setting.help and only, option=f"{direction}-{name}")
            for name, setting in _LINK.items()
        },
    )


SETTINGS: dict[str, RunSetting] = {
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
