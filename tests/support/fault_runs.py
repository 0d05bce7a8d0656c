"""Runs with one fault each, and near misses: what the wire has to show, and what a diagnosis should say.

Each fault is there in three settings, which differ in distance, rate, I/O size and queue depth; in the simulated world
(`tests/lab/test_fault_runs.py`) and over the kernel's TCP (`bench.faults`). ``seen`` are display filters of tshark,
which match at least one frame of the initiator's capture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from iscsitrace.lab.faults.fault import NAMESPACES, SIMULATED

COMMANDS: Mapping[str, tuple[str, ...]] = {SIMULATED: ("simulate",), NAMESPACES: ("lab", "run")}
"""The command of a run by world."""

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "near": ("--one-way-delay", "1ms", "--rate", "20Mbit", "--block-size", "16K", "--queue-depth", "1"),
    "far": ("--one-way-delay", "15ms", "--rate", "25Mbit", "--block-size", "64K", "--queue-depth", "4"),
    "deep": ("--one-way-delay", "4ms", "--rate", "15Mbit", "--block-size", "32K", "--queue-depth", "16"),
}
"""Options of a run by name."""

HEALTHY = "healthy"
"""Expected of a near miss: no failure, so ``none`` or a finding of slowness."""
UNCOUNTED = frozenset({"small-buffers", "wrong-chap", "key-mismatch"})
"""Faults that change the hosts, the accounts or the offers, and hit nothing that is counted."""

TAPS = ("initiator", "target")

# what may lead where nothing failed
_SLOWNESS = frozenset({"line_saturated", "standing_queue", "slow_target", "latency_outliers", "loss"})
_NO_FAILURE = _SLOWNESS | {"none", "capture_poor"}
_SEVERE = frozenset({"error", "data_loss"})
# one way and the longest queue of a setting
_FARTHEST_NS = 200_000_000
# a line that is no limit
_FAST = ("--rate", "40Mbit")
_LOGIN = "iscsi.opcode == 0x03"
_SENSE = "iscsi.scsiresponse.status == 0x02"
_READ_FAILS = "scsi.sns.key == 0x3"


@dataclass(frozen=True)
class Run:
    """A run with a fault."""

    name: str
    faults: tuple[str, ...]
    """As they are typed."""
    headline: str
    """The name of the finding that has to lead, or `HEALTHY`."""
    operation: str = "read"
    at_target: str | None = None
    """The same at the target's tap of the simulated world, where that sees nothing of the fault."""
    seen: Mapping[str, int] = field(default_factory=dict)
    """Display filters with the least number of frames that match."""
    unseen: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    """Further options."""
    ends: bool = False
    """Whether the run ends with its fault: no command is served."""
    hits: bool = True
    """Whether its faults hit anything."""

    def wanted(self, tap: str, world: str = SIMULATED) -> str:
        """The name of the finding that has to lead at a tap, or `HEALTHY`."""
        # a link of namespaces carries frames that are for no host, too
        is_unseen = tap == "target" and world == SIMULATED
        return (self.at_target if is_unseen else None) or self.headline

    def missed(self, truth: Mapping[str, Any]) -> list[str]:
        """The names of its faults that hit nothing, against its purpose."""
        own = [row for row in truth["faults"] if row["name"] not in UNCOUNTED]
        return [row["name"] for row in own if self.hits and not row["count"]]

    def words(self, setting: str, world: str = SIMULATED) -> list[str]:
        """The words of its command line, without the folder."""
        faults = [word for each in self.faults for word in ("--fault", each)]
        return [*COMMANDS[world], self.operation, *SETTINGS[setting], *faults, *self.more]


def wrong(wanted: str, document: Mapping[str, Any], truth: Mapping[str, Any]) -> list[str]:
    """What a diagnosis (the document of ``diagnose --json``) says that a run does not show, as text."""
    headline = document["headline"]
    if wanted == HEALTHY:
        found = [each for one in (*document["stories"], *document["sessions"]) for each in one["findings"]]
        false = [each["text"] for each in found if each["severity"] in _SEVERE and each["name"] != "capture_poor"]
        return [*([] if headline["name"] in _NO_FAILURE else [headline["text"]]), *false]
    if headline["name"] != wanted:
        return [headline["text"]]
    # a time of which the fault is a part, as far as the tap is from it
    from_ns, to_ns = headline["from_ns"] - _FARTHEST_NS, headline["to_ns"] + _FARTHEST_NS
    hits = [row for row in truth["faults"] if row["from_ns"] is not None]
    apart = [row for row in hits if not (from_ns <= row["to_ns"] and row["from_ns"] <= to_ns)]
    return [f"not in the time of {row['name']}: {headline['text']}" for row in apart]


