"""The known diseases by name: what each means, from when on it is found, what shows it, and what a person can change.

docs/diagnosis.md prints this, ``--fail-on`` takes these names. It computes nothing and loads no NumPy. Keys are spelled
as their owners do: open-iscsi's in ``node.``, LIO's through ``targetcli``, sysctl's in ``net.``, those of a Linux block
device in ``/sys/block/DEVICE/queue``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from iscsitrace.analysis.findings import thresholds as at


@dataclass(frozen=True)
class Disease:
    """What a finding of one name stands for."""

    name: str
    meaning: str
    threshold: str
    """From when on it is found, in words."""
    evidence: str
    """Which frames it shows, and what its share counts."""
    advice: tuple[str, ...]


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _seconds(time_ns: int) -> str:
    return f"{time_ns / 1e9:g} s"


_WORTH = f"at least {_percent(at.WORTH_A_CHANGE)} of the jobs' time"

_QUEUE = (
    "Keep more tasks outstanding: more threads or a higher I/O depth in the program; for buffered reads "
    "/sys/block/DEVICE/queue/read_ahead_kb.",
    "Let them through: node.session.queue_depth and, at least as large, node.session.cmds_max in open-iscsi, "
    "/sys/block/DEVICE/queue/nr_requests, and `targetcli /iscsi/IQN/tpg1 set attribute default_cmdsn_depth=128` on "
    "LIO.",
)

_SHARE = (
    "Share the path over several connections, each with windows and losses of its own: node.session.nr_sessions with "
    "multipath, or a session of several connections (MC/S)."
)

_ALL: Final = (
    Disease(
        "queue_depth_low",
        "Everything that is outstanding waits for the path at once, and the line stays idle: too few tasks, or too "
        "small ones, for the distance. The classic is queue depth 1.",
        f"`propagation` of data tasks takes {_WORTH}, over {at.MIN_TASKS} data tasks or more.",
        "The three tasks that waited longest for the path, command to status. The share is that waiting.",
        (
            *_QUEUE,
            "Larger blocks do the same for sequential work; several sessions (node.session.nr_sessions, with "
            "multipath) do it for a file system that waits for each write.",
        ),
    ),
    Disease(
        "block_size_small",
        "Sequential work in PDU blocks that pass faster than the path answers: each pays the whole delay for little "
        "data. Where the sizes tell, so is said which system call was cut, and how.",
        f"As queue_depth_low, and what is outstanding (median block size times median queue depth) takes less time on "
        f"the line than the round trip; the median block is under {at.LARGE_BLOCK_BYTES >> 10} KiB, and "
        f"{_percent(at.SEQUENTIAL)} of the tasks or more begin where another ended.",
        "Three tasks one after another, command to status; of a cut system call, one whole. The share is that of "
        "queue_depth_low: the same time, won in another way.",
        (
            "Ask for more at once: the program's block size (bs=), and for buffered reads "
            "/sys/block/DEVICE/queue/read_ahead_kb.",
            "Let the kernel send it whole: /sys/block/DEVICE/queue/max_sectors_kb, up to max_hw_sectors_kb there.",
            "node.session.iscsi.MaxBurstLength and node.conn[0].iscsi.MaxRecvDataSegmentLength no smaller than a "
            "block, so that it travels in few PDUs.",
        ),
    ),
    Disease(
        "held_for_ack",
        "The status of a read, or the end of other data, is held back until what was sent before it is acknowledged: "
        "Nagle's algorithm, made worse by delayed ACKs. For a read over distance that is a third and a fourth delay.",
        f"`ack_wait` takes {_WORTH}, over {at.MIN_TASKS} tasks or more.",
        "Last data and status of the three reads that waited longest, or the frames that ended the longest waits. The "
        "share is that waiting.",
        (
            "Let the status ride in the last Data-In (S bit), as LIO and tgt do: an option or a newer release of the "
            "target.",
            "Switch Nagle's algorithm off at the sender (TCP_NODELAY).",
            "At the receiver, quick ACKs: `ip route change ... quickack 1` for the sender's network.",
        ),
    ),
    Disease(
        "r2t_rounds",
        "Writes ask for leave several times, one after another: each R2T costs a round trip in which nothing is sent.",
        f"The time between the end of a burst and the next R2T's own first data takes {_WORTH} in `propagation`, over "
        f"{at.MIN_TASKS} further R2Ts or more. R2Ts that come before the burst before them has ended cost nothing.",
        "The R2Ts and bursts of the write with most rounds. The share is that waiting.",
        (
            "Fewer, larger bursts: node.session.iscsi.MaxBurstLength in open-iscsi and "
            "`targetcli /iscsi/IQN/tpg1 set parameter MaxBurstLength=16776192` on LIO; the smaller of both is in "
            "force.",
            "More R2Ts at once: `targetcli /iscsi/IQN/tpg1 set parameter MaxOutstandingR2T=8` (open-iscsi asks for 1: "
            "node.session.iscsi.MaxOutstandingR2T).",
            "More writes outstanding hide the rounds of each: node.session.queue_depth.",
        ),
    ),
    Disease(
        "r2t_late",
        "The target grants late: writes wait for their R2T longer than the path explains, often because the target is "
        "still busy with data that others sent unasked.",
        f"Waits for an R2T beyond the round trip to the target take {_WORTH} in `target_service`, and "
        f"{at.MIN_TASKS} R2Ts or more are over {at.LATE_R2T_NS / 1e6:g} ms late.",
        "Command and R2T of the three latest. The share is that waiting.",
        (
            "Look at the target: its memory for write buffers, its backing device (iostat there), other initiators.",
            "Send less unasked: node.session.iscsi.FirstBurstLength smaller, or node.session.iscsi.ImmediateData = No; "
            "grants then come in the order in which the target can take the data.",
            "Fewer writes at once if the target is the narrow place: node.session.queue_depth.",
        ),
    ),
    Disease(
        "unsolicited_data_unused",
        "Writes send nothing before their first R2T, and pay a round trip for leave, because InitialR2T and "
        "ImmediateData (or a target that asks for all) do not let data go with the command.",
        f"{_percent(at.MOST)} of the writes or more sent no immediate and no unsolicited data, and their waits for the "
        f"first R2T take {_WORTH} in `propagation`, over {at.MIN_TASKS} writes or more.",
        "Command, R2T and first data of the three longest waits. The share is that waiting.",
        (
            "Let data go with the command: node.session.iscsi.ImmediateData = Yes and node.session.iscsi.InitialR2T = "
            "No in open-iscsi, `targetcli /iscsi/IQN/tpg1 set parameter ImmediateData=Yes` and `InitialR2T=No` on LIO.",
            "How much: node.session.iscsi.FirstBurstLength and FirstBurstLength of the target; immediate data is "
            "bounded by the target's MaxRecvDataSegmentLength, too.",
        ),
    ),
    Disease(
        "receive_window_small",
        "The sender has data, but the receiver's TCP window is full: it is smaller than what the path holds (line rate "
        "times round trip).",
        f"`receive_window` takes {_WORTH}, and the window never shrank below a segment (or its scale is not known).",
        "The first packets after the three longest waits. The share is that waiting.",
        (
            "On the receiver (of reads: the initiator): net.core.rmem_max, and the third value of net.ipv4.tcp_rmem, "
            "above line rate times round trip; twice that, for the kernel counts its own overhead.",
            "In open-iscsi node.conn[0].tcp.window_size sets the buffers, which net.core.rmem_max cuts and which "
            "switches the kernel's own growth off: raise both, then log in again.",
            "On the sender net.ipv4.tcp_wmem and net.core.wmem_max no smaller.",
            _SHARE,
        ),
    ),
    Disease(
        "receiver_stalled",
        "The receiver's TCP window closes: its program takes the data late from the socket.",
        f"`receive_window` takes {_WORTH}, and the advertised window shrank below a full segment.",
        "The first packets after the three longest waits. The share is that waiting.",
        (
            "Look at the receiver: CPU (softirq, iscsi_q or kworker threads at 100 %), memory, a slow disk behind it.",
            "Larger buffers only delay this: net.ipv4.tcp_rmem.",
        ),
    ),
    Disease(
        "restart_after_idle",
        "After a pause TCP begins anew with a small congestion window, so that a block needs several round trips where "
        "one would do. iSCSI at low queue depth is all pauses.",
        f"A sender restarted {at.RESTARTS} times or more, and `congestion_window` takes {_WORTH}.",
        "The first packets after the three longest waits for the window. The share is all waiting for the congestion "
        "window, of which restarts are the cause that can be removed.",
        (
            "On the sender (of reads: the target) net.ipv4.tcp_slow_start_after_idle = 0.",
            "More tasks outstanding leave no pauses: node.session.queue_depth.",
        ),
    ),
    Disease(
        "congestion_window_small",
        "The sender has data and the receiver room, but TCP waits for ACKs: its congestion window is smaller than what "
        "the path holds, at the start or after losses.",
        f"`congestion_window` takes {_WORTH}, without {at.RESTARTS} restarts after a pause.",
        "The first packets after the three longest waits. The share is that waiting.",
        (
            "Find losses first (finding loss): they are what keeps the window small.",
            "On the sender net.ipv4.tcp_congestion_control: cubic or bbr over distance, not reno.",
            _SHARE,
            "Long sessions: a window grows once, a new login begins anew.",
        ),
    ),
    Disease(
        "loss",
        "The network loses packets, and transfers stand still until they are sent again.",
        f"`loss_recovery` takes at least {_percent(at.LOSS)} of the jobs' time.",
        "First and last frame of the longest repairs. The share is the time of repairs.",
        (
            "Find where: errors and drops of both interfaces (ethtool -S, ip -s link), switch ports, flow control, "
            "duplex.",
            "Retransmission timeouts weigh most: net.ipv4.tcp_sack = 1 on both sides, and enough in flight for fast "
            "retransmission.",
            "On the sender net.ipv4.tcp_congestion_control: bbr bears random loss, cubic and reno do not.",
            _SHARE,
        ),
    ),
    Disease(
        "uneven_connections",
        "Connections (or sessions) that are used together carry unequal amounts: all wait for the one that has most to "
        "do or the worst path.",
        f"The busiest carried so much more than the mean that {_percent(at.UNEVEN)} of the time is lost on the others "
        "(1 - mean / most), of connections that ran at the same time and have moved data: of one session, between the "
        "same two nodes, or (`info`) begun together with the same kind of tasks.",
        "The loss that made the slowest slow, where one did; command and status of the last task of the most and of "
        "the least used. The share is what an even dealing could win at most.",
        (
            "Deal by load and not by turn: `path_selector \"service-time 0\"` in multipath.conf.",
            "See whether one path is longer or loses packets: rtt and retransmissions of each in `iscsitrace summary`, "
            "`iscsitrace plot streams` beside each other.",
            "A loss in slow start fixes a window low for long: net.ipv4.tcp_congestion_control = bbr grows out of it, "
            "and streams that take what is next (not a fixed part each) lose less to the last one.",
            "More tasks outstanding than connections: node.session.queue_depth.",
        ),
    ),
    Disease(
        "mirror_waits_for_farthest",
        "Sessions carry the same writes to several targets, as a software RAID1 does, and each write is done when the "
        "slowest leg has it: the farthest target sets the pace of all.",
        f"Only the slowest leg has writes outstanding for {_WORTH}, of a mirror that is recognised by its extents "
        "(docs/method.md, section 9).",
        "Command and status, on every leg, of the three writes that waited longest. The share is the time in which "
        "only that leg was still at work.",
        (
            "Let the far member lag: mark it write-mostly (`mdadm /dev/mdN --add --write-mostly DEVICE`, or "
            "`echo writemostly > /sys/block/mdN/md/dev-DEVICE/state`) and give the array a bitmap with write-behind: "
            "`mdadm --grow /dev/mdN --bitmap=none`, then `mdadm --grow /dev/mdN --bitmap=internal --write-behind=256`. "
            "A write is done then when the others have it; what is still under way is lost with the host, or its disk.",
            "Place that member nearer, or give its path a faster line.",
            "Tune that leg alone: what is found of its session; mostly its R2Ts (node.session.iscsi.InitialR2T = No, "
            "node.session.iscsi.FirstBurstLength) and its windows.",
        ),
    ),
    Disease(
        "slow_target",
        "The target takes its time: first data, R2T or status come later than the path explains.",
        f"`target_service` takes {_WORTH}, over {at.MIN_TASKS} tasks or more.",
        "The three tasks that the target held longest, command to status. The share is that waiting.",
        (
            "Look at the backing device on the target (iostat -x there), its cache mode, its controller, its CPU.",
            "More tasks outstanding let a target with many disks work on them at once: node.session.queue_depth; a "
            "single disk only queues them.",
            "Several connections with a task each do the same: node.session.nr_sessions with multipath, or a session "
            "of several connections (MC/S).",
        ),
    ),
    Disease(
        "initiator_think_time",
        "The initiator asks for nothing although it is at work: time without any task, but for pauses between jobs.",
        f"`initiator_think` of that kind takes {_WORTH}, {at.MIN_TASKS} times or more.",
        "The commands after the three longest waits. The share is that time.",
        (
            "Ask ahead: asynchronous I/O (io_uring, libaio) or more threads in the program; for buffered reads "
            "/sys/block/DEVICE/queue/read_ahead_kb.",
            "Look at the initiator's CPU, and at the I/O scheduler: /sys/block/DEVICE/queue/scheduler = none.",
        ),
    ),
    Disease(
        "slow_initiator",
        "The initiator sends data late that the target has asked for.",
        f"`initiator_service` takes {_WORTH}.",
        "R2T and first data of the three latest bursts. The share is that waiting.",
        (
            "Look at the initiator's CPU and its iscsi_q or kworker threads; node.session.xmit_thread_priority = -20.",
            "More buffer to send from: net.ipv4.tcp_wmem, net.core.wmem_max.",
        ),
    ),
    Disease(
        "command_window_closed",
        "The target takes no more commands (MaxCmdSN): the initiator has more to ask for and has to wait.",
        f"{_percent(at.COMMAND_WINDOW_TASKS)} of the commands or more, and {at.MIN_TASKS} at least, came after the "
        f"window had been closed until {at.PROMPT_NS / 1e6:g} ms before.",
        "The statuses that made room, and the commands that followed. It has no share: what is outstanding "
        "meanwhile may keep the line busy.",
        (
            "`targetcli /iscsi/IQN/tpg1 set attribute default_cmdsn_depth=128` on LIO (64 is its default; log in "
            "again).",
            "If latency matters more than throughput, ask for less instead: node.session.queue_depth below the window.",
        ),
    ),
    Disease(
        "digest_errors",
        "Header or data digests do not match: something between the two ends changes bytes behind TCP's back.",
        "One such PDU.",
        "The first of each connection. It has no share.",
        (
            "Look for what changes bytes: NIC offloads (ethtool -K ... tx off rx off tso off, one after another), "
            "memory, firmware, middle boxes.",
            "Leave node.conn[0].iscsi.HeaderDigest and node.conn[0].iscsi.DataDigest on: without them the damage is "
            "silent.",
        ),
    ),
    Disease(
        "nop_timeout",
        "A ping (NOP-Out or NOP-In) got no echo in time: the path or the peer stood still, and initiators give the "
        "connection up for it.",
        f"A ping whose echo took over {_seconds(at.NOP_TIMEOUT_NS)}, or had not come that long before the connection's "
        "last packet.",
        "The pings and their late echoes. It has no share.",
        (
            "Find what stood still meanwhile: `iscsitrace cycles --slower 1s`, the network's log, the target's.",
            "node.conn[0].timeo.noop_out_interval and node.conn[0].timeo.noop_out_timeout say when open-iscsi gives a "
            "connection up, node.session.timeo.replacement_timeout when it fails its tasks: with multipath short, else "
            "long.",
        ),
    ),
    Disease(
        "task_aborts",
        "The initiator gave tasks up: ABORT TASK, or a reset of the logical unit or the target.",
        "One such request.",
        "The request, its answer, and the command that it is about. It has no share.",
        (
            "Find out why the target did not answer: its log and backing device at that time.",
            "/sys/block/DEVICE/device/timeout says when Linux gives a task up (30 s), "
            "node.session.err_timeo.abort_timeout and lu_reset_timeout what follows.",
        ),
    ),
    Disease(
        "capture_poor",
        "The capture does not tell enough: what it lost may be what matters.",
        f"Under {_percent(at.COVERAGE)} of the stream bytes or of the PDUs explained, or {_percent(at.UNKNOWN)} of the "
        "time or more without an owner, or no round-trip time to either side.",
        "The first frames of what is missing, where known. The share is the time without an owner.",
        (
            "`iscsitrace check` says what is missing and why.",
            "Capture again: from before the login, both directions, with -s 256 and a larger buffer (-B), next to a "
            "host.",
        ),
    ),
)  # fmt: skip

DISEASES: Final[dict[str, Disease]] = {disease.name: disease for disease in _ALL}
"""Every disease by name, in the order of the docs."""

NAMES: Final = tuple(DISEASES)