def _relogin(count: int = 2) -> dict[str, int]:
    return {_LOGIN: count}


FAULTS = (
    Run("black-out", ("black-out,for=12s",), "io_outage", seen={**_relogin(), "tcp.analysis.retransmission": 3}),
    Run("black-out-to-target", ("black-out,for=12s,direction=to-target",), "io_outage", seen=_relogin()),
    Run("black-out-to-initiator", ("black-out,for=12s,direction=to-initiator",), "io_outage", seen=_relogin()),
    Run("black-out-healed", ("black-out,for=3s",), "io_outage", seen={"tcp.analysis.retransmission": 1}),
    # a queue in which every command waits for a second, while others progress
    Run(
        "black-out-behind-a-queue",
        ("black-out,for=3s",),
        "io_outage",
        more=("--one-way-delay", "43ms", "--rate", "8Mbit", "--block-size", "128K", "--queue-depth", "8"),
    ),
    # at the target's tap no command is in flight: it sees a status that is retransmitted until the initiator's RST
    Run(
        "black-out-single-writes",
        ("black-out,for=12s",),
        "io_outage",
        "write",
        at_target="connection_lost",
        seen=_relogin(),
        more=("--one-way-delay", "1ms", "--block-size", "64K", "--queue-depth", "1"),
    ),
    # headers of statuses are cut off
    Run("black-out-snaplen", ("black-out,for=12s",), "io_outage", more=("--set", "snaplen=128", "--queue-depth", "1")),
    Run("flap", ("flap,for=3s",), "io_outage", seen={"tcp.analysis.retransmission": 1}),
    Run("rst-initiator", ("rst",), "connection_lost", seen={**_relogin(), "tcp.flags.reset == 1": 1}),
    Run("rst-target", ("rst,on=target",), "connection_lost", seen={**_relogin(), "tcp.flags.reset == 1": 1}),
    Run(
        "target-restart",
        ("target-restart,for=5s",),
        "connection_lost",
        seen={**_relogin(), "tcp.flags.fin == 1": 2, "tcp.flags.reset == 1": 1},
    ),
    Run("mtu-hole", ("mtu-hole,for=20s",), "path_mtu", seen={"tcp.analysis.retransmission": 2}),
    Run("mtu-hole-write", ("mtu-hole,for=20s",), "path_mtu", "write", seen={"tcp.analysis.retransmission": 2}),
    # two segments are lost, and the rest of the write arrives
    Run(
        "mtu-hole-small-write",
        ("mtu-hole,for=20s",),
        "path_mtu",
        "write",
        more=("--block-size", "4K", "--queue-depth", "1"),
    ),
    Run("wrong-chap", ("wrong-chap",), "login_failed", seen={"iscsi.login.status == 0x0201": 1}, ends=True),
    Run("no-acl", ("no-acl",), "login_failed", seen={"iscsi.login.status == 0x0202": 1}, ends=True),
    Run("unknown-target", ("unknown-target",), "login_failed", seen={"iscsi.login.status == 0x0203": 1}, ends=True),
    *(
        Run(
            f"login-refused-{detail.replace('/', '-')}",
            (f"login-refused,status={detail}",),
            "login_failed",
            seen={f"iscsi.login.status == 0x{int(detail[0]):02x}{int(detail[2:]):02x}": 1},
            ends=True,
        )
        for detail in (
            *("2/0", "2/1", "2/2", "2/3", "2/4", "2/5", "2/6", "2/7", "2/8", "2/9", "2/10", "2/11"),
            *("3/0", "3/1", "3/2"),
        )
    ),
    Run(
        "key-mismatch", ("key-mismatch",), "login_failed", seen={_LOGIN: 1}, unseen=("iscsi.opcode == 0x01",), ends=True
    ),
    Run(
        "reservation-held",
        ("reservation-held",),
        "reservation_conflict",
        seen={"iscsi.scsiresponse.status == 0x18": 1},
    ),
    Run("storage-errors", ("storage-errors,for=3s",), "command_errors", seen={_SENSE: 1, _READ_FAILS: 1}),
    Run(
        "storage-errors-range",
        ("storage-errors,sectors=0-2047,at=0s,for=10s",),
        "command_errors",
        seen={_SENSE: 1, _READ_FAILS: 1},
    ),
    Run(
        "storage-errors-write", ("storage-errors,for=3s",), "command_errors", "write", seen={_SENSE: 1, _READ_FAILS: 1}
    ),
    Run("lun-removed", ("lun-removed",), "command_errors", seen={_SENSE: 1, "scsi.sns.ascascq == 0x2500": 1}),
    Run(
        "storage-full",
        ("storage-full,for=5s",),
        "command_errors",
        "write",
        seen={_SENSE: 1, "scsi.sns.ascascq == 0x2707": 1},
    ),
    Run("busy", ("busy,for=3s",), "target_busy", seen={"iscsi.scsiresponse.status == 0x08": 1}),
    Run("task-set-full", ("task-set-full,for=3s",), "target_busy", seen={"iscsi.scsiresponse.status == 0x28": 1}),
    Run(
        "slow-unmap",
        ("slow-unmap,by=900ms,count=8",),
        "slow_operation",
        seen={"scsi_sbc.opcode == 0x42": 8},
        # a disk that does nothing else meanwhile
        more=("--set=serial=yes", "--seconds", "8", *_FAST),
    ),
    # reads and writes take long on the line, and so does the queue
    Run(
        "slow-unmap-in-a-queue",
        ("slow-unmap,by=900ms,count=8",),
        "slow_operation",
        more=("--set=serial=yes", "--seconds", "8", "--rate", "60Mbit", "--block-size", "256K", "--queue-depth", "6"),
    ),
    Run(
        "slow-unmap-large-writes",
        ("slow-unmap,by=900ms,count=8",),
        "slow_operation",
        "write",
        more=("--set=serial=yes", "--seconds", "8", "--rate", "60Mbit", "--block-size", "1M", "--queue-depth", "1"),
    ),
    Run("storage-slow", ("storage-slow,by=800ms,for=10s",), "slow_target", more=_FAST),
    Run(
        "stuck-command",
        ("stuck-command,for=14s,timeout=5s",),
        "task_timeout",
        seen={**_relogin(), "iscsi.taskmanfun.function == 1": 1, "iscsi.taskmanfun.function == 5": 1},
    ),
    # larger blocks: few commands carry an ACK with their own data
    Run("ack-loss", ("ack-loss,for=3s",), "ack_loss", more=("--block-size", "2M", *_FAST)),
    # held back for long enough that TCP takes it for a loss
    Run(
        "reordering",
        ("reordering,for=8s,share=20%,by=60ms",),
        "reordering",
        seen={"tcp.analysis.duplicate_ack": 1},
        more=_FAST,
    ),
    Run(
        "reordering-of-small-reads",
        ("reordering,for=8s,share=20%,by=60ms",),
        "reordering",
        more=("--one-way-delay", "400us", "--block-size", "4K", "--queue-depth", "32", *_FAST),
    ),
    # operations and sense data are cut off, statuses are not
    Run(
        "lun-removed-snaplen",
        ("lun-removed",),
        "command_errors",
        more=("--set", "snaplen=96", "--block-size", "4K", "--queue-depth", "1"),
    ),
    Run(
        "unreachable-portal",
        ("unreachable-portal",),
        "portal_unreachable",
        seen={"tcp.dstport == 3261 && tcp.flags.syn == 1": 3, "iscsi.opcode == 0x24": 1},
        unseen=("tcp.srcport == 3261",),
        at_target=HEALTHY,
    ),
    Run("duplicate-initiator", ("duplicate-initiator,for=10s",), "duplicate_initiator", seen=_relogin(5)),
    Run("lun-reset", ("lun-reset",), "task_aborts", seen={"iscsi.taskmanfun.function == 5": 1}),
)

NEAR_MISSES = (
    Run("healthy", (), HEALTHY, more=("--seconds", "5")),
    Run("healthy-write", (), HEALTHY, "write", more=("--seconds", "5")),
    Run("black-out-200ms", ("black-out,for=200ms",), HEALTHY, seen={"tcp.analysis.retransmission": 1}),
    Run("flap-150ms", ("flap,for=150ms",), HEALTHY),
    Run("program-paused", ("program-paused,for=4s",), HEALTHY),
    Run(
        "unit-attention",
        ("check-condition,operation=other,nth=1,sense=6/29/00",),
        HEALTHY,
        seen={_SENSE: 1},
        more=("--seconds", "5"),
    ),
    Run(
        "optional-command",
        ("check-condition,operation=other,nth=3,sense=5/20/00",),
        HEALTHY,
        seen={_SENSE: 1},
        more=("--seconds", "5"),
    ),
    Run(
        "login-redirected",
        ("login-redirected",),
        HEALTHY,
        seen={"iscsi.login.status == 0x0101": 1},
        more=("--seconds", "5"),
    ),
    Run("slow-but-working", (), HEALTHY, more=("--seconds", "8", "--service-delay", "400ms")),
    Run("unmap", ("slow-unmap,by=0s",), HEALTHY, seen={"scsi_sbc.opcode == 0x42": 3}),
    Run("unmap-fast", ("slow-unmap,by=60ms",), HEALTHY, seen={"scsi_sbc.opcode == 0x42": 3}),
    Run("stuck-for-a-moment", ("stuck-command,for=800ms,timeout=5s",), HEALTHY, unseen=("iscsi.opcode == 0x02",)),
    Run("storage-a-little-slow", ("storage-slow,by=5ms,for=3s",), HEALTHY),
    Run("reordering-seldom", ("reordering,for=5s,share=0.2%,by=2ms",), HEALTHY),
    Run("reordering-a-little", ("reordering,for=8s,share=5%,by=5ms",), HEALTHY),
    Run("unmap-beside-reads", ("slow-unmap,by=900ms",), HEALTHY, seen={"scsi_sbc.opcode == 0x42": 3}),
    Run("ack-loss-seldom", ("ack-loss,for=3s,share=5%",), HEALTHY),
    Run("mtu-hole-above-all", ("mtu-hole,bytes=1500,for=3s",), HEALTHY, hits=False),
    Run(
        "path-of-a-small-mtu",
        ("mtu-hole,bytes=1000,for=3s",),
        HEALTHY,
        more=("--set", "mss=900"),
        hits=False,
    ),
    Run(
        "black-out-in-a-pause",
        ("program-paused,for=4s", "black-out,at=2s,for=2s"),
        HEALTHY,
        hits=False,
    ),
    Run(
        "program-paused-for-long",
        ("program-paused,for=12s",),
        HEALTHY,
    ),
    Run(
        "capacity-changed",
        ("check-condition,operation=read,nth=20,sense=6/2a/09",),
        HEALTHY,
        seen={_SENSE: 1},
        more=("--seconds", "5"),
    ),
    # the headers behind data are cut off, those of the logout and of statuses among them
    Run("snaplen", (), HEALTHY, more=("--seconds", "5", "--set", "snaplen=96", "--set", "data-digest=crc32c")),
    Run("snaplen-write", (), HEALTHY, "write", more=("--seconds", "5", "--set", "snaplen=96", "--block-size", "1M")),
    # operations are cut off
    Run(
        "snaplen-small-reads",
        (),
        HEALTHY,
        more=("--seconds", "5", "--set", "snaplen=96", "--block-size", "4K", "--service-delay", "400ms"),
    ),
    # statuses are cut off, and a program pauses
    Run(
        "program-paused-snaplen",
        ("program-paused,for=4s",),
        HEALTHY,
        "mixed",
        more=("--set", "snaplen=256", "--block-size", "1M", "--queue-depth", "1", "--connections", "2"),
    ),
    Run("busy-once", ("busy,nth=20,operation=read",), HEALTHY, more=("--seconds", "5")),
)
